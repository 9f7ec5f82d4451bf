// Package program builds commands of the herald module for tests and benchmarks.
package program

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Herald builds the herald command into outputDir and returns its path.
func Herald(ctx context.Context, outputDir string) (string, error) {
	return Build(ctx, outputDir, "cmd/herald")
}

// Build builds a command of the herald module into outputDir and returns its path. The package path is relative to the module. The
// working directory must be inside the parity module. If the race detector is enabled, it is enabled in the command, too.
func Build(ctx context.Context, outputDir, packagePath string) (string, error) {
	root, err := goCommand(ctx, "list", "-m", "-f", "{{.Dir}}", "github.com/heraldnode/herald")
	if err != nil {
		return "", fmt.Errorf("find herald module: %w", err)
	}
	path := filepath.Join(outputDir, filepath.Base(packagePath))
	if _, err := goCommand(ctx, append([]string{"build", "-C", root, "-o", path}, append(buildFlags, "./"+packagePath)...)...); err != nil {
		return "", fmt.Errorf("build %s: %w", packagePath, err)
	}
	return path, nil
}

func goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}
