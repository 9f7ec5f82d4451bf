package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// Config configures a control plane.
type Config struct {
	// Binaries are the result of Build. Required.
	Binaries Binaries
	// Dir holds data, certificates, kubeconfigs and logs. It must be empty or not exist, and Stop removes it. Defaults to a new
	// temporary directory.
	Dir string
	// APIServerArgs are appended to the flags of the API server and override them.
	APIServerArgs []string
	// AuditPolicy is the content of an audit policy file. The API server logs the selected requests to AuditLog. Defaults to no
	// audit log.
	AuditPolicy []byte
	// ServiceAccounts enables the ServiceAccount admission plugin. Pods then need the controller serviceaccount, which creates the
	// accounts, and the controller root-ca-certificate-publisher, which creates the ConfigMap that tokens are mounted with.
	ServiceAccounts bool
}

// ControlPlane is a running etcd and kube-apiserver.
//
// All methods are safe for concurrent use until Stop is called.
type ControlPlane struct {
	Etcd      *Server
	APIServer *Server

	dir        string
	url        string
	ca         *authority // of the API server and all its clients
	etcdURL    string
	etcdTLS    *tls.Config
	supervisor *supervisor
	stop       func() error

	mu      sync.Mutex // guards proxies
	proxies []*Proxy
}

// Start starts a control plane and returns when /readyz is ok, after about 4 s. If a server is not ready within five minutes, the
// error contains its last response and the end of its log. The servers stop and the directory is removed when this process
// ends, even without a call to Stop.
func Start(ctx context.Context, config Config) (*ControlPlane, error) {
	if config.Binaries == (Binaries{}) {
		return nil, errors.New("controlplane.Config: Binaries is required; call Build")
	}
	dir, err := createDir(config.Dir)
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	supervisor, err := startSupervisor(ctx, config.Binaries.Supervisor, dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start control plane: %w", err), os.RemoveAll(dir))
	}
	cp := &ControlPlane{dir: dir, ca: newAuthority("herald-test-ca"), supervisor: supervisor}
	cp.stop = sync.OnceValue(cp.stopOnce)
	if err := cp.start(ctx, config); err != nil {
		return nil, errors.Join(fmt.Errorf("start control plane: %w", err), cp.Stop())
	}
	return cp, nil
}

// ForTest starts a control plane for one test and stops it when the test ends. If the test fails, it prints the end of the
// servers' logs. Packages with many tests share one control plane: call [Build] and [Start] in TestMain.
func ForTest(tb testing.TB) *ControlPlane {
	tb.Helper()
	binaries, err := Build(tb.Context(), os.Stderr)
	if err != nil {
		tb.Fatal(err)
	}
	cp, err := Start(tb.Context(), Config{Binaries: binaries})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("end of the etcd log:\n%s", cp.Etcd.LogTail())
			tb.Logf("end of the kube-apiserver log:\n%s", cp.APIServer.LogTail())
		}
		if err := cp.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return cp
}

// createDir creates the directory. It rejects a directory with content, because Stop removes everything in it.
func createDir(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "herald-controlplane-")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("directory %s is not empty and would be removed on Stop: use another one or empty it", dir)
	}
	return dir, nil
}

func (cp *ControlPlane) start(ctx context.Context, config Config) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	cp.etcdURL, cp.url = "https://"+loopback(ports[0]).String(), "https://"+loopback(ports[2]).String()
	files := pkiFiles{dir: cp.pkiPath("")}
	cp.Etcd = cp.newEtcd(config.Binaries.Etcd, &files, "https://"+loopback(ports[1]).String())
	cp.APIServer = cp.newAPIServer(config, &files, ports[2])
	if err := files.err; err != nil {
		return err
	}
	if err := writeKubeconfig(cp.AdminKubeconfig(), cp.AdminConfig()); err != nil {
		return err
	}
	if err := cp.Etcd.Start(ctx); err != nil {
		return err
	}
	if err := cp.APIServer.Start(ctx); err != nil {
		return err
	}
	return cp.bindKubeletClient(ctx)
}

// Stop stops both servers and the proxies and removes the directory. It may be called more than once.
func (cp *ControlPlane) Stop() error { return cp.stop() }

func (cp *ControlPlane) stopOnce() error {
	cp.mu.Lock()
	proxies := cp.proxies
	cp.mu.Unlock()
	var errs []error
	for _, proxy := range proxies {
		errs = append(errs, proxy.Close())
	}
	errs = append(errs, cp.supervisor.cleanUp())
	for _, server := range []*Server{cp.APIServer, cp.Etcd} {
		if server != nil {
			server.ensureStopped()
		}
	}
	return errors.Join(errs...)
}

// URL returns the address of the API server.
func (cp *ControlPlane) URL() string { return cp.url }

// Dir returns the directory with all files of the control plane, including the logs.
func (cp *ControlPlane) Dir() string { return cp.dir }

// AuditLog returns the path of the log that Config.AuditPolicy asks for. The first line creates the file.
func (cp *ControlPlane) AuditLog() string { return cp.path("audit.log") }

// CAFile returns the path of the certificate of the authority that the API server and its clients have their certificates from. Node
// agents read it to authenticate the API server.
func (cp *ControlPlane) CAFile() string { return cp.pkiPath(caFile) }

func (cp *ControlPlane) path(name string) string { return filepath.Join(cp.dir, name) }

func (cp *ControlPlane) pkiPath(name string) string { return filepath.Join(cp.path("pki"), name) }

// supervisor is the process that cleans up after this one; see the package comment.
type supervisor struct {
	args   []string
	pipe   io.Closer
	exited <-chan error
}

// environmentMark returns the environment variable that identifies the servers of the control plane in dir to the supervisor.
func environmentMark(dir string) string { return "HERALD_CONTROL_PLANE=" + dir }

// startSupervisor starts the supervisor in its own session, so that a terminal's Ctrl-C does not reach it. It inherits no files:
// `go test` would wait for it otherwise.
func startSupervisor(ctx context.Context, binary, dir string) (*supervisor, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binary, environmentMark(dir), dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("create pipe to supervisor: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	exited := make(chan error, 1)
	// The goroutine also keeps the pipe open for a caller that has no more use for the ControlPlane: the garbage collector would
	// close it, and the supervisor would kill the servers.
	go func() { exited <- cmd.Wait() }()
	return &supervisor{args: cmd.Args, pipe: pipe, exited: exited}, nil
}

// cleanUp makes the supervisor kill and remove everything, and waits for it.
func (s *supervisor) cleanUp() error {
	_ = s.pipe.Close()
	if err := <-s.exited; err != nil {
		return fmt.Errorf("clean up with %v: %w", s.args, err)
	}
	return nil
}

// Ports are below the kernel's range for outgoing connections (32768 and up), because a server that is down for a while must
// find its port free when it restarts.
const firstPort, lastPort = 20000, 32000

// freePorts returns n different free ports on loopback. It holds each port until all are found.
func freePorts(n int) ([]int, error) {
	var ports []int
	for attempts := 0; len(ports) < n; attempts++ {
		port := firstPort + rand.IntN(lastPort-firstPort)
		listener, err := net.ListenTCP("tcp4", loopback(port))
		if err != nil {
			if attempts > 200 {
				return nil, fmt.Errorf("find %d free ports between %d and %d on loopback: %w", n, firstPort, lastPort, err)
			}
			continue
		}
		defer listener.Close()
		ports = append(ports, port)
	}
	return ports, nil
}

func loopback(port int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }
