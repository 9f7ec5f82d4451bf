package kubeapi_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// putCertificate writes a certificate of that name and its key into one file, as the kubelet's certificates are kept.
func putCertificate(t *testing.T, path, name string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})...)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// The server keeps connections whose certificates it refuses, as API servers before v1.29 do.
func TestF29ACertificateThatTheServerRefusedIsReplacedByTheOneInTheFile(t *testing.T) {
	for name, refusal := range map[string]struct {
		code int
		is   func(error) bool
	}{
		"it wants credentials":                 {http.StatusUnauthorized, apierrors.IsUnauthorized},
		"it takes the agent for somebody else": {http.StatusForbidden, apierrors.IsForbidden},
	} {
		t.Run(name, func(t *testing.T) { checkRenewal(t, refusal.code, refusal.is) })
	}
}

func checkRenewal(t *testing.T, code int, isRefused func(error) bool) {
	t.Helper()
	var known atomic.Pointer[string]
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.ProtoMajor != 2 || r.TLS.PeerCertificates[0].Subject.CommonName != *known.Load() {
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","code":%d,"reason":%q,"message":"User \"system:anonymous\" cannot get nodes"}`,
				code, http.StatusText(code))
			return
		}
		_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u"}}`))
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	path := filepath.Join(t.TempDir(), "client-current.pem")
	putCertificate(t, path, "old")
	known.Store(new("old"))
	client := newClient(t, &rest.Config{Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		Insecure: true, CertFile: path, KeyFile: path,
	}})
	defer client.CloseConnections()
	if _, err := ask(t, client); err != nil {
		t.Fatal(err)
	}
	putCertificate(t, path, "new")
	known.Store(new("new"))
	if _, err := ask(t, client); !isRefused(err) {
		t.Fatalf("with the old certificate: %v", err)
	}
	again := time.NewTicker(20 * time.Millisecond) // client-go does not look into the file twice in a second
	defer again.Stop()
	for limit := time.Now().Add(30 * time.Second); ; <-again.C {
		_, err := ask(t, client)
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("with the new certificate: %v", err)
		}
	}
}
