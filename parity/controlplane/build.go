package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	parityModule     = "github.com/heraldnode/herald/parity"
	kubernetesModule = "k8s.io/kubernetes"
	etcdModule       = "go.etcd.io/etcd/server/v3"
)

// Binaries are the paths of the programs that a control plane consists of.
type Binaries struct {
	Etcd       string
	APIServer  string
	Supervisor string
}

// Build makes the programs from their Go modules, at the versions in parity's go.mod, and keeps them in the user's cache
// folder. The first time takes about 6 minutes on two cores and says so on progress, with a line every 10 s; when nothing
// has changed since, it takes a moment and says nothing. Processes that build at the same time take turns.
//
// It has to be called from a folder inside the parity module, as tests are.
func Build(ctx context.Context, progress io.Writer) (Binaries, error) {
	binaries, err := build(ctx, progress)
	if err != nil {
		return Binaries{}, fmt.Errorf("build the control plane: %w", err)
	}
	return binaries, nil
}

func build(ctx context.Context, progress io.Writer) (Binaries, error) {
	module, err := findModule(ctx)
	if err != nil {
		return Binaries{}, err
	}
	dir, unlock, err := module.cache(ctx, progress)
	if err != nil {
		return Binaries{}, err
	}
	defer unlock()
	binaries := Binaries{
		Etcd:       filepath.Join(dir, "etcd"),
		APIServer:  filepath.Join(dir, "kube-apiserver"),
		Supervisor: filepath.Join(dir, "supervisor"),
	}
	return binaries, module.bring(ctx, binaries, progress)
}

// cache returns the folder of this version's programs, which is this process's alone until it calls unlock.
func (m module) cache(ctx context.Context, progress io.Writer) (dir string, unlock func(), err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", nil, fmt.Errorf("find the user's cache folder: %w", err)
	}
	dir = filepath.Join(cache, "herald", "kubernetes-"+m.kubernetes)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	unlock, err = lock(ctx, filepath.Join(dir, "lock"), progress)
	return dir, unlock, err
}

// bring builds the programs, unless those that are there were built from the same source.
func (m module) bring(ctx context.Context, binaries Binaries, progress io.Writer) error {
	dir := filepath.Dir(binaries.Supervisor)
	stamp := filepath.Join(dir, "stamp")
	source, err := m.fingerprint(ctx)
	if err != nil {
		return err
	}
	if built, err := os.ReadFile(stamp); err == nil && string(built) == source && binaries.exist() {
		return nil
	}
	// Compiled beside the old ones and renamed: a control plane that runs an old program goes on. The stamp goes first, so
	// that it never vouches for a mixture.
	fresh := filepath.Join(dir, "new")
	defer os.RemoveAll(fresh)
	if err := errors.Join(os.RemoveAll(fresh), os.Mkdir(fresh, 0o700)); err != nil {
		return err
	}
	if err := m.compile(ctx, fresh, progress); err != nil {
		return err
	}
	if err := os.RemoveAll(stamp); err != nil {
		return err
	}
	for _, path := range []string{binaries.Etcd, binaries.APIServer, binaries.Supervisor} {
		if err := os.Rename(filepath.Join(fresh, filepath.Base(path)), path); err != nil {
			return err
		}
	}
	return os.WriteFile(stamp, []byte(source), 0o600)
}

func (b Binaries) exist() bool {
	for _, path := range []string{b.Etcd, b.APIServer, b.Supervisor} {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return false
		}
	}
	return true
}

// ldflags make Kubernetes' programs tell their version, as their release builds do, and leave out what only a debugger reads.
func (m module) ldflags() string {
	const version = "k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(m.kubernetes, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return strings.Join([]string{
		"-s", "-w",
		"-X", version + "gitVersion=" + m.kubernetes,
		"-X", version + "gitMajor=" + major,
		"-X", version + "gitMinor=" + minor,
		"-X", version + "gitTreeState=clean",
	}, " ")
}
