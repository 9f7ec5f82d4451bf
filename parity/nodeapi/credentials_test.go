package nodeapi_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/node"
)

// certFiles are the paths of a node's certificate and key.
type certFiles struct{ cert, key string }

func (f certFiles) write(t *testing.T, cert, key []byte) {
	t.Helper()
	replaceFile(t, f.key, key)
	replaceFile(t, f.cert, cert)
}

// clientConfig returns a configuration that reads the files.
func (f certFiles) clientConfig() *rest.Config {
	config := cluster.NodeConfig("any")
	config.CertData, config.KeyData, config.CertFile, config.KeyFile = nil, nil, f.cert, f.key
	return config
}

func newCertFiles(dir string) certFiles {
	return certFiles{cert: filepath.Join(dir, "client.crt"), key: filepath.Join(dir, "client.key")}
}

// newSelfSigned returns a certificate that the API server does not trust.
func newSelfSigned(t *testing.T, nodeName string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// A rejected certificate is replaced without a restart.
func TestF29_CertificateReplaced(t *testing.T) {
	files := newCertFiles(t.TempDir())
	cert, key := newSelfSigned(t, "renewed")
	files.write(t, cert, key)
	n := startNode(t, "renewed", files.clientConfig())
	requireNotRegistered(t, n)
	valid := cluster.NodeConfig("renewed")
	files.write(t, valid.CertData, valid.KeyData)
	awaitReady(t, "renewed", v1.ConditionTrue)
}

// requireNotRegistered fails the test if the node registers within 3 s.
func requireNotRegistered(t *testing.T, n *node.Node) {
	t.Helper()
	select {
	case <-n.Registered():
		t.Fatal("registered with an invalid credential")
	case <-time.After(3 * time.Second):
	}
}

// A new connection uses the new certificate.
func TestF29_CertificateRotated(t *testing.T) {
	files := newCertFiles(t.TempDir())
	first, second := cluster.NodeConfig("rotated"), cluster.NodeConfig("rotated")
	files.write(t, first.CertData, first.KeyData)
	client, err := kubeapi.New(files.clientConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseConnections()
	// The first request after a change of the files fails: client-go then closes all connections, including the new one.
	usedCredential := func() string {
		before := len(requests(t, "rotated"))
		var last request
		heraldtest.Eventually(t, func() error {
			_, err := client.GetNode(t.Context(), "rotated")
			all := requests(t, "rotated")
			if len(all) <= before {
				return fmt.Errorf("no new request in the audit log: %w", err)
			}
			last = all[len(all)-1]
			return nil
		})
		return last.credential()
	}
	old := usedCredential()
	files.write(t, second.CertData, second.KeyData)
	if got := usedCredential(); got != old || old == "" {
		t.Errorf("same connection: got credential %q, want %q", got, old)
	}
	heraldtest.Eventually(t, func() error {
		client.CloseConnections()
		if got := usedCredential(); got == old {
			return fmt.Errorf("new connection uses the old credential %q", got)
		}
		return nil
	})
}

// A rejected token is read again.
func TestF29_TokenReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	replaceFile(t, path, []byte("invalid-token"))
	config := cluster.NodeConfig("token")
	config.CertData, config.KeyData, config.BearerTokenFile = nil, nil, path
	n := startNode(t, "token", config)
	requireNotRegistered(t, n)
	replaceFile(t, path, []byte(nodeToken))
	awaitReady(t, "token", v1.ConditionTrue)
}
