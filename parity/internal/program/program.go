// Package program builds programs from their Go modules for tests and benchmarks.
package program

import (
	"context"
	"errors"
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
	root, err := Go(ctx, "", "list", "-m", "-f", "{{.Dir}}", "github.com/heraldnode/herald")
	if err != nil {
		return "", fmt.Errorf("find herald module: %w", err)
	}
	path := filepath.Join(outputDir, filepath.Base(packagePath))
	if _, err := Go(ctx, "", append([]string{"build", "-C", root, "-o", path}, append(buildFlags, "./"+packagePath)...)...); err != nil {
		return "", fmt.Errorf("build %s: %w", packagePath, err)
	}
	return path, nil
}

// Go runs the go command in a directory, by default the working directory, and returns its output without the last line break.
func Go(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	output, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(output)), nil
}
