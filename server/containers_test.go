package server_test

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/heraldnode/herald/server"
)

// containers answers with what it was asked.
func containers(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
}

// serveContainers serves the handler at an address until the test ends, and returns where.
func serveContainers(t *testing.T, address, token string) string {
	t.Helper()
	s, err := server.New(server.Config{Agent: &fakeAgent{}, Containers: http.HandlerFunc(containers), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := server.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// Logs are read like pods. What runs a command takes root or the agent's user, or the token: also a GET, with which web sockets begin.
func TestContainers_Authorization(t *testing.T) {
	overTCP, socket := serveContainers(t, "127.0.0.1:0", "secret"), serveContainers(t, "unix://"+filepath.Join(t.TempDir(), "s.sock"), "")
	overSocket, tcpClient := newClient(socket), &http.Client{Transport: &http.Transport{}}
	t.Cleanup(overSocket.CloseIdleConnections)
	t.Cleanup(tcpClient.CloseIdleConnections)
	tests := []struct {
		method, path, token string
		wantSocket, wantTCP int
		wantForwarded       string
	}{
		{http.MethodGet, "/containerLogs/a/b/c", "", 200, 200, "GET /containerLogs/a/b/c "},
		{http.MethodPost, "/containerLogs/a/b/c", "", 405, 405, ""},
		{http.MethodGet, "/exec/a/b/c", "", 200, 403, "GET /exec/a/b/c "},
		{http.MethodPost, "/exec/a/b/c", "", 200, 403, "POST /exec/a/b/c "},
		{http.MethodGet, "/exec/a/b/c", "wrong", 200, 403, "GET /exec/a/b/c "},
		{http.MethodGet, "/exec/a/b/c", "secret", 200, 200, "GET /exec/a/b/c "},
		{http.MethodPost, "/attach/a/b/c", "secret", 200, 200, "POST /attach/a/b/c "},
		{http.MethodGet, "/portForward/a/b", "", 200, 403, "GET /portForward/a/b "},
		{http.MethodPost, "/run/a/b/c", "", 200, 403, "POST /run/a/b/c "},
	}
	for _, test := range tests {
		for name, client := range map[string]*http.Client{"localhost": overSocket, overTCP: tcpClient} {
			want := test.wantTCP
			if name == "localhost" {
				want = test.wantSocket
			}
			request, err := http.NewRequestWithContext(t.Context(), test.method, "http://"+name+test.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if test.token != "" {
				request.Header.Set("Authorization", "Bearer "+test.token)
			}
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || response.StatusCode != want || want == 200 && string(body) != test.wantForwarded {
				t.Errorf("%s %s with token %q at %s: got %d %q, error %v, want %d %q", test.method, test.path, test.token, name,
					response.StatusCode, body, err, want, test.wantForwarded)
			}
		}
	}
}
