package nodeagent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/certificate"
	"github.com/heraldnode/herald/certificate/rotation"
	"github.com/heraldnode/herald/kubeapi"
)

// CertificateConfig configures the certificates of the node. By default, the credentials of Config.API are used as they are.
type CertificateConfig struct {
	// Dir is the directory of certificates, in the kubelet's layout. It is created with mode 0700. Defaults to pki in RootDir.
	Dir string
	// Rotate requests the next client certificate from the API server before the current one expires.
	Rotate bool
	// Bootstrap is the path of a kubeconfig with which the node asks for a client certificate when it has none that is valid. It is read
	// when it is needed. Kubeconfig is the path of the kubeconfig that is written then; it names the certificate.
	Bootstrap, Kubeconfig string
	// ServerTLSBootstrap requests the certificate of the node's server from the API server.
	ServerTLSBootstrap bool
}

// isManaged reports whether the client certificate is requested from the API server.
func (c CertificateConfig) isManaged() bool { return c.Rotate || c.Bootstrap != "" }

// certificates are the managers of the node's certificates, nil if the certificates are not requested from the API server.
type certificates struct {
	clientCert *certificate.Manager
	serverCert *certificate.Manager
	expires    func() time.Time // of the client certificate

	mu              sync.Mutex        // guards all below
	managed         []*kubeapi.Client // with the client certificate
	bootstrapClient *kubeapi.Client
	bootstrapConfig *rest.Config // of bootstrapClient
}

// newCertificates creates the managers. The client certificate that the configuration has is used until there is another one.
func (n *NodeAgent) newCertificates() error {
	n.clients.expires = newCertificate(n.config.API).expires
	if n.config.Certificates.isManaged() {
		if err := n.newClientCertificate(); err != nil {
			return err
		}
		n.clients.expires = n.clients.clientCert.Expires
	}
	if n.config.Metrics != nil {
		if err := n.config.Metrics.Register(certificate.NewTTL(n.clients.expires)); err != nil {
			return fmt.Errorf("nodeagent: register metrics: %w", err)
		}
	}
	if !n.config.Certificates.ServerTLSBootstrap {
		return nil
	}
	own, err := n.newClient(n.config.separateLimits())
	if err != nil {
		return err
	}
	n.clients.serverCert, err = certificate.NewManager(certificate.Config{
		Kind: certificate.Server(), Dir: n.config.Certificates.Dir, Renew: true, Logger: n.config.Logger, Metrics: n.config.Metrics,
		Template: func() (rotation.Template, bool) { return rotation.ForServing(n.config.NodeName, n.Node.Addresses()) },
		Connect:  func(bool) (certificate.API, error) { return own, nil },
		Remedy:   "the server uses a self-signed certificate until then",
	})
	return err
}

func (n *NodeAgent) newClientCertificate() (err error) {
	var own *kubeapi.Client
	config := certificate.Config{
		Kind: certificate.Client(), Dir: n.config.Certificates.Dir, Renew: n.config.Certificates.Rotate,
		Template: func() (rotation.Template, bool) { return rotation.ForClient(n.config.NodeName), true },
		Connect:  func(valid bool) (certificate.API, error) { return n.connectForCertificate(valid, own) },
		OnChange: n.useCertificate, Remedy: n.config.Certificates.remedy(), Logger: n.config.Logger, Metrics: n.config.Metrics,
	}
	current := certificate.NewStore(config.Dir, config.Kind.Prefix).CurrentPath()
	if n.config.API.CertFile != current {
		if config.Given, err = certificate.Given(n.config.API); err != nil {
			n.config.Logger.Warn("Failed to read the client certificate of the kubeconfig", "err", err)
		}
	}
	if n.clients.clientCert, err = certificate.NewManager(config); err != nil {
		return err
	}
	own, err = n.newClient(n.config.separateLimits())
	return err
}

// remedy says what an operator can do about an expired certificate (CRT-10).
func (c CertificateConfig) remedy() string {
	if c.Bootstrap == "" {
		return "replace it, or set bootstrapKubeconfig to a kubeconfig with a bootstrap token"
	}
	return fmt.Sprintf("write a kubeconfig with a new bootstrap token to %s (kubeadm token create); no restart is needed", c.Bootstrap)
}

// newClient returns a client that authenticates with the node's certificate, also with later ones.
func (n *NodeAgent) newClient(config *rest.Config) (*kubeapi.Client, error) {
	if n.clients.clientCert == nil {
		return kubeapi.New(config)
	}
	client, err := kubeapi.NewWithCertificate(config, n.clients.clientCert)
	if err == nil {
		n.clients.mu.Lock()
		defer n.clients.mu.Unlock()
		n.clients.managed = append(n.clients.managed, client)
	}
	return client, err
}

