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
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
)

const nodeJSON = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u"}}`

// nodeServer serves a node over TLS and HTTP/2 and counts its connections.
type nodeServer struct {
	*httptest.Server
	token atomic.Pointer[string] // the only accepted token; nil accepts all

	mu     sync.Mutex // guards opened
	opened int
}

func startNodeServer(t *testing.T) *nodeServer {
	t.Helper()
	s := &nodeServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("got a request over %s, want HTTP/2", r.Proto)
		}
		w.Header().Set("Content-Type", "application/json")
		if want := s.token.Load(); want != nil && r.Header.Get("Authorization") != "Bearer "+*want {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(nodeJSON))
	}))
	s.EnableHTTP2 = true
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.opened++
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *nodeServer) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

func (s *nodeServer) newClient(t *testing.T) *kubeapi.Client {
	t.Helper()
	client := newClient(t, &rest.Config{Host: s.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	t.Cleanup(client.CloseConnections)
	return client
}

func getNode(t *testing.T, client *kubeapi.Client) error {
	t.Helper()
	_, err := client.GetNode(t.Context(), "n1")
	return err
}

// getNodeAgain gets the node after connections were closed. A request may still find one that is being closed; callers repeat it.
func getNodeAgain(t *testing.T, client *kubeapi.Client) error {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := getNode(t, client)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func TestClient_OwnConnections(t *testing.T) {
	server := startNodeServer(t)
	first, second := server.newClient(t), server.newClient(t)
	for range 3 {
		for _, client := range []*kubeapi.Client{first, second} {
			if err := getNode(t, client); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := server.connections(); got != 2 {
		t.Errorf("got %d connections of two clients, want 2", got)
	}
	first.CloseConnections()
	for _, client := range []*kubeapi.Client{first, second} {
		if err := getNodeAgain(t, client); err != nil {
			t.Fatal(err)
		}
	}
	if got := server.connections(); got != 3 {
		t.Errorf("got %d connections after one client closed its own, want 3", got)
	}
}

func TestF29_TokenReload(t *testing.T) {
	server := startNodeServer(t)
	path := filepath.Join(t.TempDir(), "token")
	writeToken := func(token string) {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeToken("old")
	server.token.Store(new("old"))
	client := newClient(t, &rest.Config{
		Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, BearerTokenFile: path,
	})
	t.Cleanup(client.CloseConnections)
	if err := getNode(t, client); err != nil {
		t.Fatal(err)
	}
	writeToken("new")
	if err := getNode(t, client); err != nil {
		t.Fatalf("got %v, want the old token to be used while it is valid", err)
	}
	server.token.Store(new("new"))
	if err := getNode(t, client); !apierrors.IsUnauthorized(err) {
		t.Fatalf("got %v with the old token, want unauthorized", err)
	}
	if err := getNode(t, client); err != nil {
		t.Fatalf("got %v with the new token", err)
	}
}

// writeCertificate writes a certificate and its key to one file, like the kubelet.
func writeCertificate(t *testing.T, path, commonName string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: commonName}, NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestF29_CertificateReload uses a server that keeps connections with unrecognized certificates, like API servers before v1.29.
func TestF29_CertificateReload(t *testing.T) {
	for name, rejection := range map[string]struct {
		code int
		is   func(error) bool
	}{
		"unauthorized":   {http.StatusUnauthorized, apierrors.IsUnauthorized},
		"anonymous user": {http.StatusForbidden, apierrors.IsForbidden},
	} {
		t.Run(name, func(t *testing.T) { checkCertificateReload(t, rejection.code, rejection.is) })
	}
}

func checkCertificateReload(t *testing.T, code int, isRejected func(error) bool) {
	t.Helper()
	var validName atomic.Pointer[string]
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.ProtoMajor != 2 || r.TLS.PeerCertificates[0].Subject.CommonName != *validName.Load() {
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","code":%d,"reason":%q,"message":"User \"system:anonymous\" cannot get nodes"}`,
				code, http.StatusText(code))
			return
		}
		_, _ = w.Write([]byte(nodeJSON))
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	path := filepath.Join(t.TempDir(), "client-current.pem")
	writeCertificate(t, path, "old")
	validName.Store(new("old"))
	client := newClient(t, &rest.Config{Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		Insecure: true, CertFile: path, KeyFile: path,
	}})
	defer client.CloseConnections()
	if err := getNode(t, client); err != nil {
		t.Fatal(err)
	}
	writeCertificate(t, path, "new")
	validName.Store(new("new"))
	if err := getNode(t, client); !isRejected(err) {
		t.Fatalf("got %v with the old certificate, want a rejection", err)
	}
	heraldtest.Eventually(t, func() error { return getNode(t, client) }) // client-go reads the file at most once a second
}
