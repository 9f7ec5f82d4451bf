package nodeserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/heraldnode/herald/nodeserver"
	"github.com/heraldnode/herald/server"
)

const plain = "text/plain; charset=utf-8"

func text(content string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, content+" "+r.URL.Path) })
}

type fakeSummarizer struct{}

func (fakeSummarizer) Summary(_ context.Context, onlyCPUAndMemory bool) *statsapi.Summary {
	name := "all"
	if onlyCPUAndMemory {
		name = "cpu and memory"
	}
	return &statsapi.Summary{Node: statsapi.NodeStats{NodeName: name}}
}

// fullConfig serves every path.
func fullConfig(t *testing.T) nodeserver.Config {
	t.Helper()
	config := newConfig(t)
	config.Summarizer = fakeSummarizer{}
	config.Containers = text("containers")
	config.Metrics = nodeserver.Metrics{Agent: text("agent"), Probes: text("probes"), Resource: text("resource")}
	config.Configz = func() ([]byte, error) { return []byte(`{"kind":"KubeletConfiguration"}`), nil }
	config.RunningPods = func(context.Context) ([]*v1.Pod, error) { return []*v1.Pod{newPod("a", "b")}, nil }
	return config
}

func TestSRV_Paths(t *testing.T) {
	s := newServer(t, fullConfig(t))
	const json, page, method = "application/json", "404: Page Not Found", "405: Method Not Allowed"
	tests := map[string]answer{
		"GET /healthz":                       {200, plain, "ok"},
		"POST /healthz/ping":                 {200, plain, "ok"},
		"GET /healthz/absent":                {404, plain, "404 page not found\n"},
		"GET /metrics":                       {200, plain, "agent /metrics"},
		"GET /metrics/probes":                {200, plain, "probes /metrics/probes"},
		"GET /metrics/resource":              {200, plain, "resource /metrics/resource"},
		"GET /metrics/cadvisor":              {404, plain, "404 page not found\n"},
		"POST /pods":                         {405, plain, method},
		"GET /pods/x":                        {404, plain, page},
		"GET /stats/container":               {404, plain, page},
		"DELETE /stats/summary":              {405, plain, method},
		"GET /configz":                       {200, json, `{"kubeletconfig":{"kind":"KubeletConfiguration"}}`},
		"POST /runningpods/":                 {405, plain, method},
		"GET /runningpods/x":                 {404, plain, page},
		"GET /exec/a/b/c":                    {200, plain, "containers /exec/a/b/c"},
		"GET /containerLogs/a/b/c":           {200, plain, "containers /containerLogs/a/b/c"},
		"POST /logs/":                        {405, plain, method},
		"POST /debug/pprof/":                 {405, plain, method},
		"GET /debug/flags/v":                 {404, plain, "404 page not found\n"},
		"GET /checkpoint/a/b/c":              {404, plain, "404 page not found\n"},
		"GET /":                              {404, plain, "404 page not found\n"},
		"GET /absent":                        {404, plain, "404 page not found\n"},
		"GET /debug/pprof/cmdline":           {200, plain, strings.Join(os.Args, "\x00")},
		"GET /runningpods/ Accept text/html": {406, plain, "406: Not Acceptable\n\nAvailable representations: application/json"},
	}
	for request, want := range tests {
		fields := strings.SplitN(request, " ", 4)
		if got := ask(t, s, fields[0], fields[1], fields[2:]...); got != want {
			t.Errorf("%s: got %+v, want %+v", request, got, want)
		}
	}
	for _, path := range []string{"/logs", "/runningpods", "/debug/pprof", "/stats"} {
		if got := ask(t, s, http.MethodGet, path); got.Code != http.StatusTemporaryRedirect && got.Code != http.StatusMovedPermanently {
			t.Errorf("%s: got %+v, want a redirect", path, got)
		}
	}
}

func TestSRV30_Pods(t *testing.T) {
	config := newConfig(t)
	s := newServer(t, config)
	if got := ask(t, s, http.MethodGet, "/pods"); got.Code != 200 || got.Type != "application/json" ||
		!strings.Contains(got.Body, `"items":[]`) || !strings.Contains(got.Body, `"kind":"PodList","apiVersion":"v1"`) {
		t.Errorf("no pods: got %+v", got)
	}
	config.Agent = &fakeAgent{pods: []*v1.Pod{newPod("a", "b")}}
	var list v1.PodList
	if err := json.Unmarshal([]byte(ask(t, newServer(t, config), http.MethodGet, "/pods").Body), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("got %+v", list)
	}
}

