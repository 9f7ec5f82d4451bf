package stream_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/stream"
)

// request sends a request that asks for an upgrade, and returns the response's code, header and body.
func (h *harness) request(t *testing.T, path, query string, header http.Header) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url(t, path, query).String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := h.server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(body)
}

func spdyHeader(version string) http.Header {
	return http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {version}}
}

func webSocketHeader(protocol string) http.Header {
	return http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Protocol": {protocol},
	}
}

const exec = "/exec/default/web/main"

func TestSTR1_Options(t *testing.T) {
	tests := map[string]struct {
		query string
		want  *runtimeapi.ExecRequest // nil means 400
	}{
		"all":             {"input=1&output=1&error=1&command=a", &runtimeapi.ExecRequest{Stdin: true, Stdout: true, Stderr: true}},
		"only 1 counts":   {"input=true&output=1&error=0&command=a", &runtimeapi.ExecRequest{Stdout: true}},
		"terminal":        {"output=1&error=1&tty=1&command=a", &runtimeapi.ExecRequest{Stdout: true, Tty: true}},
		"terminal alone":  {"error=1&tty=1&command=a", nil},
		"none":            {"command=a", nil},
		"API's own names": {"stdin=true&stdout=true&command=a", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.runtime.errs["new"] = errors.New("no stream")
			code, _, body := h.request(t, exec, test.query+"&command=b%20c", spdyHeader("v4.channel.k8s.io"))
			if test.want == nil {
				if code != http.StatusBadRequest || body != "you must specify at least 1 of stdin, stdout, stderr" {
					t.Errorf("got %d %q", code, body)
				}
				return
			}
			test.want.ContainerId, test.want.Cmd = "new", []string{"a", "b c"}
			if diff := cmp.Diff([]any{test.want}, h.runtime.recorded(), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSTR2_UnknownTargets(t *testing.T) {
	tests := map[string]struct {
		path string
		code int
		body string
	}{
		"exec, pod":              {"/exec/default/other/main", 404, "pod does not exist"},
		"attach, pod":            {"/attach/default/other/main", 404, "pod does not exist"},
		"port-forward, pod":      {"/portForward/other/web", 404, "pod does not exist"},
		"run, pod":               {"/run/default/other/main", 404, "pod does not exist"},
		"exec, container":        {"/exec/default/web/other", 500, `container not found ("other")`},
		"exec, ended":            {"/exec/default/web/init", 500, `container not found ("init")`},
		"attach, container":      {"/attach/default/web/other", 500, "container other not found in pod web_default"},
		"attach, ended":          {"/attach/default/web/init", 500, "container init not found in pod web_default"},
		"run, container":         {"/run/default/web/other", 500, `container not found ("other")`},
		"port-forward, its UID":  {"/portForward/default/web/other", 404, "pod not found"}, // STR-3
		"port-forward, no place": {"/portForward/default/web", 500, `pod not found ("web_default")`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.cache.pod.Sandboxes[0].Ready = false
			code, _, body := h.request(t, test.path, "output=1&command=a&cmd=a", spdyHeader("v4.channel.k8s.io"))
			if code != test.code || body != test.body {
				t.Errorf("got %d %q, want %d %q", code, body, test.code, test.body)
			}
			if requests := h.runtime.recorded(); len(requests) != 0 {
				t.Errorf("the runtime was asked: %v", requests)
			}
		})
	}
}

func TestSTR4_AttachHasTheContainersTerminal(t *testing.T) {
	h := newHarness(t)
	h.runtime.errs["debugger"], h.runtime.errs["new"] = errors.New("no stream"), errors.New("no stream")
	h.request(t, "/attach/default/web/debugger", "output=1", spdyHeader("v4.channel.k8s.io"))
	h.request(t, "/attach/default/web/main", "output=1&tty=1", spdyHeader("v4.channel.k8s.io"))
	want := []any{
		&runtimeapi.AttachRequest{ContainerId: "debugger", Stdout: true, Tty: true},
		&runtimeapi.AttachRequest{ContainerId: "new", Stdout: true},
	}
	if diff := cmp.Diff(want, h.runtime.recorded(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestSTR5_RuntimeErrors(t *testing.T) {
	tests := map[codes.Code]struct {
		code       int
		retryAfter string
	}{
		codes.NotFound: {404, ""}, codes.ResourceExhausted: {429, "60"}, codes.InvalidArgument: {500, ""}, codes.Unavailable: {500, ""},
	}
	for cause, want := range tests {
		t.Run(cause.String(), func(t *testing.T) {
			h := newHarness(t)
			h.runtime.errs["new"] = status.Error(cause, "the runtime says no")
			code, header, body := h.request(t, exec, "output=1&command=a", spdyHeader("v4.channel.k8s.io"))
			if code != want.code || header.Get("Retry-After") != want.retryAfter || !strings.Contains(body, "the runtime says no") {
				t.Errorf("got %d %v %q", code, header, body)
			}
		})
	}
}

func TestSTR6_WithoutUpgrade(t *testing.T) {
	for _, path := range []string{exec, "/attach/default/web/main", "/portForward/default/web"} {
		h := newHarness(t)
		code, _, body := h.request(t, path, "output=1&command=a", nil)
		if code != http.StatusBadRequest || body != "Upgrade request required" {
			t.Errorf("%s: got %d %q", path, code, body)
		}
		if requests := h.runtime.recorded(); len(requests) != 0 {
			t.Errorf("%s: a stream of the runtime was used up: %v", path, requests)
		}
	}
}

// The runtime's refusal arrives as it is (STR-7, STR-8).
func TestSTR7_RefusalIsPassedOn(t *testing.T) {
	for name, test := range map[string]struct {
		header http.Header
		code   int
		body   string
	}{
		"unknown version": {spdyHeader("v9.channel.k8s.io"), 403, "unable to negotiate protocol"},
		"no version": {
			http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}, 400, "header X-Stream-Protocol-Version does not exist",
		},
		"web socket by POST": {webSocketHeader("v4.channel.k8s.io"), 405, "bad method"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			code, _, body := h.request(t, exec, "output=1&command=a", test.header)
			if code != test.code || !strings.Contains(body, test.body) {
				t.Errorf("got %d %q, want %d with %q", code, body, test.code, test.body)
			}
		})
	}
}

func TestSTR19_OutdatedObservation(t *testing.T) {
	restarted := func(h *harness) *observed.Pod {
		pod := *h.cache.pod
		pod.Containers = []observed.Container{
			{Name: "main", ID: observed.ContainerID{Runtime: "test", ID: "newer"}, State: observed.Running, RestartCount: 2},
		}
		return &pod
	}
	for name, change := range map[string]func(*harness){
		"restarted": func(h *harness) {
			h.cache.newer = restarted(h)
			h.runtime.errs["new"] = status.Error(codes.NotFound, "gone")
		},
		"just started": func(h *harness) {
			h.cache.newer = restarted(h)
			h.cache.pod = &observed.Pod{UID: "uid"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, change)
			h.runtime.errs["newer"] = errors.New("no stream")
			h.request(t, exec, "output=1&command=a", spdyHeader("v4.channel.k8s.io"))
			requests := h.runtime.recorded()
			last, isExec := requests[len(requests)-1].(*runtimeapi.ExecRequest)
			if !isExec || last.ContainerId != "newer" || h.cache.observations != 1 {
				t.Errorf("got requests %v after %d observations, want the newer instance after one", requests, h.cache.observations)
			}
		})
	}
}

func TestSTR24_Ports(t *testing.T) {
	for query, want := range map[string]string{
		"":              `query parameter "port" is required`,
		"port=":         `query parameter "port" cannot be empty`,
		"port=x":        `unable to parse "x" as a port`,
		"port=70000":    `unable to parse "70000" as a port`,
		"port=80,0":     `port "80,0" must be > 0`,
		"port=80&port=": `query parameter "port" cannot be empty`,
	} {
		h := newHarness(t)
		code, _, body := h.request(t, "/portForward/default/web", query, webSocketHeader("v4.channel.k8s.io"))
		if code != http.StatusBadRequest || !strings.HasPrefix(body, want) {
			t.Errorf("%s: got %d %q, want %q", query, code, body, want)
		}
	}
	h := newHarness(t)
	h.runtime.errs["sandbox"] = errors.New("no stream")
	h.request(t, "/portForward/default/web", "port=80,443&port=8080", webSocketHeader("v4.channel.k8s.io"))
	want := []any{&runtimeapi.PortForwardRequest{PodSandboxId: "sandbox", Port: []int32{80, 443, 8080}}}
	if diff := cmp.Diff(want, h.runtime.recorded(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestServeRun(t *testing.T) {
	h := newHarness(t)
	code, header, body := h.request(t, "/run/default/web/main", "cmd=ls%20%20-l", nil)
	if code != http.StatusOK || header.Get("Content-Type") != "application/json" || body != "ls||-l" {
		t.Errorf("got %d %v %q", code, header, body)
	}
	if code, _, body = h.request(t, "/run/default/web/main", "cmd=false", nil); code != 500 || body != "command 'false' exited with 1: failed" {
		t.Errorf("got %d %q", code, body)
	}
}

// Nothing that identifies the client reaches the runtime.
func TestCredentialsAreNotForwarded(t *testing.T) {
	seen := make(chan http.Header, 1)
	h := newHarness(t)
	backend := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		w.WriteHeader(http.StatusTeapot)
	}))
	h.runtime.url = backend.URL + "/exec/token"
	header := webSocketHeader("base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io")
	header.Set("Authorization", "Bearer secret")
	header.Set("Cookie", "secret=1")
	if code, _, _ := h.request(t, exec, "output=1&command=a", header); code != http.StatusTeapot {
		t.Errorf("got %d, want the runtime's", code)
	}
	got := <-seen
	got.Del("User-Agent")
	got.Del("Content-Length")
	if diff := cmp.Diff(webSocketHeader("v4.channel.k8s.io"), got); diff != "" {
		t.Error(diff)
	}
}

func TestNew_Config(t *testing.T) {
	if _, err := stream.New(stream.Config{}); err == nil || !strings.Contains(err.Error(), "Runtime is required") {
		t.Errorf("got %v", err)
	}
	h := newHarness(t)
	h.config.MaxStreams = -1
	if _, err := stream.New(h.config); err == nil {
		t.Error("negative limits were accepted")
	}
	h.config.Pod = func(string, string) (*v1.Pod, bool) { return nil, false }
}
