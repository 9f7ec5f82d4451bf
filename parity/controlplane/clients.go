package controlplane

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func (cp *ControlPlane) adminPair() keyPair {
	return cp.ca.issueClient("herald-test-admin", "system:masters")
}

func (cp *ControlPlane) nodePair(nodeName string) keyPair {
	return cp.ca.issueClient("system:node:"+nodeName, "system:nodes")
}

// AdminConfig returns a client configuration with all permissions and without rate limit.
func (cp *ControlPlane) AdminConfig() *rest.Config { return cp.config(cp.url, cp.adminPair()) }

// NodeConfig returns a client configuration with the permissions of this node's kubelet and without rate limit.
func (cp *ControlPlane) NodeConfig(nodeName string) *rest.Config {
	return cp.config(cp.url, cp.nodePair(nodeName))
}

// AdminKubeconfig returns the path of a kubeconfig with all permissions.
func (cp *ControlPlane) AdminKubeconfig() string { return cp.path("admin.kubeconfig") }

// NodeKubeconfig writes a kubeconfig with the identity of this node's kubelet and returns its path.
func (cp *ControlPlane) NodeKubeconfig(nodeName string) (string, error) {
	path := cp.path("node-" + nodeName + ".kubeconfig")
	return path, writeKubeconfig(path, cp.NodeConfig(nodeName))
}

// CreateNode creates the Node as administrator, or returns the existing one. Mirror pods need its UID.
func (cp *ControlPlane) CreateNode(ctx context.Context, nodeName string) (*v1.Node, error) {
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		return nil, fmt.Errorf("create node %s: %w", nodeName, err)
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{v1.LabelHostname: nodeName}}}
	created, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		created, err = client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("create node %s: %w", nodeName, err)
	}
	return created, nil
}

func (cp *ControlPlane) config(url string, pair keyPair) *rest.Config {
	return &rest.Config{
		Host:            url,
		TLSClientConfig: rest.TLSClientConfig{CAData: cp.ca.pem, CertData: pair.cert, KeyData: pair.key},
		QPS:             -1,
	}
}

// writeKubeconfig writes a self-contained kubeconfig that only its owner may read.
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
