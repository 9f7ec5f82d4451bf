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

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node has one pod, and changes that a test sends.
type node struct {
	changes chan watch.Event
	left    chan struct{} // closed when somebody watches no more, if anybody wants to know
	ill     error
}

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Status: v1.PodStatus{Phase: v1.PodRunning}}
}

func (n *node) LocalPods() []*v1.Pod { return []*v1.Pod{pod("web")} }
func (n *node) Healthy() error       { return n.ill }

func (n *node) WatchLocalPods(ctx context.Context) iter.Seq[watch.Event] {
	return func(yield func(watch.Event) bool) {
		if n.left != nil {
			defer close(n.left)
		}
		for {
			select {
			case <-ctx.Done():
				return
			case change := <-n.changes:
				if !yield(change) {
					return
				}
			}
		}
	}
}

func newServer(t *testing.T, n *node) *server.Server {
	t.Helper()
	s, err := server.New(server.Config{Node: n})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ask(s http.Handler, method, target string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, httptest.NewRequestWithContext(context.Background(), method, target, nil))
	return answer
}

func TestPM16PodsAreServedWithWhatTheNodeSaysOfThem(t *testing.T) {
	answer := ask(newServer(t, &node{}), "GET", "http://localhost/pods")
	var list v1.PodList
	if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil || list.Kind != "PodList" || len(list.Items) != 1 {
		t.Fatalf("%v: %s", err, answer.Body)
	}
	if list.Items[0].Status.Phase != v1.PodRunning {
		t.Errorf("phase %s", list.Items[0].Status.Phase)
	}
}

func TestHealthSaysWhatIsWrong(t *testing.T) {
	n := &node{}
	s := newServer(t, n)
	if answer := ask(s, "GET", "http://127.0.0.1:10255/healthz"); answer.Code != http.StatusOK || answer.Body.String() != "ok\n" {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	n.ill = errors.New("the runtime was never heard of")
	if answer := ask(s, "GET", "http://[::1]/healthz"); answer.Code != http.StatusInternalServerError ||
		!strings.Contains(answer.Body.String(), "never heard of") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

func TestTheFirstPageSaysWhatCanBeAsked(t *testing.T) {
	s, err := server.New(server.Config{Node: &node{}, Metrics: http.NotFoundHandler()})
	if err != nil {
		t.Fatal(err)
	}
	want := "/pods\n/pods?watch=true\n/healthz\n/metrics\n"
	if answer := ask(s, "GET", "http://localhost/"); answer.Code != http.StatusOK || answer.Body.String() != want {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

func TestALocalNameIsLocalHoweverItIsWritten(t *testing.T) {
	s := newServer(t, &node{})
	for _, host := range []string{"localhost", "LocalHost:80", "127.0.0.1", "127.8.9.1:1", "[::1]", "[::1]:80"} {
		if answer := ask(s, "GET", "http://"+host+"/healthz"); answer.Code != http.StatusOK {
			t.Errorf("%s: %d %s", host, answer.Code, answer.Body)
		}
	}
}

// TestAQuestionAboutAWatchEnds would not end if it watched: nothing ever changes.
func TestAQuestionAboutAWatchEnds(t *testing.T) {
	answer := ask(newServer(t, &node{}), "HEAD", "http://localhost/pods?watch=true")
	if answer.Code != http.StatusOK || answer.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %v", answer.Code, answer.Header())
	}
}

func TestWhatMustNotBeAnsweredIsNot(t *testing.T) {
	tests := map[string]struct {
		method, target string
		code           int
	}{
		"a foreign name":    {"GET", "http://evil.example/pods", http.StatusForbidden},
		"a foreign address": {"GET", "http://10.0.0.1/pods", http.StatusForbidden},
		"a change":          {"POST", "http://localhost/pods", http.StatusMethodNotAllowed},
		"another path":      {"GET", "http://localhost/exec", http.StatusNotFound},
		"metrics, none":     {"GET", "http://localhost/metrics", http.StatusNotFound},
		"a watch, maybe":    {"GET", "http://localhost/pods?watch=perhaps", http.StatusBadRequest},
	}
	s := newServer(t, &node{})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if answer := ask(s, test.method, test.target); answer.Code != test.code {
				t.Errorf("%d %s", answer.Code, answer.Body)
			}
		})
	}
}

func TestAWatchShowsEveryChangeAndEndsWithTheServer(t *testing.T) {
	n := &node{changes: make(chan watch.Event)}
	socket := "unix://" + filepath.Join(t.TempDir(), "herald.sock")
	listener, err := server.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- newServer(t, n).Serve(ctx, listener) }()

	client := clientOf(listener.Addr().String())
	defer client.CloseIdleConnections()
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/pods?watch=true", nil)
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	n.changes <- watch.Event{Type: watch.Modified, Object: pod("web")}
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, `{"type":"MODIFIED","object":{"kind":"Pod"`) {
		t.Errorf("%v: %s", err, line)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(answer.Body); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Log(err)
	}
}

func clientOf(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
}

func TestOnlyThisMachineCanAsk(t *testing.T) {
	for _, address := range []string{
		"0.0.0.0:0", ":0", "10.0.0.1:80", "[::]:0", "nonsense", "unix://here.sock", "unix:///", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "unix:///" + strings.Repeat("x", 107),
	} {
		if listener, err := server.Listen(t.Context(), address); err == nil {
			_ = listener.Close()
			t.Errorf("listens on %s", address)
		}
	}
	listener, err := server.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
}

func TestASocketIsItsOwnersAndIsTakenOverOnlyFromTheDead(t *testing.T) {
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
		t.Error("two processes listen on one socket")
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) // as one that is killed
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
		t.Error("a file was taken for a socket")
	}
	if text, _ := os.ReadFile(path); string(text) != "precious" {
		t.Error("a file was removed")
	}
}
