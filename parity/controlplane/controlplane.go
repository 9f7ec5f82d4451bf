package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Config says what to start.
type Config struct {
	// Binaries are what Build returned. Required.
	Binaries Binaries
	// Dir is the folder for data, certificates, kubeconfigs and logs. It must be empty or not exist, and it is removed in the
	// end. Default: a new temporary folder.
	Dir string
	// APIServerArgs are put after the API server's own flags, so that they win. Default: none.
	APIServerArgs []string
	// AuditPolicy is the content of a policy file: the API server writes what it selects to AuditLog. Default: nothing.
	AuditPolicy []byte
}

// ControlPlane is a running etcd and kube-apiserver.
//
// All methods may be called by any goroutine until Stop is called.
type ControlPlane struct {
	Etcd      *Server
	APIServer *Server

	dir     string
	url     string
	users   *authority // of the API server and all its clients
	etcdURL string
	etcdTLS *tls.Config
	leash   *leash
	stop    func() error

	mu      sync.Mutex // guards proxies
	proxies []*Proxy
}

// Start starts a control plane and returns when /readyz is ok, after about 4 s. If it is not ready within a minute for each
// server, the error has what the server answers and the end of its log. Whether or not the caller gets to call Stop, the
// servers end and the folder is removed when this process ends.
func Start(ctx context.Context, config Config) (*ControlPlane, error) {
	if config.Binaries == (Binaries{}) {
		return nil, errors.New("start a control plane: Config.Binaries is empty: call Build")
	}
	dir, err := prepare(config.Dir)
	if err != nil {
		return nil, fmt.Errorf("start a control plane: %w", err)
	}
	leash, err := tether(ctx, config.Binaries.Supervisor, dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a control plane: %w", err), os.RemoveAll(dir))
	}
	cp := &ControlPlane{dir: dir, users: newAuthority("herald-test-ca"), leash: leash}
	cp.stop = sync.OnceValue(cp.stopOnce)
	if err := cp.start(ctx, config); err != nil {
		return nil, errors.Join(fmt.Errorf("start a control plane: %w", err), cp.Stop())
	}
	return cp, nil
}

// prepare makes the folder, and refuses one with content: everything in it is going to be removed.
func prepare(dir string) (string, error) {
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
		return "", fmt.Errorf("the folder %s is not empty, and would be removed in the end: name another or empty it", dir)
	}
	return dir, nil
}

func (cp *ControlPlane) start(ctx context.Context, config Config) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	cp.etcdURL, cp.url = "https://"+loopback(ports[0]).String(), "https://"+loopback(ports[2]).String()
	files := pki{dir: cp.path("pki")}
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
	return cp.APIServer.Start(ctx)
}

// Stop ends both servers and the proxies and removes the folder. It may be called more than once.
func (cp *ControlPlane) Stop() error { return cp.stop() }

func (cp *ControlPlane) stopOnce() error {
	cp.mu.Lock()
	proxies := cp.proxies
	cp.mu.Unlock()
	var errs []error
	for _, proxy := range proxies {
		errs = append(errs, proxy.Close())
	}
	errs = append(errs, cp.leash.release())
	for _, server := range []*Server{cp.APIServer, cp.Etcd} {
		if server != nil {
			server.end()
		}
	}
	return errors.Join(errs...)
}

// URL is the API server's address.
func (cp *ControlPlane) URL() string { return cp.url }

// Dir is the folder with everything that the control plane writes, the logs among it.
func (cp *ControlPlane) Dir() string { return cp.dir }

// AuditLog is the file that Config.AuditPolicy asks for. It comes to be with the first line.
func (cp *ControlPlane) AuditLog() string { return cp.path("audit.log") }

func (cp *ControlPlane) path(name string) string { return filepath.Join(cp.dir, name) }