func TestSRV30_Watch(t *testing.T) {
	config := newConfig(t)
	config.Agent = &fakeAgent{events: []watch.Event{{Type: watch.Added, Object: newPod("a", "b")}, {Type: watch.Deleted, Object: newPod("a", "c")}}}
	for name, isHTTP1 := range map[string]bool{"HTTP/1.1": true, "HTTP/2": false} {
		t.Run(name, func(t *testing.T) {
			address, _ := serve(t, newServer(t, config))
			response := get(t, newClient(t, isHTTP1), "https://"+address+"/pods?watch=true", "u")
			defer response.Body.Close()
			decoder := json.NewDecoder(response.Body)
			for _, want := range []string{"ADDED b", "DELETED c"} {
				var event struct {
					Type   string
					Object v1.Pod
				}
				if err := decoder.Decode(&event); err != nil {
					t.Fatal(err)
				}
				if got := event.Type + " " + event.Object.Name; got != want || event.Object.Kind != "Pod" {
					t.Errorf("got %s of kind %q, want %s", got, event.Object.Kind, want)
				}
			}
		})
	}
}

func TestSRV31_Accept(t *testing.T) {
	s := newServer(t, newConfig(t))
	for accept, want := range map[string]int{
		"": 200, "*/*": 200, "application/json": 200, "text/html, application/json;q=0.9": 200, "application/*": 200,
		"application/yaml": 406, "application/vnd.kubernetes.protobuf": 406, "text/*": 406,
	} {
		if got := ask(t, s, http.MethodGet, "/pods", "Accept", accept); got.Code != want {
			t.Errorf("Accept %q: got %+v, want %d", accept, got, want)
		}
	}
}

func TestSRV32_DebuggingDisabled(t *testing.T) {
	config := fullConfig(t)
	config.Debugging.Enabled = false
	s := newServer(t, config)
	for _, path := range []string{"/run/a/b/c", "/exec/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/containerLogs/a/b/c", "/runningpods/", "/debug/pprof/", "/logs/"} {
		want := answer{405, plain, "Debug endpoints are disabled.\n"}
		if got := ask(t, s, http.MethodGet, path); got != want {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
	}
	for path, want := range map[string]int{"/configz": 404, "/healthz": 200, "/pods": 200, "/stats/summary": 200, "/metrics": 200} {
		if got := ask(t, s, http.MethodGet, path); got.Code != want {
			t.Errorf("%s: got %+v, want %d", path, got, want)
		}
	}
	config.Debugging = nodeserver.Debugging{Enabled: true}
	s = newServer(t, config)
	for path, want := range map[string]string{"/logs/x": "logs endpoint is disabled.\n", "/debug/pprof/heap": "profiling endpoint is disabled.\n"} {
		if got := ask(t, s, http.MethodGet, path); got != (answer{405, plain, want}) {
			t.Errorf("%s: got %+v, want %q", path, got, want)
		}
	}
}

func TestSRV_RunningPodsAndSummary(t *testing.T) {
	config := fullConfig(t)
	s := newServer(t, config)
	if got := ask(t, s, http.MethodGet, "/runningpods/"); got.Code != 200 || !strings.Contains(got.Body, `"name":"b"`) {
		t.Errorf("got %+v", got)
	}
	for path, want := range map[string]string{
		"/stats/summary": "all", "/stats/summary?only_cpu_and_memory=true": "cpu and memory", "/stats/summary?only_cpu_and_memory=1": "all",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if got := ask(t, s, method, path); got.Code != 200 || !strings.Contains(got.Body, `"nodeName": "`+want+`"`) {
				t.Errorf("%s %s: got %+v", method, path, got)
			}
		}
	}
	config.RunningPods = func(context.Context) ([]*v1.Pod, error) { return nil, errors.New("runtime is down") }
	if got := ask(t, newServer(t, config), http.MethodGet, "/runningpods/"); got != (answer{500, plain, "runtime is down"}) {
		t.Errorf("got %+v", got)
	}
}

// A file outside of the directory is not served, whatever links say; a pipe does not block.
func TestSRV33_LogsBelowRoot(t *testing.T) {
	config := newConfig(t)
	dir := config.Debugging.LogDir
	outside := filepath.Join(t.TempDir(), "secret")
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "syslog"), []byte("line\n"), 0o600),
		os.WriteFile(outside, []byte("secret"), 0o600),
		os.Symlink("syslog", filepath.Join(dir, "inside")),
		os.Symlink(outside, filepath.Join(dir, "link")),
		os.Symlink("../../../../../../../../etc", filepath.Join(dir, "etc")),
		os.Mkdir(filepath.Join(dir, "pods"), 0o700),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := newServer(t, config)
	for path, want := range map[string]answer{
		"/logs/syslog": {200, plain, "line\n"}, "/logs/inside": {200, plain, "line\n"},
	} {
		if got := ask(t, s, http.MethodGet, path); got != want {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
	}
	for _, path := range []string{"/logs/link", "/logs/etc/hostname", "/logs/pipe", "/logs/absent", "/logs/%2e%2e/secret"} {
		if got := ask(t, s, http.MethodGet, path); got.Code < 300 || strings.Contains(got.Body, "secret\n") {
			t.Errorf("%s: got %+v, want an error", path, got)
		}
	}
	if got := ask(t, s, http.MethodGet, "/logs/"); got.Code != 200 || !strings.Contains(got.Body, `href="pods/"`) {
		t.Errorf("listing: got %+v", got)
	}
}