// useCertificate opens new connections, which use the new certificate. Before the first one there are none.
func (n *NodeAgent) useCertificate(before *tls.Certificate) {
	if before != nil {
		n.clients.mu.Lock()
		managed := n.clients.managed
		n.clients.mu.Unlock()
		for _, client := range managed {
			client.CloseConnections()
		}
	}
	n.Node.Refresh()
}

// connectForCertificate returns the client for signing requests: with the node's certificate if it is valid, or with the bootstrap
// credentials. An expired certificate is tried if there is nothing else: the clock may be wrong.
func (n *NodeAgent) connectForCertificate(valid bool, own *kubeapi.Client) (certificate.API, error) {
	if valid {
		return own, nil
	}
	config, err := n.bootstrapCredentials()
	if err != nil && n.clients.clientCert.Current() != nil {
		return own, nil // the manager's problem names the bootstrap kubeconfig
	}
	if err != nil {
		return nil, err
	}
	n.clients.mu.Lock()
	defer n.clients.mu.Unlock()
	if n.clients.bootstrapClient != nil && reflect.DeepEqual(n.clients.bootstrapConfig, config) {
		return n.clients.bootstrapClient, nil
	}
	client, err := kubeapi.New(config)
	if err != nil {
		return nil, err
	}
	if n.clients.bootstrapClient != nil {
		n.clients.bootstrapClient.CloseConnections()
	}
	n.clients.bootstrapClient, n.clients.bootstrapConfig = client, config
	return client, nil
}

// bootstrapCredentials returns the configuration with which a node without a certificate asks for one. It writes the kubeconfig that
// names the certificate to come (CRT-2).
func (n *NodeAgent) bootstrapCredentials() (*rest.Config, error) {
	config := n.config.Certificates
	if config.Bootstrap == "" {
		return n.config.separateLimits(), nil
	}
	bootstrap, err := certificate.LoadKubeconfig(config.Bootstrap)
	if err != nil {
		return nil, fmt.Errorf("read bootstrap kubeconfig: %w", err)
	}
	if config.Kubeconfig != "" {
		current := certificate.NewStore(config.Dir, certificate.Client().Prefix).CurrentPath()
		if err := certificate.WriteKubeconfig(config.Kubeconfig, config.Bootstrap, current); err != nil {
			return nil, err
		}
	}
	return bootstrap, nil
}

// CertificateProblem returns what keeps the node from having valid certificates, with a remedy, or nil.
func (n *NodeAgent) CertificateProblem() error {
	if n.config.API == nil {
		return nil
	}
	now := time.Now()
	var errs []error
	if n.clients.clientCert != nil {
		errs = append(errs, n.clients.clientCert.Problem(now))
	} else if end := n.clients.expires(); !end.IsZero() && !now.Before(end) {
		file := n.config.API.CertFile
		if file == "" {
			file = "in the kubeconfig"
		}
		errs = append(errs, fmt.Errorf("the client certificate %s expired at %s; replace it, or set rotateCertificates", file,
			end.UTC().Format(time.RFC3339)))
	}
	if n.clients.serverCert != nil {
		errs = append(errs, n.clients.serverCert.Problem(now))
	}
	return errors.Join(errs...)
}

// runCertificates keeps the certificates valid until ctx ends.
func (n *NodeAgent) runCertificates(ctx context.Context) {
	var running sync.WaitGroup
	for _, manager := range []*certificate.Manager{n.clients.clientCert, n.clients.serverCert} {
		if manager != nil {
			running.Go(func() { _ = manager.Run(ctx) })
		}
	}
	running.Wait()
}

// refreshCertificates looks at the node's addresses again.
func (n *NodeAgent) refreshCertificates() {
	if n.clients.serverCert != nil {
		n.clients.serverCert.Refresh()
	}
}

// newServingCertificate returns the certificate of the node's server: the first that applies of that of the API server, the files, and
// a self-signed one (SRV-3). Until the API server has signed one, the self-signed one is used (CRT-21).
func (n *NodeAgent) newServingCertificate() (certificate.Serving, error) {
	if n.clients.serverCert == nil && n.config.Server.CertFile != "" {
		return certificate.NewFiles(n.config.Server.CertFile, n.config.Server.KeyFile, n.config.Logger), nil
	}
	selfSigned, err := certificate.NewSelfSigned(certificate.SelfSignedConfig{
		Dir: n.config.Certificates.Dir, NodeName: n.config.NodeName, Logger: n.config.Logger,
		Names: func() ([]string, []netip.Addr) { return rotation.Names(n.Node.Addresses()) },
	})
	if err != nil || n.clients.serverCert == nil {
		return selfSigned, err
	}
	return certificate.FirstOf(n.clients.serverCert, selfSigned), nil
}

// certificateDir is the default of CertificateConfig.Dir.
func certificateDir(rootDir string) string { return filepath.Join(rootDir, "pki") }
