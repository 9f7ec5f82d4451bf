package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/view"
)

// cannedAgent serves fixed responses by method and path, and keeps the last query.
type cannedAgent struct {
	responses map[string]any
	query     string
}

func (a *cannedAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.query = r.URL.RawQuery
	response, found := a.responses[r.Method+" "+r.URL.Path]
	if status, isStatus := response.(metav1.Status); isStatus {
		w.WriteHeader(int(status.Code))
	} else if !found {
		w.WriteHeader(http.StatusNotFound)
		response = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Status: "Failure", Code: 404, Message: r.URL.Path + " not found"}
	}
	_ = json.NewEncoder(w).Encode(response)
}

func startCannedAgent(t *testing.T, responses map[string]any) (agent *cannedAgent, address string) {
	t.Helper()
	agent = &cannedAgent{responses: responses}
	server := httptest.NewServer(agent)
	t.Cleanup(server.Close)
	return agent, server.URL
}

func ago(d time.Duration) *view.Time { return view.NewTime(time.Now().Add(-d)) }

func crashingView() view.PodView {
	return view.PodView{
		Kind: "PodView", Metadata: view.Metadata{Namespace: "shop", Name: "cart-n1", UID: "1", CreationTimestamp: ago(61*time.Minute + 30*time.Second)},
		Spec: view.Spec{NodeName: "n1", Containers: []view.Container{{Name: "web", Kind: "regular"}}},
		Local: view.Status{Version: 913, Status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
			Name: "web", RestartCount: 14, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				ExitCode: 3, FinishedAt: metav1.NewTime(time.Now().Add(-150 * time.Second)),
			}},
		}}}},
		Lag: view.Lag{State: explain.SyncWaiting, Behind: 2, SinceMs: 161_000, Reason: "connection refused"},
		Why: view.Why{Code: "CrashLoopBackOff", Text: "web exits 3 after 1.2s\x1b[2J; next start in 4m58s", Since: ago(time.Hour)},
	}
}

func readyView() view.PodView {
	return view.PodView{
		Kind: "PodView", Metadata: view.Metadata{Namespace: "shop", Name: "web-n1", UID: "2", CreationTimestamp: ago(72*time.Hour + time.Minute)},
		Spec: view.Spec{NodeName: "n1", Containers: []view.Container{{Name: "proxy", Kind: "sidecar"}, {Name: "web", Kind: "regular"}}},
		Local: view.Status{Version: 7, Status: v1.PodStatus{
			Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
			InitContainerStatuses: []v1.ContainerStatus{{
				Name: "proxy", Ready: true, Started: new(true), State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
			}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "web", Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}},
		}},
		Lag: view.Lag{State: explain.SyncSynced, TookMs: 41},
		Why: view.Why{OK: true, Code: "Ready", Text: "ready since 2d4h"},
	}
}

func TestGet_Why(t *testing.T) {
	agent, address := startCannedAgent(t, map[string]any{
		"GET /herald/v1/pods": view.PodViewList{Items: []view.PodView{crashingView(), readyView()}},
	})
	got := runHerald("get", "pods", "-s", address, "-A", "-o", "why", "-l", "app=web", "--where", "pod.lag.behind > 0")
	want := result{0, `NAMESPACE   NAME      READY   STATUS             RESTARTS         AGE   SYNC            WHY
shop        cart-n1   0/1     CrashLoopBackOff   14 (2m30s ago)   61m   waiting 2m41s   web exits 3 after 1.2s^[[2J; next start in 4m58s
shop        web-n1    2/2     Running            0                3d    ok 41ms         ready since 2d4h
`, ""}
	got.stdout = regexp.MustCompile(`2m\d+s ago`).ReplaceAllString(got.stdout, "2m30s ago")
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Error(diff)
	}
	if want := "labelSelector=app%3Dweb&where=pod.lag.behind+%3E+0"; agent.query != want {
		t.Errorf("got query %s, want %s", agent.query, want)
	}
	for args, want := range map[string]result{
		"pods -n shop -o why cart": {1, "", "herald: pods \"cart\" not found; did you mean the static pod cart-n1?\n"},
		"pods -n other -o why":     {0, "", "No resources found in other namespace.\n"},
		"pods -o why web-n1":       {1, "", "herald: pods \"web-n1\" not found in namespace default; it exists in namespace shop\n"},
	} {
		got := runHerald(append([]string{"get", "-s", address}, strings.Fields(args)...)...)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%s: %s", args, diff)
		}
	}
}

