package certificate

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/heraldnode/herald/certificate/rotation"
)

// Names in the kubeconfig that replaces a bootstrap kubeconfig, as the kubelet writes them.
const (
	clusterName = "default-cluster"
	userName    = "default-auth"
	contextName = "default-context"
)

// LoadKubeconfig returns the client configuration of a kubeconfig. It may name a certificate that does not exist yet: that is left out.
func LoadKubeconfig(path string) (*rest.Config, error) {
	raw, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	if err := clientcmd.ResolveLocalPaths(raw); err != nil {
		return nil, err
	}
	for _, user := range raw.AuthInfos {
		if _, err := readFile(user.ClientCertificate); user.ClientCertificate != "" && isNotExist(err) {
			user.ClientCertificate, user.ClientKey = "", ""
		}
	}
	config, err := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("it defines no cluster")
	}
	return config, err
}

// Check returns why the credentials of a client configuration cannot be used at that time, or nil: there are none, or the certificate
// has expired or cannot be read (CRT-2).
func Check(config *rest.Config, now time.Time) error {
	pair, err := Given(config)
	switch {
	case err != nil:
		return err
	case pair != nil && !rotation.IsValid(pair.Leaf, now):
		return fmt.Errorf("its client certificate expired at %s", formatTime(pair.Leaf.NotAfter))
	case pair != nil, config.BearerToken != "", config.BearerTokenFile != "", config.Username != "", config.ExecProvider != nil,
		config.AuthProvider != nil:
		return nil
	default:
		return errors.New("it has no credentials")
	}
}

// WriteKubeconfig writes a kubeconfig with the cluster of the bootstrap kubeconfig whose user is the certificate in the PEM file, unless
// it is that already (CRT-2). The file need not exist yet.
func WriteKubeconfig(path, bootstrap, certificate string) error {
	raw, err := clientcmd.LoadFromFile(bootstrap)
	if err != nil {
		return err
	}
	if err := clientcmd.ResolveLocalPaths(raw); err != nil {
		return err
	}
	context := raw.Contexts[raw.CurrentContext]
	if context == nil || raw.Clusters[context.Cluster] == nil {
		return fmt.Errorf("bootstrap kubeconfig %s has no current context with a cluster", bootstrap)
	}
	cluster := raw.Clusters[context.Cluster].DeepCopy()
	cluster.LocationOfOrigin, cluster.Extensions = "", nil
	written := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{clusterName: cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{userName: {ClientCertificate: certificate, ClientKey: certificate}},
		Contexts:       map[string]*clientcmdapi.Context{contextName: {Cluster: clusterName, AuthInfo: userName, Namespace: "default"}},
		CurrentContext: contextName,
	}
	content, err := clientcmd.Write(written)
	if err != nil {
		return err
	}
	if existing, err := readFile(path); err == nil && string(existing) == string(content) {
		return nil
	}
	if err := replaceFile(path, content); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", filepath.Base(path), err)
	}
	return nil
}
