package server_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/view"
)

const api = "http://localhost/herald/v1/"

// getJSON requires a status and decodes the response.
func getJSON[T any](tb testing.TB, handler http.Handler, path string, code int) (value T) {
	tb.Helper()
	response := request(handler, "GET", api+path)
	if response.Code != code || response.Header().Get("Content-Type") != "application/json" {
		tb.Fatalf("%s: got %d %s, %s, want %d", path, response.Code, response.Header(), response.Body, code)
	}
	if err := json.Unmarshal(response.Body.Bytes(), &value); err != nil {
		tb.Fatalf("%s: %v: %s", path, err, response.Body)
	}
	return value
}

// failure is the body of a failed request.
type failure struct {
	Kind, Status, Message string
	Code                  int
}

func TestQuery_Pods(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"b", "a", "c"} {
		n.set(newRunningPod(name, name == "b"))
	}
	s := n.newServer(t)
	tests := map[string]string{
		"":                              "default/a default/b default/c",
		"labelSelector=app%3Db":         "default/b",
		"namespace=other":               "",
		"fieldSelector=metadata.name=c": "default/c",
		"where=" + url.QueryEscape("!pod.ready && node.pods == 3"): "default/a default/c",
		"limit=2":           "default/a default/b",
		"cursor=default/b":  "default/c",
		"cursor=default/b1": "default/c",
	}
	for parameters, want := range tests {
		list := getJSON[view.PodViewList](t, s, "pods?"+parameters, http.StatusOK)
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Metadata.Namespace+"/"+list.Items[i].Metadata.Name)
		}
		if got := strings.Join(names, " "); got != want || list.Kind != "PodViewList" {
			t.Errorf("%s: got %q, want %q", parameters, got, want)
		}
		if wantCursor := parameters == "limit=2"; (list.Continue == "default/b") != wantCursor {
			t.Errorf("%s: got cursor %q", parameters, list.Continue)
		}
	}
	for _, parameters := range []string{"labelSelector=a%20in%20b", "fieldSelector=spec.color=red", "where=pod.color", "limit=0"} {
		if body := getJSON[failure](t, s, "pods?"+parameters, http.StatusBadRequest); body.Kind != "Status" || body.Message == "" || body.Code != 400 {
			t.Errorf("%s: got %+v", parameters, body)
		}
	}
}

func TestQuery_OnePod(t *testing.T) {
	n := newNode(t)
	n.set(newRunningPod("web", false))
	n.set(newRunningPod("old", true))
	n.remove(podid.FullName{Namespace: "default", Name: "old"})
	s := n.newServer(t)
	if pod := getJSON[view.PodView](t, s, "pods/default/web", http.StatusOK); pod.Metadata.Name != "web" || pod.Why.Code == "" {
		t.Errorf("got %+v", pod)
	}
	if body := getJSON[failure](t, s, "pods/default/old", http.StatusNotFound); !strings.Contains(body.Message, "old") ||
		strings.Contains(body.Message, "no record") {
		t.Errorf("got %q, want when the pod left", body.Message)
	}
	if body := getJSON[failure](t, s, "pods/default/none", http.StatusNotFound); !strings.Contains(body.Message, "no record") {
		t.Errorf("got %q", body.Message)
	}
	answer := getJSON[view.Explanation](t, s, "explain/default/web?q=Ready", http.StatusOK)
	if answer.Verdict.OK || answer.Verdict.Headline == "" || answer.Metadata.UID != "web" || answer.Question != "Ready" {
		t.Errorf("got %+v", answer)
	}
	if answer := getJSON[view.Explanation](t, s, "explain/default/old?q=Deleted", http.StatusOK); !answer.Verdict.OK {
		t.Errorf("got %+v", answer)
	}
	getJSON[failure](t, s, "explain/default/none", http.StatusNotFound)
	getJSON[failure](t, s, "explain/default/web?q=Happy", http.StatusBadRequest)
}

func TestQuery_NodeAndSources(t *testing.T) {
	n := newNode(t)
	s := n.newServer(t)
	if node := getJSON[view.NodeView](t, s, "node", http.StatusOK); node.Metadata.Name != "n1" || node.Kind != "NodeView" {
		t.Errorf("got %+v", node)
	}
	if list := getJSON[view.SourceList](t, s, "sources", http.StatusOK); len(list.Items) != 1 || list.Kind != "SourceList" {
		t.Errorf("got %+v", list)
	}
	if list := getJSON[server.HistoryList](t, s, "events?namespace=default&limit=5", http.StatusOK); list.Items == nil {
		t.Errorf("got %+v", list)
	}
	response := request(s, "GET", api+"schema")
	if response.Header().Get("Content-Type") != "application/schema+json" || !json.Valid(response.Body.Bytes()) {
		t.Errorf("got %v", response.Header())
	}
}

