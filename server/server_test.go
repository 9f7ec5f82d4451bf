package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeAgent has one pod, and events that a test sends.
type fakeAgent struct {
	events     chan watch.Event
	watchEnded chan struct{} // closed when a watch ends; may be nil
	healthErr  error
}

func newPod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Status: v1.PodStatus{Phase: v1.PodRunning}}
}

func (a *fakeAgent) LocalPods() []*v1.Pod { return []*v1.Pod{newPod("web")} }
func (a *fakeAgent) Healthy() error       { return a.healthErr }

func (a *fakeAgent) WatchLocalPods(ctx context.Context) iter.Seq[watch.Event] {
	return func(yield func(watch.Event) bool) {
		if a.watchEnded != nil {
			defer close(a.watchEnded)
		}
		for {
			select {
			case <-ctx.Done():
				return
			case event := <-a.events:
				if !yield(event) {
					return
				}
			}
		}
	}
}

func newServer(t *testing.T, agent *fakeAgent) *server.Server {
	t.Helper()
	s, err := server.New(server.Config{Agent: agent})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func request(s http.Handler, method, target string) *httptest.ResponseRecorder {
	response := httptest.NewRecorder()
	s.ServeHTTP(response, httptest.NewRequestWithContext(context.Background(), method, target, nil))
	return response
}

func TestPM16_LocalPods(t *testing.T) {
	response := request(newServer(t, &fakeAgent{}), "GET", "http://localhost/pods")
	var list v1.PodList
	if err := json.Unmarshal(response.Body.Bytes(), &list); err != nil || list.Kind != "PodList" || len(list.Items) != 1 {
		t.Fatalf("%v: %s", err, response.Body)
	}
	if list.Items[0].Status.Phase != v1.PodRunning {
		t.Errorf("got phase %s, want Running", list.Items[0].Status.Phase)
	}
}

func TestServer_Health(t *testing.T) {
	agent := &fakeAgent{}
	s := newServer(t, agent)
	if response := request(s, "GET", "http://127.0.0.1:10255/healthz"); response.Code != http.StatusOK || response.Body.String() != "ok\n" {
		t.Errorf("got %d %s", response.Code, response.Body)
	}
	agent.healthErr = errors.New("the runtime is down")
	if response := request(s, "GET", "http://[::1]/healthz"); response.Code != http.StatusInternalServerError ||
		!strings.Contains(response.Body.String(), "the runtime is down") {
		t.Errorf("got %d %s", response.Code, response.Body)
	}
}

func TestServer_Index(t *testing.T) {
	s, err := server.New(server.Config{Agent: &fakeAgent{}, Metrics: http.NotFoundHandler()})
	if err != nil {
		t.Fatal(err)
	}
	want := "/pods\n/pods?watch=true\n/healthz\n/metrics\n"
	if response := request(s, "GET", "http://localhost/"); response.Code != http.StatusOK || response.Body.String() != want {
		t.Errorf("got %d %s", response.Code, response.Body)
	}
}

func TestServer_LocalHosts(t *testing.T) {
	s := newServer(t, &fakeAgent{})
	for _, host := range []string{"localhost", "LocalHost:80", "127.0.0.1", "127.8.9.1:1", "[::1]", "[::1]:80"} {
		if response := request(s, "GET", "http://"+host+"/healthz"); response.Code != http.StatusOK {
			t.Errorf("%s: %d %s", host, response.Code, response.Body)
		}
	}
}

// TestServer_HeadOfWatch would hang if the server started a watch.
func TestServer_HeadOfWatch(t *testing.T) {
	response := request(newServer(t, &fakeAgent{}), "HEAD", "http://localhost/pods?watch=true")
	if response.Code != http.StatusOK || response.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %v", response.Code, response.Header())
	}
}

