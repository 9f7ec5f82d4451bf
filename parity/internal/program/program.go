// Package program builds the herald command as a user would have it, for tests and measurements that run it.
package program

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Herald builds the herald command of this checkout into a folder, and returns its path. It has to be called from a folder
// inside the parity module, as tests are. A test that has the race detector gets a herald that has it too.
func Herald(ctx context.Context, folder string) (string, error) {
	root, err := goCommand(ctx, "list", "-m", "-f", "{{.Dir}}", "github.com/heraldnode/herald")
	if err != nil {
		return "", fmt.Errorf("find the herald module: %w", err)
	}
	path := filepath.Join(folder, "herald")
	if _, err := goCommand(ctx, append([]string{"build", "-C", root, "-o", path}, append(flags, "./cmd/herald")...)...); err != nil {
		return "", fmt.Errorf("build herald: %w", err)
	}
	return path, nil
}

func goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, complaints.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}
