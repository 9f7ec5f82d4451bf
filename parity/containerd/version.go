package containerd

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/heraldnode/herald/parity/internal/program"
)

// Version selects a containerd.
type Version string

const (
	// VersionInstalled is the containerd in PATH.
	VersionInstalled Version = "installed"

	// Version2 is containerd 2.x at the version in v2/go.mod. It is built from its Go module into the user's cache directory,
	// which takes about 4 minutes the first time. runc and the CNI plugins are the installed ones.
	Version2 Version = "2"
)

// VersionEnv is the environment variable with the default Version, so that every test can run on each of them.
const VersionEnv = "HERALD_TEST_CONTAINERD"

// DefaultVersion returns the Version in VersionEnv, or VersionInstalled.
func DefaultVersion() Version {
	if value := os.Getenv(VersionEnv); value != "" {
		return Version(value)
	}
	return VersionInstalled
}

var (
	//go:embed config.toml.tmpl
	installedConfig string
	//go:embed config-v3.toml.tmpl
	version2Config string
)

// release is the programs of one version, and its configuration.
type release struct {
	dir    string // of containerd, its shim and ctr; "" is PATH
	config string // a template
}

// prepare returns the release. It builds what is not installed, and reports progress if that takes long.
func (v Version) prepare(ctx context.Context, progress io.Writer) (release, error) {
	switch v {
	case VersionInstalled:
		return release{config: installedConfig}, nil
	case Version2:
		dir, err := Build(ctx, progress)
		return release{dir: dir, config: version2Config}, err
	}
	return release{}, fmt.Errorf("unknown version %q: use %q or %q in Config.Version or %s", v, VersionInstalled, Version2, VersionEnv)
}

// program returns the path of a program of the release.
func (r release) program(name string) (string, error) {
	if r.dir == "" {
		return exec.LookPath(name)
	}
	return filepath.Join(r.dir, name), nil
}

// env returns the environment of containerd: it looks for its shim in PATH first.
func (r release) env() []string {
	if r.dir == "" {
		return os.Environ()
	}
	return append(os.Environ(), "PATH="+r.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

const (
	parityModule     = "github.com/heraldnode/herald/parity"
	containerdModule = "github.com/containerd/containerd/v2"
)

// Build builds the programs of Version2, unless they are up to date, and returns their directory. The working directory must be
// inside the parity module.
func Build(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := build(ctx, progress)
	if err != nil {
		return "", fmt.Errorf("containerd: build version 2: %w", err)
	}
	return dir, nil
}

func build(ctx context.Context, progress io.Writer) (string, error) {
	parity, err := program.Go(ctx, "", "list", "-m", "-f", "{{.Dir}}", parityModule)
	if err != nil {
		return "", fmt.Errorf("find module %s (the working directory must be inside it): %w", parityModule, err)
	}
	module := filepath.Join(parity, "containerd", "v2")
	version, err := program.Go(ctx, module, "list", "-m", "-f", "{{.Version}}", containerdModule)
	if err != nil {
		return "", err
	}
	dir, unlock, err := program.LockCacheDir(ctx, "containerd-"+version, progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(filepath.Join(dir, "containerd")); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(progress, "building containerd %s from its Go module: "+
			"about 4 minutes on two cores the first time, seconds later on\n", version)
	}
	start := time.Now()
	compiled, err := program.GoBuild(ctx, program.GoBuildConfig{
		Dir: module, Output: dir, LDFlags: "-s -w -X " + containerdModule + "/version.Version=" + version,
		Env: []string{"CGO_ENABLED=0"}, // as in the releases of the shim
		Packages: []string{
			containerdModule + "/cmd/containerd", containerdModule + "/cmd/containerd-shim-runc-v2", containerdModule + "/cmd/ctr",
		},
	}, progress)
	if err == nil && compiled > 0 {
		fmt.Fprintf(progress, "built containerd %s in %v, %d packages compiled\n", version, time.Since(start).Round(time.Second), compiled)
	}
	return dir, err
}
