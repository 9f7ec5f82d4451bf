package controlplane

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	parityModule     = "github.com/heraldnode/herald/parity"
	kubernetesModule = "k8s.io/kubernetes"
	etcdModule       = "go.etcd.io/etcd/server/v3"

	// progressInterval is the time between two lines of progress.
	progressInterval = 10 * time.Second
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
	kubelet, err := buildKubelet(ctx, progress)
	if err != nil {
		return "", fmt.Errorf("build kubelet: %w", err)
	}
	return kubelet, nil
}

// buildKubelet needs no stamp: the go command takes one second if the program is up to date.
func buildKubelet(ctx context.Context, progress io.Writer) (string, error) {
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
	kubelet := filepath.Join(dir, "kubelet")
	compiled, err := module.goBuild(ctx, kubelet, []string{kubernetesModule + "/cmd/kubelet"}, progress)
	if err == nil && compiled > 0 {
		fmt.Fprintf(progress, "built kubelet %s in %v\n", module.kubernetes, time.Since(start).Round(time.Second))
	}
	return kubelet, err
}

// module is the directory of the parity module and the versions of the servers in its go.mod.
type module struct {
	dir        string
	kubernetes string
	etcd       string
}

func findModule(ctx context.Context) (module, error) {
	output, err := goCommand(ctx, "", "list", "-m", "-f", "{{.Dir}}\t{{.Version}}", parityModule, kubernetesModule, etcdModule)
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
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", nil, fmt.Errorf("find user cache directory: %w", err)
	}
	dir = filepath.Join(cache, "herald", "kubernetes-"+m.kubernetes)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	unlock, err = lock(ctx, filepath.Join(dir, "lock"), progress)
	return dir, unlock, err
}

// lock waits for an exclusive lock on the file. The kernel releases the lock when the process ends.
func lock(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !waiting {
			fmt.Fprintf(progress, "waiting for another process that builds the control plane (lock: %s)\n", path)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
		}
	}
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
	compiler, err := goCommand(ctx, m.dir, "env", "GOVERSION", "GOOS", "GOARCH", "GOFLAGS", "CGO_ENABLED")
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

// goBuild builds packages, reports progress, and returns the number of packages that were compiled.
func (m module) goBuild(ctx context.Context, output string, packages []string, progress io.Writer) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := append([]string{"build", "-v", "-o", output, "-ldflags", m.ldflags()}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = m.dir
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("go build: %w", err)
	}
	start := time.Now()
	compiled, messages := followBuild(stderr, func(packages int) {
		fmt.Fprintf(progress, "still building: %v, %d packages compiled\n", time.Since(start).Round(time.Second), packages)
	})
	if err := cmd.Wait(); err != nil {
		return compiled, fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), m.dir, err, strings.Join(messages, "\n"))
	}
	return compiled, nil
}

// followBuild reads the output of `go build -v` until its end: one line without spaces per compiled package, and messages. It
// reports the number of packages at every interval.
func followBuild(output io.Reader, report func(packages int)) (packages int, messages []string) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case line, open := <-lines:
			switch {
			case !open:
				return packages, messages
			case strings.Contains(line, " "):
				messages = append(messages, line)
			default:
				packages++
			}
		case <-ticker.C:
			report(packages)
		}
	}
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