// TestQuery_Head checks that HEAD sends headers and no body, also of a stream.
func TestQuery_Head(t *testing.T) {
	s := newNode(t).newServer(t)
	listener := httptest.NewServer(s)
	defer listener.Close()
	for _, path := range []string{"pods", "node", "sources", "watch", "schema"} {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodHead, listener.URL+"/herald/v1/"+path, nil)
		response, err := listener.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") == "" {
			t.Errorf("%s: got %v", path, response)
		}
		_ = response.Body.Close()
	}
}

// poster sends requests to an address, with a token unless it is empty.
type poster struct {
	client         *http.Client
	address, token string
}

// post sends a body to a path of the API and returns the status and the body of the response.
func (p poster) post(t *testing.T, path, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.address+"/herald/v1/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if p.token != "" {
		request.Header.Set("Authorization", "Bearer "+p.token)
	}
	response, err := p.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text := new(strings.Builder)
	if _, err := copyText(text, response); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, text.String()
}

// serveOn serves the node on an address until the test ends.
func (n *node) serveOn(t *testing.T, address string) net.Addr {
	t.Helper()
	listener, err := server.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	s := n.newServer(t)
	go func() { served <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr()
}

func TestOperate(t *testing.T) {
	n := newNode(t)
	n.set(newRunningPod("web", true))
	socket := n.serveOn(t, "unix://"+filepath.Join(t.TempDir(), "herald.sock"))
	client := newClient(socket.String())
	defer client.CloseIdleConnections()
	socketClient := poster{client: client, address: "localhost"}
	tests := map[string]struct {
		path, body string
		code       int
		want       string
	}{
		"restart":            {"restart", `{"namespace":"default","pod":"web","container":"main","reason":"new cert"}`, 200, `"kind":"Restart"`},
		"only container":     {"restart", `{"namespace":"default","pod":"web"}`, 200, `"container":"main"`},
		"refused":            {"restart", `{"namespace":"default","pod":"web","reason":"busy"}`, 409, "is being stopped"},
		"unknown pod":        {"restart", `{"namespace":"default","pod":"none"}`, 404, "no record"},
		"unknown container":  {"restart", `{"namespace":"default","pod":"web","container":"x"}`, 404, "only main"},
		"unknown field":      {"restart", `{"namespace":"default","pod":"web","force":true}`, 400, "force"},
		"no pod":             {"restart", `{}`, 400, "required"},
		"body is too long":   {"restart", `{"pod":"` + strings.Repeat("x", 1<<17) + `"}`, 400, "too large"},
		"probe":              {"probe", `{"namespace":"default","pod":"web","kind":"liveness"}`, 200, `"kind":"ProbeCheckList"`},
		"unknown probe kind": {"probe", `{"namespace":"default","pod":"web","kind":"wellness"}`, 400, "wellness"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if code, body := socketClient.post(t, test.path, test.body); code != test.code || !strings.Contains(body, test.want) {
				t.Errorf("got %d %s, want %d %s", code, body, test.code, test.want)
			}
		})
	}
	if n.mu.Lock(); len(n.restarts) != 2 {
		t.Errorf("got restarts %q, want two", n.restarts)
	}
	n.mu.Unlock()
}

// TestOperate_Authorization checks that over TCP a request needs the token, and without a peer's credentials nothing is allowed.
func TestOperate_Authorization(t *testing.T) {
	n := newNode(t)
	n.set(newRunningPod("web", true))
	address := n.serveOn(t, "127.0.0.1:0").String()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	const body = `{"namespace":"default","pod":"web"}`
	for token, want := range map[string]int{"": 403, "wrong": 403, "secret": 200} {
		if code, text := (poster{client, address, token}).post(t, "restart", body); code != want {
			t.Errorf("token %q: got %d %s, want %d", token, code, text, want)
		}
	}
	withoutToken, err := server.New(server.Config{Agent: n, Inspector: n, Operator: n})
	if err != nil {
		t.Fatal(err)
	}
	if response := request(withoutToken, "POST", api+"restart"); response.Code != http.StatusForbidden ||
		!strings.Contains(response.Body.String(), "unix socket only") {
		t.Errorf("got %d %s", response.Code, response.Body)
	}
	if response := request(withoutToken, "GET", api+"restart"); response.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: got %d", response.Code)
	}
	if _, err := server.New(server.Config{Agent: n, Operator: n}); err == nil {
		t.Error("an operator without an inspector is accepted")
	}
}
