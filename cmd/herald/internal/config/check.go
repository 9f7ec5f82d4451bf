package config

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/heraldnode/herald/certificate"
)

// CheckResult is what Check found.
type CheckResult struct {
	// Problems are what will not work, each with file, field and remedy.
	Problems []error
	// Notes are what an operator may want to know.
	Notes []string
}

// Check loads the configuration as Load does, and checks what Load leaves to the running agent: the certificates, and whether the
// ports are free. It changes nothing. The error is that of Load.
func Check(ctx context.Context, file, dir string, flags *Flags, now time.Time) (CheckResult, error) {
	c, origins, err := load(file, dir, flags)
	if err != nil {
		return CheckResult{}, err
	}
	k := &checker{config: &c, validator: &validator{origins: origins}, now: now}
	k.checkClient()
	k.checkServing()
	k.checkPorts(ctx)
	for _, p := range k.problems {
		k.result.Problems = append(k.result.Problems, p)
	}
	return k.result, nil
}

// IsConfiguration reports whether the text is meant to be a configuration file.
func IsConfiguration(text string) bool {
	var document struct {
		Kind string `yaml:"kind"`
	}
	return yaml.Unmarshal([]byte(text), &document) == nil && document.Kind == Kind
}

// checker checks a valid configuration on this machine.
type checker struct {
	*validator
	config *Config
	now    time.Time
	result CheckResult
}

func (k *checker) notef(format string, args ...any) {
	k.result.Notes = append(k.result.Notes, fmt.Sprintf(format, args...))
}

// checkClient checks how the node authenticates to the API server, and the API server to the node.
func (k *checker) checkClient() {
	c := k.config
	if c.Kubeconfig == "" {
		return
	}
	api, err := c.loadKubeconfig()
	if err == nil {
		k.checkAPIAuthorities(api)
		err = k.checkCredentials(api)
	}
	if err == nil {
		return
	}
	if c.BootstrapKubeconfig == "" {
		k.rejectIf(true, "kubeconfig", "%v", err)
		return
	}
	bootstrap, bootstrapErr := c.readKubeconfig(c.BootstrapKubeconfig, certificate.LoadKubeconfig)
	if bootstrapErr == nil {
		if bootstrapErr = certificate.Check(bootstrap, k.now); bootstrapErr == nil {
			k.notef("kubeconfig: %v: the node will ask for a certificate with %s", err, c.BootstrapKubeconfig)
			return
		}
		bootstrapErr = fmt.Errorf("%s: %w", c.BootstrapKubeconfig, bootstrapErr)
	}
	k.rejectIf(!errors.Is(err, fs.ErrNotExist), "kubeconfig", "%v", err)
	k.rejectIf(true, "bootstrapKubeconfig", "%v; write a kubeconfig with a new bootstrap token to it (kubeadm token create)", bootstrapErr)
}

// checkCredentials returns why the API server will not accept the node, with a remedy.
func (k *checker) checkCredentials(api *rest.Config) error {
	c := k.config
	if c.RotateCertificates || c.BootstrapKubeconfig != "" {
		current := certificate.NewStore(c.certificateDir(), certificate.Client().Prefix).CurrentPath()
		rotated := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: current, KeyFile: current}}
		if pair, err := certificate.Given(rotated); err == nil && k.now.Before(pair.Leaf.NotAfter) {
			k.noteExpiry("client certificate", current, pair.Leaf)
			return nil
		}
	}
	name := "client certificate in " + c.Kubeconfig
	if api.CertFile != "" {
		name = "client certificate " + api.CertFile
	}
	pair, err := certificate.Given(api)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w; %s", name, err, pairRemedy(err, cmp.Or(api.KeyFile, "the key")))
	case pair != nil && !k.now.Before(pair.Leaf.NotAfter):
		return fmt.Errorf("%s expired at %s; replace it, or set bootstrapKubeconfig to a kubeconfig with a bootstrap token",
			name, formatTime(pair.Leaf.NotAfter))
	case pair != nil:
		k.noteExpiry("client certificate", cmp.Or(api.CertFile, "in "+c.Kubeconfig), pair.Leaf)
		return nil
	}
	if err := certificate.Check(api, k.now); err != nil {
		return fmt.Errorf("%s: %w; add a client certificate or a token, or set bootstrapKubeconfig", c.Kubeconfig, err)
	}
	return nil
}

