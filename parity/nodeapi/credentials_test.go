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

	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// files are a node's certificate and key on disk.
type files struct{ cert, key string }

func (f files) put(t *testing.T, cert, key []byte) {
	t.Helper()
	write(t, f.key, key)
	write(t, f.cert, cert)
}

// config reads the files.
func (f files) config() *rest.Config {
	cfg := cluster.NodeConfig("any")
	cfg.CertData, cfg.KeyData, cfg.CertFile, cfg.KeyFile = nil, nil, f.cert, f.key
	return cfg
}

func filesIn(folder string) files {
	return files{cert: filepath.Join(folder, "client.crt"), key: filepath.Join(folder, "client.key")}
}

// stranger signs itself: the API server knows nobody who would vouch for it.
func stranger(t *testing.T, node string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
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

func TestF29ACertificateThatTheServerRefusesIsReplacedWithoutARestart(t *testing.T) {
	f := filesIn(t.TempDir())
	cert, key := stranger(t, "renewed")
	f.put(t, cert, key)
	n := begin(t, "renewed", f.config())
	select {
	case <-n.Registered():
		t.Fatal("registered with a certificate that nobody trusts")
	case <-time.After(3 * time.Second):
	}
	good := cluster.NodeConfig("renewed")
	f.put(t, good.CertData, good.KeyData)
	awaitReady(t, "renewed", v1.ConditionTrue)
}

func TestF29ANewConnectionComesWithTheNewCertificate(t *testing.T) {
	f := filesIn(t.TempDir())
	first, second := cluster.NodeConfig("rotated"), cluster.NodeConfig("rotated")
	f.put(t, first.CertData, first.KeyData)
	client, err := kubeapi.New(f.config())
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseConnections()
	// A request fails when it is the first to find the new files: client-go then closes all connections, the new one too.
	ask := func() string {
		before := len(requests(t, "rotated"))
		var last request
		recorder.Eventually(t, "a request in the audit log", func() (string, bool) {
			_, err := client.GetNode(t.Context(), "rotated")
			all := requests(t, "rotated")
			if len(all) > before {
				last = all[len(all)-1]
			}
			return fmt.Sprint(err), len(all) > before
		})
		return last.credential()
	}
	old := ask()
	f.put(t, second.CertData, second.KeyData)
	if kept := ask(); kept != old || old == "" {
		t.Errorf("on the same connection the credential was %q and is %q", old, kept)
	}
	recorder.Eventually(t, "the credential of new connections", func() (string, bool) {
		client.CloseConnections()
		fresh := ask()
		return fresh, fresh != old
	})
}

func TestF29ATokenThatTheServerRefusesIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, []byte("a-wrong-one"))
	cfg := cluster.NodeConfig("token")
	cfg.CertData, cfg.KeyData, cfg.BearerTokenFile = nil, nil, path
	n := begin(t, "token", cfg)
	select {
	case <-n.Registered():
		t.Fatal("registered with a token that nobody knows")
	case <-time.After(3 * time.Second):
	}
	write(t, path, []byte(nodeToken))
	awaitReady(t, "token", v1.ConditionTrue)
}
