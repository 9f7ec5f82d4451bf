package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// module is where the parity module is, and the versions of the servers that its go.mod asks for.
type module struct {
	dir        string
	kubernetes string
	etcd       string
}

func findModule(ctx context.Context) (module, error) {
	listed, err := goCommand(ctx, "", "list", "-m", "-f", "{{.Dir}}\t{{.Version}}", parityModule, kubernetesModule, etcdModule)
	if err != nil {
		return module{}, fmt.Errorf("find the module %s (call this from a folder inside of it): %w", parityModule, err)
	}
	lines := strings.Split(strings.TrimSpace(listed), "\n")
	if len(lines) != 3 {
		return module{}, fmt.Errorf("go list -m answers %q, want three modules", listed)
	}
	var m module
	m.dir, _, _ = strings.Cut(lines[0], "\t")
	_, m.kubernetes, _ = strings.Cut(lines[1], "\t")
	_, m.etcd, _ = strings.Cut(lines[2], "\t")
	return m, nil
}

// own are the main packages of ours, relative to the module.
var own = []string{"cmd/etcd", "controlplane/supervisor"}

// fingerprint changes when the programs would: with the versions in go.mod, our own source, the flags or the compiler.
func (m module) fingerprint(ctx context.Context) (string, error) {
	compiler, err := goCommand(ctx, m.dir, "env", "GOVERSION", "GOOS", "GOARCH", "GOFLAGS", "CGO_ENABLED")
	if err != nil {
		return "", err
	}
	files := []string{filepath.Join(m.dir, "go.mod")}
	for _, folder := range own {
		sources, _ := filepath.Glob(filepath.Join(m.dir, folder, "*.go")) // the pattern is well-formed
		files = append(files, sources...)
	}
	slices.Sort(files)
	sum := sha256.New()
	fmt.Fprintln(sum, compiler, m.ldflags())
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, filepath.Base(file), len(content))
		sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	output, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return string(output), nil
}