func TestServer_RejectedRequests(t *testing.T) {
	tests := map[string]struct {
		method, target string
		code           int
	}{
		"foreign host name": {"GET", "http://evil.example/pods", http.StatusForbidden},
		"foreign address":   {"GET", "http://10.0.0.1/pods", http.StatusForbidden},
		"write":             {"POST", "http://localhost/pods", http.StatusMethodNotAllowed},
		"unknown path":      {"GET", "http://localhost/exec", http.StatusNotFound},
		"disabled metrics":  {"GET", "http://localhost/metrics", http.StatusNotFound},
		"invalid watch":     {"GET", "http://localhost/pods?watch=perhaps", http.StatusBadRequest},
	}
	s := newServer(t, &fakeAgent{})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if response := request(s, test.method, test.target); response.Code != test.code {
				t.Errorf("got %d %s", response.Code, response.Body)
			}
		})
	}
}

func TestServer_Watch(t *testing.T) {
	agent := &fakeAgent{events: make(chan watch.Event)}
	socket := "unix://" + filepath.Join(t.TempDir(), "herald.sock")
	listener, err := server.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- newServer(t, agent).Serve(ctx, listener) }()

	client := newClient(listener.Addr().String())
	defer client.CloseIdleConnections()
	watchRequest, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/pods?watch=true", nil)
	response, err := client.Do(watchRequest)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	agent.events <- watch.Event{Type: watch.Modified, Object: newPod("web")}
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, `{"type":"MODIFIED","object":{"kind":"Pod"`) {
		t.Errorf("%v: %s", err, line)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(response.Body); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Log(err)
	}
}

func newClient(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
}

func TestListen_Addresses(t *testing.T) {
	for _, address := range []string{
		"0.0.0.0:0", ":0", "10.0.0.1:80", "[::]:0", "nonsense", "unix://here.sock", "unix:///", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "unix:///" + strings.Repeat("x", 107),
	} {
		if listener, err := server.Listen(t.Context(), address); err == nil {
			_ = listener.Close()
			t.Errorf("Listen(%q) succeeded", address)
		}
	}
	listener, err := server.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
}

func TestListen_Socket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "herald.sock")
	first, err := server.Listen(t.Context(), "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if second, err := server.Listen(t.Context(), "unix://"+path); err == nil {
		_ = second.Close()
		t.Error("two listeners share a socket")
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) // as after a kill
	_ = first.Close()
	second, err := server.Listen(t.Context(), "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	_ = second.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Listen(t.Context(), "unix://"+path); err == nil {
		t.Error("a regular file was replaced")
	}
	if text, _ := os.ReadFile(path); string(text) != "precious" {
		t.Error("a file was removed")
	}
}

// pipeListener is a listener of in-memory connections, which work in a synctest bubble.
type pipeListener struct {
	connections chan net.Conn
	closed      chan struct{}
}

func newPipeListener() *pipeListener { return &pipeListener{make(chan net.Conn), make(chan struct{})} }

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case connection := <-l.connections:
		return connection, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

// dial returns the client side of a connection if the server accepts it.
func (l *pipeListener) dial() (client net.Conn, accepted bool) {
	client, server := net.Pipe()
	synctest.Wait()
	select {
	case l.connections <- server:
		return client, true
	default:
		return nil, false
	}
}

// serve serves the listener until the returned function is called.
func serve(t *testing.T, agent *fakeAgent, listener *pipeListener) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	s := newServer(t, agent)
	go func() { served <- s.Serve(ctx, listener) }()
	return func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

func TestServer_WatchNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := &fakeAgent{events: make(chan watch.Event), watchEnded: make(chan struct{})}
		listener := newPipeListener()
		defer serve(t, agent, listener)()
		client, _ := listener.dial()
		defer client.Close()
		if _, err := io.WriteString(client, "GET /pods?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReaderSize(client, 16), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		agent.events <- watch.Event{Type: watch.Modified, Object: newPod("web")} // never read
		<-agent.watchEnded
	})
}

func TestServer_ConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := newPipeListener()
		defer serve(t, &fakeAgent{}, listener)()
		var clients []net.Conn
		for client, accepted := listener.dial(); accepted; client, accepted = listener.dial() {
			if clients = append(clients, client); len(clients) > 1000 {
				t.Fatal("connections are not limited")
			}
		}
		if len(clients) == 0 {
			t.Fatal("no connection was accepted")
		}
		_ = clients[0].Close()
		another, accepted := listener.dial()
		if !accepted {
			t.Fatal("no connection was accepted after one was closed")
		}
		for _, client := range append(clients[1:], another) {
			_ = client.Close()
		}
	})
}