func TestGet_WhereInvalid(t *testing.T) {
	_, address := startCannedAgent(t, map[string]any{
		"GET /pods": v1.PodList{},
		"GET /herald/v1/pods": metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status"}, Status: "Failure", Code: 400, Message: "where: undeclared reference to 'x'",
		},
	})
	for _, format := range []string{"", "why"} {
		got := runHerald("get", "pods", "-s", address, "--where", "x", "-o", format)
		if want := (result{2, "", "herald: where: undeclared reference to 'x'\n"}); got != want {
			t.Errorf("-o %s: got %v, want %v", format, got, want)
		}
	}
}

func TestStatus(t *testing.T) {
	node := view.NodeView{
		Kind: "NodeView", Metadata: view.Metadata{Name: "n1"}, Connection: view.Connection{Cluster: "https://10.0.0.1:6443"},
		Local: view.NodeStatus{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
			{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue, Message: "disk is 91 % full"},
			{Type: v1.NodeReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-12*24*time.Hour - time.Minute))},
		}}},
		Pods:    view.PodCounts{Total: 3, Max: 110, Ready: 1, Starting: 1, NotWell: 1},
		Agent:   view.Agent{Version: "v0.4.0", StartedAt: ago(3*time.Hour + time.Minute), RSSBytes: 41_500_000, CPU: 0.009},
		Runtime: view.Runtime{Name: "containerd", Version: "1.6.20"},
		Sources: []view.Source{
			{Name: "file", State: "error", Pods: 2, Problems: []view.Problem{{Message: "db.yaml:14: spec.imag: unknown field"}}}, {Name: "api", State: "ok", Pods: 1},
		},
		History: view.History{Bytes: 31 << 20, Oldest: ago(12*24*time.Hour + time.Minute)},
		Load:    busyLoad(),
	}
	responses := map[string]any{
		"GET /herald/v1/node": node, "GET /herald/v1/pods": view.PodViewList{Items: []view.PodView{readyView(), crashingView()}},
	}
	_, address := startCannedAgent(t, responses)
	got := runHerald("status", "-s", address)
	got.stdout = regexp.MustCompile(`since [0-9:]+`).ReplaceAllString(got.stdout, "since 13:00:00")
	got.stdout = regexp.MustCompile(`busy for 4m\d+s`).ReplaceAllString(got.stdout, "busy for 4m30s")
	want := result{0, `node        n1  Ready 12d    agent v0.4.0 up 3h1m, 41 MB, 0.9 % cpu
            DiskPressure: disk is 91 % full
load        0.83 memory (busy for 4m30s)    data+logs 91% full, full in 3.5h; images read-only
pods        3 of 110: 1 ready, 1 starting, 1 not well    runtime containerd 1.6.20 ok    network ok
cluster     https://10.0.0.1:6443  1 unsent, oldest 2m41s: connection refused    history 31.0 MiB, 12d
sources     file error (2): db.yaml:14: spec.imag: unknown field, api ok (1)
not well    shop/cart-n1   web exits 3 after 1.2s^[[2J; next start in 4m58s   since 13:00:00
`, ""}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Error(diff)
	}
	if got := runHerald("status", "-s", address, "-o", "jsonpath={.pods.notWell} {.agent.rssBytes}"); got.stdout != "1 41500000" {
		t.Errorf("got %q", got.stdout)
	}
	node.Agent.Latencies = view.Latencies{StatusLagP99Ms: new(int64(52)), RuntimeP99Ms: new(int64(4))}
	responses["GET /herald/v1/node"], responses["GET /herald/v1/pods"] = node, view.PodViewList{Items: []view.PodView{readyView()}}
	for _, want := range []string{"https://10.0.0.1:6443  synced, p99 52ms    history", "runtime containerd 1.6.20 ok, p99 4ms    network"} {
		if got := runHerald("status", "-s", address); !strings.Contains(got.stdout, want) {
			t.Errorf("got %s, want %q", got.stdout, want)
		}
	}
	node.Local.Status.Conditions, node.Cluster, node.Sources = nil, "", nil
	node.Runtime = view.Runtime{Name: "process", Problem: "no answer", Network: "no plugin"}
	node.Load, node.CertificateProblem = &view.NodeLoad{Level: "unknown"}, "the client certificate expired; renew it"
	responses["GET /herald/v1/node"], responses["GET /herald/v1/pods"] = node, view.PodViewList{}
	got = runHerald("status", "-s", address)
	for _, want := range []string{"n1  not known yet", "runtime process: no answer    network: no plugin", "cluster     none  ", "sources     none", "certificate the client certificate expired; renew it\n", "load        no sample yet\n"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("got %s, want %q", got.stdout, want)
		}
	}
}

