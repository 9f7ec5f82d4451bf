package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/parity/internal/program"
)

const (
	parityModule     = "github.com/heraldnode/herald/parity"
	kubernetesModule = "k8s.io/kubernetes"
	etcdModule       = "go.etcd.io/etcd/server/v3"
)

// ownPackages are the main packages of this module, relative to its directory.
var ownPackages = []string{"cmd/etcd", "controlplane/supervisor"}

// Binaries are the paths of the programs of a control plane.
type Binaries struct {
	Etcd       string
	APIServer  string
	Supervisor string
}

// Build builds the programs from their Go modules, at the versions in parity's go.mod, into the user's cache directory. The first
// build takes about 6 minutes on two cores and writes a line to progress every 10 s. If nothing has changed, Build returns
// immediately and writes nothing. Concurrent builds of several processes are serialized.
//
// The working directory must be inside the parity module, as it is in tests.
func Build(ctx context.Context, progress io.Writer) (Binaries, error) {
	binaries, err := build(ctx, progress)
	if err != nil {
		return Binaries{}, fmt.Errorf("build control plane: %w", err)
	}
	return binaries, nil
}

func build(ctx context.Context, progress io.Writer) (Binaries, error) {
	module, err := findModule(ctx)
	if err != nil {
		return Binaries{}, err
	}
	dir, unlock, err := module.lockCacheDir(ctx, progress)
	if err != nil {
		return Binaries{}, err
	}
	defer unlock()
	binaries := Binaries{
		Etcd:       filepath.Join(dir, "etcd"),
		APIServer:  filepath.Join(dir, "kube-apiserver"),
		Supervisor: filepath.Join(dir, "supervisor"),
	}
	return binaries, module.buildIfChanged(ctx, binaries, progress)
}

// BuildKubelet builds the kubelet of the API server's version, like Build, and returns its path. After Build, the first build
// takes about two more minutes.
func BuildKubelet(ctx context.Context, progress io.Writer) (string, error) {
	return buildProgram(ctx, "kubelet", progress)
}

// BuildControllerManager builds the kube-controller-manager of the API server's version, like BuildKubelet. After Build, the
// first build takes about two more minutes.
func BuildControllerManager(ctx context.Context, progress io.Writer) (string, error) {
	return buildProgram(ctx, "kube-controller-manager", progress)
}

// BuildScheduler builds the kube-scheduler of the API server's version, like BuildKubelet. After Build, the first build takes about
// one more minute.
func BuildScheduler(ctx context.Context, progress io.Writer) (string, error) {
	return buildProgram(ctx, "kube-scheduler", progress)
}

// buildProgram builds another program of Kubernetes. It needs no stamp: the go command takes one second if the program is up
// to date.
func buildProgram(ctx context.Context, name string, progress io.Writer) (path string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("build %s: %w", name, err)
		}
	}()
	module, err := findModule(ctx)
	if err != nil {
		return "", err
	}
	dir, unlock, err := module.lockCacheDir(ctx, progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	start := time.Now()
	path = filepath.Join(dir, name)
	compiled, err := module.goBuild(ctx, path, []string{kubernetesModule + "/cmd/" + name}, progress)
	if err == nil && compiled > 0 {
		fmt.Fprintf(progress, "built %s %s in %v\n", name, module.kubernetes, time.Since(start).Round(time.Second))
	}
	return path, err
}

// module is the directory of the parity module and the versions of the servers in its go.mod.
type module struct {
	dir        string
	kubernetes string
	etcd       string
}

func findModule(ctx context.Context) (module, error) {
	output, err := program.Go(ctx, "", "list", "-m", "-f", "{{.Dir}}\t{{.Version}}", parityModule, kubernetesModule, etcdModule)
	if err != nil {
		return module{}, fmt.Errorf("find module %s (the working directory must be inside it): %w", parityModule, err)
	}
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if len(lines) != 3 {
		return module{}, fmt.Errorf("go list -m: got %q, want three modules", output)
	}
	var m module
	m.dir, _, _ = strings.Cut(lines[0], "\t")
	_, m.kubernetes, _ = strings.Cut(lines[1], "\t")
	_, m.etcd, _ = strings.Cut(lines[2], "\t")
	return m, nil
}

