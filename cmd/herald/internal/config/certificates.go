package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/heraldnode/herald/certificate"
	"github.com/heraldnode/herald/nodeagent"
)

func (c *Config) certificateConfig() nodeagent.CertificateConfig {
	return nodeagent.CertificateConfig{
		Dir: c.CertDir, Rotate: c.RotateCertificates, ServerTLSBootstrap: c.ServerTLSBootstrap,
		Bootstrap: c.BootstrapKubeconfig, Kubeconfig: c.Kubeconfig,
	}
}

// restConfig returns the client configuration for the API server, or nil without a kubeconfig.
func (c *Config) restConfig(now time.Time) (*rest.Config, error) {
	if c.Kubeconfig == "" {
		return nil, nil //nolint:nilnil // a node without a cluster is not an error
	}
	api, err := c.loadKubeconfig()
	if c.BootstrapKubeconfig == "" {
		return api, err
	}
	problem := err
	if err == nil {
		problem = certificate.Check(api, now)
	}
	if problem == nil {
		return api, nil // the bootstrap kubeconfig is not needed (CRT-2)
	}
	bootstrap, bootstrapErr := c.readKubeconfig(c.BootstrapKubeconfig, certificate.LoadKubeconfig)
	switch {
	case bootstrapErr == nil:
		return c.limited(rest.AnonymousClientConfig(bootstrap)), nil
	case err == nil:
		return api, nil // the agent starts without a certificate, and says so (CRT-10)
	case errors.Is(err, fs.ErrNotExist):
		return nil, bootstrapErr
	default:
		return nil, errors.Join(err, bootstrapErr)
	}
}

// loadKubeconfig reads the kubeconfig. If certificates are requested, the one that it names may not exist yet.
func (c *Config) loadKubeconfig() (*rest.Config, error) {
	if c.BootstrapKubeconfig != "" || c.RotateCertificates {
		return c.readKubeconfig(c.Kubeconfig, certificate.LoadKubeconfig)
	}
	return c.readKubeconfig(c.Kubeconfig, func(path string) (*rest.Config, error) {
		api, err := clientcmd.BuildConfigFromFlags("", path)
		if clientcmd.IsEmptyConfig(err) {
			return nil, errors.New("it defines no cluster")
		}
		return api, err
	})
}

// readKubeconfig reads a kubeconfig and checks what it refers to.
func (c *Config) readKubeconfig(path string, load func(string) (*rest.Config, error)) (*rest.Config, error) {
	api, err := load(path)
	if err == nil {
		err = errors.Join(checkAPIFiles(api, path), c.checkAPIServer(api))
	}
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	return c.limited(api), nil
}

// limited sets the limits of requests.
func (c *Config) limited(api *rest.Config) *rest.Config {
	api.QPS, api.Burst = float32(c.KubeAPIQPS), c.KubeAPIBurst
	return api
}

// validateKubeconfigs checks the files of credentials. A kubeconfig may be missing if there is a bootstrap kubeconfig, and that may be
// missing if there is a kubeconfig: kubeadm removes it.
func (c *Config) validateKubeconfigs(v *validator) {
	v.rejectIf(c.BootstrapKubeconfig != "" && c.Kubeconfig == "", "bootstrapKubeconfig",
		"must not be set without kubeconfig, which is written")
	missing := validateKubeconfig(v, "kubeconfig", c.Kubeconfig, c.BootstrapKubeconfig != "")
	if c.BootstrapKubeconfig != "" {
		validateKubeconfig(v, "bootstrapKubeconfig", c.BootstrapKubeconfig, !missing)
	}
}

// validateKubeconfig reports whether the file is missing, which is a problem unless mayBeMissing.
func validateKubeconfig(v *validator, path, file string, mayBeMissing bool) (missing bool) {
	if file == "" {
		return false
	}
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) && mayBeMissing {
		return true
	}
	v.rejectIf(err != nil, path, "%v", err)
	if err != nil {
		return true
	}
	v.rejectIf(!info.Mode().IsRegular(), path, "%s is not a regular file", file)
	if info.Mode().IsRegular() {
		err = permissions.CheckFile(file)
		v.rejectIf(err != nil, path, "%v", err)
	}
	return false
}
