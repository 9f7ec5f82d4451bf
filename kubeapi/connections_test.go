package kubeapi_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/kubeapi"
)

// listener is a server for nodes over TLS and HTTP/2 that counts its connections.
type listener struct {
	*httptest.Server
	token atomic.Pointer[string] // that it wants; nil: none

	mu     sync.Mutex // guards opened
	opened int
}

func listen(t *testing.T) *listener {
	t.Helper()
	l := &listener{}
	l.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("request over %s", r.Proto)
		}
		w.Header().Set("Content-Type", "application/json")
		if want := l.token.Load(); want != nil && r.Header.Get("Authorization") != "Bearer "+*want {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u"}}`))
	}))
	l.EnableHTTP2 = true
	l.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.opened++
		}
	}
	l.StartTLS()
	t.Cleanup(l.Close)
	return l
}

func (l *listener) connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opened
}

func (l *listener) client(t *testing.T) *kubeapi.Client {
	t.Helper()
	client := newClient(t, &rest.Config{Host: l.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	t.Cleanup(client.CloseConnections)
	return client
}

func ask(t *testing.T, client *kubeapi.Client) (*v1.Node, error) {
	t.Helper()
	return client.GetNode(t.Context(), "n1")
}

func TestEachClientHasAConnectionOfItsOwn(t *testing.T) {
	server := listen(t)
	first, second := server.client(t), server.client(t)
	for range 3 {
		for _, client := range []*kubeapi.Client{first, second} {
			if _, err := ask(t, client); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := server.connections(); n != 2 {
		t.Errorf("two clients have %d connections", n)
	}
	first.CloseConnections()
	for _, client := range []*kubeapi.Client{first, second} {
		if _, err := ask(t, client); err != nil {
			t.Fatal(err)
		}
	}
	if n := server.connections(); n != 3 {
		t.Errorf("after the first closed its own, there were %d connections in all", n)
	}
}

func TestF29ATokenThatTheServerRefusedIsReadAgain(t *testing.T) {
	server := listen(t)
	path := filepath.Join(t.TempDir(), "token")
	put := func(token string) {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("old")
	server.token.Store(new("old"))
	client := newClient(t, &rest.Config{
		Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, BearerTokenFile: path,
	})
	t.Cleanup(client.CloseConnections)
	if _, err := ask(t, client); err != nil {
		t.Fatal(err)
	}
	put("new")
	if _, err := ask(t, client); err != nil {
		t.Fatalf("a token that is still good was given up: %v", err)
	}
	server.token.Store(new("new"))
	if _, err := ask(t, client); !apierrors.IsUnauthorized(err) {
		t.Fatalf("with the old token: %v", err)
	}
	if _, err := ask(t, client); err != nil {
		t.Fatalf("with the new token: %v", err)
	}
}
