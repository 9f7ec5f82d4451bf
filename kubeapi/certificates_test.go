package kubeapi_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/kubeapi"
)

// certificate is a client certificate that can change.
type certificate struct {
	mu        sync.Mutex // guards current
	current   *tls.Certificate
	available chan struct{}
}

func (c *certificate) Current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

func (c *certificate) Available() <-chan struct{} { return c.available }

func (c *certificate) set(t *testing.T, name string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	path := filepath.Join(t.TempDir(), "pair.pem")
	writeCertificate(t, path, name)
	pair, err := tls.LoadX509KeyPair(path, path)
	if err != nil {
		t.Fatal(err)
	}
	if c.current == nil {
		close(c.available)
	}
	c.current = &pair
}

// Requests wait for the first certificate, and use a new one after the connections were closed.
func TestCRT8_NewCertificate(t *testing.T) {
	names := make(chan string, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		names <- r.TLS.PeerCertificates[0].Subject.CommonName
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(nodeJSON))
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	own := &certificate{available: make(chan struct{})}
	client, err := kubeapi.NewWithCertificate(&rest.Config{
		Host: server.URL, QPS: -1, BearerToken: "unused", TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}, own)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseConnections()
	answered := make(chan error)
	go func() { answered <- getNode(t, client) }()
	own.set(t, "first")
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	own.set(t, "second")
	client.CloseConnections()
	if err := getNodeAgain(t, client); err != nil {
		t.Fatal(err)
	}
	if first, second := <-names, <-names; first != "first" || second != "second" {
		t.Errorf("got requests of %q and %q", first, second)
	}
}

func TestCRT8_NoCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := kubeapi.NewWithCertificate(&rest.Config{
			Host: "https://127.0.0.1:1", QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		}, &certificate{available: make(chan struct{})})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := client.GetNode(ctx, "n1"); err == nil || !strings.Contains(err.Error(), "no client certificate yet") {
			t.Errorf("got %v", err)
		}
	})
	if _, err := kubeapi.NewWithCertificate(nil, &certificate{}); err == nil {
		t.Error("no error without a config")
	}
}

func TestClient_SigningRequests(t *testing.T) {
	client, requests := newRecordingClient(t)
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "r1"}}
	_, _ = client.CreateCSR(t.Context(), csr)
	_, _ = client.GetCSR(t.Context(), "r1")
	if stream, err := client.WatchCSR(t.Context(), "r1", "7"); err == nil {
		stream.Stop()
	}
	want := []string{
		"POST /apis/certificates.k8s.io/v1/certificatesigningrequests",
		"GET /apis/certificates.k8s.io/v1/certificatesigningrequests/r1",
		"GET /apis/certificates.k8s.io/v1/certificatesigningrequests?fieldSelector=metadata.name%3Dr1&resourceVersion=7",
	}
	for i, prefix := range want {
		if got := requests(); len(got) <= i || !strings.HasPrefix(got[i], prefix) {
			t.Errorf("got requests %q, want number %d to be %s", got, i, prefix)
		}
	}
}

// newRecordingClient returns a client of a server that answers with an error, and the requests so far.
func newRecordingClient(t *testing.T) (*kubeapi.Client, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests = append(requests, r.Method+" "+r.URL.RequestURI())
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(server.Close)
	client := newClient(t, &rest.Config{Host: server.URL, QPS: -1})
	t.Cleanup(client.CloseConnections)
	return client, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return requests
	}
}
