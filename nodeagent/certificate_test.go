package nodeagent_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/nodeagent"
)

// newCertificate returns a certificate in PEM that ends at that time.
func newCertificate(t *testing.T, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})
	return append(private, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
}

func TestCertificate_Rotated(t *testing.T) {
	first := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	second := first.AddDate(1, 0, 0)
	path := filepath.Join(t.TempDir(), "client.pem")
	write := func(end, modified time.Time) {
		t.Helper()
		if err := os.WriteFile(path, newCertificate(t, end), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, modified, modified); err != nil {
			t.Fatal(err)
		}
	}
	write(first, first)
	synctest.Test(t, func(t *testing.T) {
		expires := nodeagent.NewCertificate(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: path}})
		if got := expires(); !got.Equal(first) {
			t.Fatalf("got %v, want %v", got, first)
		}
		write(second, second)
		if got := expires(); !got.Equal(first) {
			t.Errorf("the file was read again within a minute: got %v", got)
		}
		time.Sleep(time.Minute)
		if got := expires(); !got.Equal(second) {
			t.Errorf("got %v after the rotation, want %v", got, second)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := expires(); !got.Equal(second) {
			t.Errorf("got %v while the file is absent, want the last known", got)
		}
	})
	if got := nodeagent.NewCertificate(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: newCertificate(t, first)}})(); !got.Equal(first) {
		t.Errorf("got %v of data, want %v", got, first)
	}
	if got := nodeagent.NewCertificate(&rest.Config{BearerToken: "x"})(); !got.IsZero() {
		t.Errorf("got %v without a certificate", got)
	}
}