func TestExplain_ExitStatus(t *testing.T) {
	verdict := func(ok bool) view.Explanation {
		return view.Explanation{Kind: "Explanation", Verdict: explain.Verdict{OK: ok, Code: "X", Headline: "cart-n1 is so\x1b[2J"}}
	}
	agent, address := startCannedAgent(t, map[string]any{
		"GET /herald/v1/explain/shop/cart-n1": verdict(false), "GET /herald/v1/explain/shop/web-n1": verdict(true),
		"GET /pods": v1.PodList{Items: []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-n1"}, Spec: v1.PodSpec{NodeName: "n1"}}}},
	})
	for args, want := range map[string]result{
		"explain cart-n1":                          {1, "! cart-n1 is so^[[2J\n", ""},
		"why pod cart-n1 --question Ready":         {1, "! cart-n1 is so^[[2J\n", ""},
		"why pod/web-n1":                           {0, "! cart-n1 is so^[[2J\n", ""},
		"explain web-n1 -o jsonpath={.verdict.ok}": {0, "true", ""},
		"explain cart":                             {1, "", "herald: pods \"cart\" not found; did you mean the static pod cart-n1?\n"},
		"explain cart-n1 --question x":             {2, "", "herald: --question x: must be ready, running, deleted or restarting\n"},
	} {
		got := runHerald(append(strings.Fields(args), "-n", "shop", "-s", address)...)
		if got != want {
			t.Errorf("%s: got %v, want %v", args, got, want)
		}
		if strings.Contains(args, "Ready") && agent.query != "q=Ready" {
			t.Errorf("%s: got query %s", args, agent.query)
		}
	}
}

func TestSources(t *testing.T) {
	_, address := startCannedAgent(t, map[string]any{"GET /herald/v1/sources": view.SourceList{Items: []view.Source{
		{
			Name: "file", State: "error", Origin: "/etc/kubernetes/manifests", Pods: 9, Ignored: []string{"web.yaml.bak (extension)"},
			Problems: []view.Problem{{Pod: "shop/db", Message: "db.yaml:14: spec.imag: unknown field"}, {Message: "x.yaml: empty"}},
		},
		{Name: "api", State: "ok", Origin: "https://10.0.0.1:6443", Pods: 18},
	}}})
	want := result{0, `SOURCE   STATE      PODS   LAST CHANGE   ORIGIN                      PROBLEM
file     2 errors   9      -             /etc/kubernetes/manifests   shop/db: db.yaml:14: spec.imag: unknown field
                                                                     x.yaml: empty
         ignored                                                     web.yaml.bak (extension)
api      ok         18     -             https://10.0.0.1:6443
`, ""}
	if diff := cmp.Diff(want, runHerald("sources", "-s", address), cmp.AllowUnexported(result{})); diff != "" {
		t.Error(diff)
	}
}

func TestProbe(t *testing.T) {
	check := func(kind explain.ProbeKind, ok bool) view.ProbeCheck {
		return view.ProbeCheck{Container: "web", ProbeKind: kind, Target: "http-get :8080/ready", Answer: view.Answer{OK: ok, TookMs: 12, Message: "HTTP 503"}}
	}
	responses := map[string]any{
		"GET /pods":             v1.PodList{},
		"POST /herald/v1/probe": view.ProbeCheckList{Items: []view.ProbeCheck{check(explain.Readiness, false), check(explain.Liveness, true)}},
	}
	_, address := startCannedAgent(t, responses)
	want := result{1, `CONTAINER   PROBE       TARGET                 RESULT    TOOK   MESSAGE
web         readiness   http-get :8080/ready   failure   12ms   HTTP 503
web         liveness    http-get :8080/ready   success   12ms   HTTP 503
`, ""}
	if diff := cmp.Diff(want, runHerald("probe", "web-n1", "-s", address), cmp.AllowUnexported(result{})); diff != "" {
		t.Error(diff)
	}
	responses["POST /herald/v1/probe"] = view.ProbeCheckList{Items: []view.ProbeCheck{check(explain.Liveness, true)}}
	if got := runHerald("probe", "web-n1", "-s", address, "-c", "web", "--kind", "liveness", "-o", "json"); got.status != 0 || !strings.Contains(got.stdout, `"items": [`) {
		t.Errorf("got %v, want status 0 and a list", got)
	}
	responses["POST /herald/v1/probe"] = metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status"}, Status: "Failure", Code: 403, Message: "only through the unix socket",
	}
	if got, want := runHerald("probe", "web-n1", "-s", address), (result{1, "", "herald: only through the unix socket\n"}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