func TestSRV36_RequestMetrics(t *testing.T) {
	config := fullConfig(t)
	registry := prometheus.NewPedanticRegistry()
	var err error
	if config.Requests, err = server.NewRequestMetrics(registry); err != nil { // shared with the local server
		t.Fatal(err)
	}
	s := newServer(t, config)
	for _, path := range []string{"/pods", "/pods/x", "/metrics/probes", "/exec/a/b/c", "/absent", "/x/y", "/metrics/absent", "/healthz/ping"} {
		ask(t, s, http.MethodGet, path)
	}
	ask(t, s, "BREW", "/pods")
	const want = `
# HELP kubelet_http_requests_total Number of requests to the agent's servers.
# TYPE kubelet_http_requests_total counter
kubelet_http_requests_total{long_running="false",method="GET",path="healthz",server_type="readwrite"} 1
kubelet_http_requests_total{long_running="false",method="GET",path="metrics/probes",server_type="readwrite"} 1
kubelet_http_requests_total{long_running="false",method="GET",path="other",server_type="readwrite"} 3
kubelet_http_requests_total{long_running="false",method="GET",path="pods",server_type="readwrite"} 2
kubelet_http_requests_total{long_running="false",method="other",path="pods",server_type="readwrite"} 1
kubelet_http_requests_total{long_running="true",method="GET",path="exec",server_type="readwrite"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubelet_http_requests_total"); err != nil {
		t.Error(err)
	}
}

func TestHealth(t *testing.T) {
	var err error
	health := nodeserver.NewHealth(nodeserver.Check{Name: "syncloop", Check: func() error { return err }})
	config := newConfig(t)
	config.Health = health
	s := newServer(t, config)
	check := func(path string, want answer) {
		t.Helper()
		for name, handler := range map[string]http.Handler{"10250": s, "10248 (SRV-35)": health.Handler()} {
			if diff := cmp.Diff(want, ask(t, handler, http.MethodGet, path)); diff != "" {
				t.Errorf("%s %s: %s", name, path, diff)
			}
		}
	}
	check("/healthz", answer{200, plain, "ok"})
	check("/healthz?verbose", answer{200, plain, "[+]ping ok\n[+]syncloop ok\nhealthz check passed\n"})
	check("/healthz?verbose&exclude=ping&exclude=x&exclude=a", answer{
		200, plain, "[+]ping excluded: ok\n[+]syncloop ok\nwarn: some health checks cannot be excluded: no matches for \"a\",\"x\"\nhealthz check passed\n",
	})
	err = errors.New("stuck")
	check("/healthz", answer{500, plain, "[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"})
	check("/healthz?exclude=syncloop", answer{200, plain, "ok"})
	check("/healthz/syncloop", answer{500, plain, "internal server error: stuck\n"})
	check("/healthz/ping", answer{200, plain, "ok"})
	if got := ask(t, s, http.MethodGet, "/metrics/slis"); !strings.Contains(got.Body, `kubernetes_healthcheck{name="syncloop",type="healthz"} 0`) ||
		!strings.Contains(got.Body, `kubernetes_healthchecks_total{name="syncloop",status="error",type="healthz"}`) {
		t.Errorf("got %+v", got)
	}
	if got := ask(t, s, http.MethodDelete, "/metrics/slis"); got.Code != 200 {
		t.Errorf("got %+v", got)
	}
	if got := ask(t, s, http.MethodGet, "/metrics/slis"); strings.Contains(got.Body, "syncloop") {
		t.Errorf("metrics were not reset: %+v", got)
	}
}

// Nothing is routed before the filter has let it in, not even a redirect or a path that does not exist.
func TestSRV24_FilterFirst(t *testing.T) {
	config := fullConfig(t)
	config.Require = func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "Unauthorized", http.StatusUnauthorized) })
	}
	s := newServer(t, config)
	for _, path := range []string{"/", "/absent", "/logs", "/runningpods", "/healthz", "/pods", "/a/../b"} {
		if got := ask(t, s, http.MethodGet, path); got.Code != http.StatusUnauthorized {
			t.Errorf("%s: got %+v", path, got)
		}
	}
}

// The containers' handler must be able to take over the connection through every wrapper (STR-7).
func TestSTR7_Hijack(t *testing.T) {
	config := newConfig(t)
	requests, err := server.NewRequestMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	config.Requests = requests
	config.Containers = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhijacked")
	})
	address, _ := serve(t, newServer(t, config))
	overHTTP1 := get(t, newClient(t, true), "https://"+address+"/exec/a/b/c", "u")
	defer overHTTP1.Body.Close()
	if got := readAll(t, overHTTP1); got != "hijacked" {
		t.Errorf("got %v %q", overHTTP1.Status, got)
	}
	overHTTP2 := get(t, newClient(t, false), "https://"+address+"/exec/a/b/c", "u") // SRV-6
	defer overHTTP2.Body.Close()
	if overHTTP2.StatusCode != http.StatusInternalServerError || overHTTP2.ProtoMajor != 2 {
		t.Errorf("got %v %v", overHTTP2.Proto, overHTTP2.Status)
	}
}