// lockCacheDir returns the directory of this version's programs. Other processes cannot use it until unlock is called.
func (m module) lockCacheDir(ctx context.Context, progress io.Writer) (dir string, unlock func(), err error) {
	return program.LockCacheDir(ctx, "kubernetes-"+m.kubernetes, progress)
}

// buildIfChanged builds the programs unless the existing ones were built from the same source.
func (m module) buildIfChanged(ctx context.Context, binaries Binaries, progress io.Writer) error {
	dir := filepath.Dir(binaries.Supervisor)
	stamp := filepath.Join(dir, "stamp")
	fingerprint, err := m.fingerprint(ctx)
	if err != nil {
		return err
	}
	if built, err := os.ReadFile(stamp); err == nil && string(built) == fingerprint && binaries.exist() {
		return nil
	}
	// The programs are built in a new directory and renamed, so that running ones are not disturbed. The stamp is removed
	// first: it never covers a mixture of old and new programs.
	newDir := filepath.Join(dir, "new")
	defer os.RemoveAll(newDir)
	if err := errors.Join(os.RemoveAll(newDir), os.Mkdir(newDir, 0o700)); err != nil {
		return err
	}
	if err := m.buildAll(ctx, newDir, progress); err != nil {
		return err
	}
	if err := os.RemoveAll(stamp); err != nil {
		return err
	}
	for _, path := range binaries.paths() {
		if err := os.Rename(filepath.Join(newDir, filepath.Base(path)), path); err != nil {
			return err
		}
	}
	return os.WriteFile(stamp, []byte(fingerprint), 0o600)
}

func (b Binaries) paths() []string { return []string{b.Etcd, b.APIServer, b.Supervisor} }

func (b Binaries) exist() bool {
	for _, path := range b.paths() {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return false
		}
	}
	return true
}

// fingerprint returns a hash of everything that determines the programs: the versions in go.mod, the source of our own packages,
// the flags and the compiler.
func (m module) fingerprint(ctx context.Context) (string, error) {
	compiler, err := program.Go(ctx, m.dir, "env", "GOVERSION", "GOOS", "GOARCH", "GOFLAGS", "CGO_ENABLED")
	if err != nil {
		return "", err
	}
	files := []string{filepath.Join(m.dir, "go.mod")}
	for _, dir := range ownPackages {
		sources, _ := filepath.Glob(filepath.Join(m.dir, dir, "*.go")) // the pattern is valid
		files = append(files, sources...)
	}
	slices.Sort(files)
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n %s\n", compiler, m.ldflags())
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

// ldflags set the version of Kubernetes' programs, as their release builds do, and strip debug information.
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

// buildAll builds all programs into a directory, named after their packages.
func (m module) buildAll(ctx context.Context, dir string, progress io.Writer) error {
	packages := []string{kubernetesModule + "/cmd/kube-apiserver"}
	for _, own := range ownPackages {
		packages = append(packages, "./"+own)
	}
	fmt.Fprintf(progress, "building kube-apiserver %s and etcd %s from their Go modules: "+
		"about 6 minutes on two cores the first time, seconds later on\n", m.kubernetes, m.etcd)
	start := time.Now()
	compiled, err := m.goBuild(ctx, dir, packages, progress)
	if err == nil {
		fmt.Fprintf(progress, "built in %v, %d packages compiled\n", time.Since(start).Round(time.Second), compiled)
	}
	return err
}

// goBuild builds packages of this module or of its dependencies, and returns the number of packages that were compiled.
func (m module) goBuild(ctx context.Context, output string, packages []string, progress io.Writer) (int, error) {
	config := program.GoBuildConfig{Dir: m.dir, Output: output, LDFlags: m.ldflags(), Packages: packages}
	return program.GoBuild(ctx, config, progress)
}
