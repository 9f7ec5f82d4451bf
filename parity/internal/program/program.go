// Package program builds commands of the herald module for tests and measurements that run them.
package program

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Herald builds the herald command into folder and returns its path.
func Herald(ctx context.Context, folder string) (string, error) {
	return Build(ctx, folder, "cmd/herald")
}

// Build builds the command in a directory of the herald module into folder and returns its path. The working directory must
// be inside the parity module. Under the race detector, the command has it too.
func Build(ctx context.Context, folder, dir string) (string, error) {
	root, err := goCommand(ctx, "list", "-m", "-f", "{{.Dir}}", "github.com/heraldnode/herald")
	if err != nil {
		return "", fmt.Errorf("find the herald module: %w", err)
	}
	path := filepath.Join(folder, filepath.Base(dir))
	if _, err := goCommand(ctx, append([]string{"build", "-C", root, "-o", path}, append(flags, "./"+dir)...)...); err != nil {
		return "", fmt.Errorf("build %s: %w", dir, err)
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