// pairRemedy says what to do about a certificate and key that cannot be used.
func pairRemedy(err error, key string) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "correct the path, or write the file"
	case errors.Is(err, fs.ErrPermission):
		return "make it readable for the agent's user"
	default:
		return fmt.Sprintf("it must be a PEM certificate, and %s the PEM key that belongs to it", key)
	}
}

func (k *checker) noteExpiry(what, file string, leaf *x509.Certificate) {
	k.notef("%s %s is valid until %s", what, file, formatTime(leaf.NotAfter))
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// certificateDir returns the directory of certificates.
func (c *Config) certificateDir() string {
	return cmp.Or(c.CertDir, filepath.Join(cmp.Or(c.RootDir, c.DataDir), "pki"))
}

// checkAPIAuthorities checks the authorities of the API server. Without any, those of the machine are used.
func (k *checker) checkAPIAuthorities(api *rest.Config) {
	content, name := api.CAData, "certificate-authority-data of "+k.config.Kubeconfig
	if len(content) == 0 && api.CAFile != "" {
		name = "certificate-authority " + api.CAFile
		var err error
		if content, err = os.ReadFile(api.CAFile); err != nil {
			k.rejectIf(true, "kubeconfig", "%s: %v; %s", name, err, pairRemedy(err, ""))
			return
		}
	}
	if len(content) > 0 {
		k.checkAuthorities("kubeconfig", name, content)
	}
}

// checkAuthorities checks that there is an authority, and one that has not expired.
func (k *checker) checkAuthorities(field, name string, content []byte) {
	authorities, err := certutil.ParseCertsPEM(content)
	if err != nil {
		k.rejectIf(true, field, "%s has no certificates (%v); it must have the PEM certificates of authorities, like kubeadm's "+
			"/etc/kubernetes/pki/ca.crt", name, err)
		return
	}
	var last time.Time
	for _, authority := range authorities {
		if authority.NotAfter.After(last) {
			last = authority.NotAfter
		}
	}
	k.rejectIf(!k.now.Before(last), field, "%s: all certificates have expired, the last one at %s; replace them by those of the "+
		"cluster's authority", name, formatTime(last))
}

// checkServing checks the files of the HTTPS server.
func (k *checker) checkServing() {
	c := k.config
	if c.Port == 0 {
		return
	}
	if file := c.Authentication.X509.ClientCAFile; file != "" {
		const field = "authentication.x509.clientCAFile"
		content, err := os.ReadFile(file)
		if k.rejectIf(err != nil, field, "%v; %s", err, pairRemedy(err, "")); err == nil {
			k.checkAuthorities(field, file, content)
		}
	}
	if c.TLSCertFile == "" || c.ServerTLSBootstrap {
		return
	}
	files := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: c.TLSCertFile, KeyFile: c.TLSPrivateKeyFile}}
	switch pair, err := certificate.Given(files); {
	case err != nil:
		k.rejectIf(true, "tlsCertFile", "%s and %s: %v; %s", c.TLSCertFile, c.TLSPrivateKeyFile, err,
			pairRemedy(err, "tlsPrivateKeyFile"))
	case pair == nil:
		k.rejectIf(true, "tlsCertFile", "%s or %s is empty; %s", c.TLSCertFile, c.TLSPrivateKeyFile, pairRemedy(nil, "tlsPrivateKeyFile"))
	case !k.now.Before(pair.Leaf.NotAfter):
		k.rejectIf(true, "tlsCertFile", "%s expired at %s; replace it and its key, no restart is needed; without tlsCertFile the agent makes "+
			"a certificate of its own", c.TLSCertFile, formatTime(pair.Leaf.NotAfter))
	default:
		k.noteExpiry("serving certificate", c.TLSCertFile, pair.Leaf)
	}
}
