package controlplane

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func (cp *ControlPlane) admin() keyPair {
	return cp.users.forUser("herald-test-admin", "system:masters")
}

func (cp *ControlPlane) node(name string) keyPair {
	return cp.users.forUser("system:node:"+name, "system:nodes")
}

// AdminConfig is for a client that may do everything. It has no rate limit of its own.
func (cp *ControlPlane) AdminConfig() *rest.Config { return cp.config(cp.url, cp.admin()) }

// NodeConfig is for a client that may do what the kubelet of this node may do. It has no rate limit of its own.
func (cp *ControlPlane) NodeConfig(name string) *rest.Config { return cp.config(cp.url, cp.node(name)) }

// AdminKubeconfig is the path of a kubeconfig that may do everything.
func (cp *ControlPlane) AdminKubeconfig() string { return cp.path("admin.kubeconfig") }

// NodeKubeconfig writes a kubeconfig with the identity of this node's kubelet, and returns its path.
func (cp *ControlPlane) NodeKubeconfig(name string) (string, error) {
	path := cp.path("node-" + name + ".kubeconfig")
	return path, writeKubeconfig(path, cp.NodeConfig(name))
}

func (cp *ControlPlane) config(url string, user keyPair) *rest.Config {
	return &rest.Config{
		Host:            url,
		TLSClientConfig: rest.TLSClientConfig{CAData: cp.users.pem, CertData: user.cert, KeyData: user.key},
		QPS:             -1,
	}
}

// writeKubeconfig writes what the config says into a file that only its owner may read, with nothing in other files.
func writeKubeconfig(path string, config *rest.Config) error {
	const name = "herald-test"
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			name: {Server: config.Host, CertificateAuthorityData: config.CAData},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			name: {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData},
		},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, content, 0o600)
}
