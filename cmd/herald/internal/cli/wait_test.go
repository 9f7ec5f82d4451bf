package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/view"
)

// watchAgent serves a watch of pods whose events are given, one list for each connection. The last one stays open.
type watchAgent struct {
	t        *testing.T
	verdicts map[string]explain.Verdict // by namespace/name

	mu          sync.Mutex
	connections [][]view.WatchEvent // guarded by mu
}

func (a *watchAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch name, isExplain := strings.CutPrefix(r.URL.Path, "/herald/v1/explain/"); {
	case isExplain:
		_ = json.NewEncoder(w).Encode(view.Explanation{Kind: "Explanation", Verdict: a.verdicts[name]})
	case r.URL.Path == "/herald/v1/watch":
		a.serveWatch(w, r)
	case r.URL.Path == "/pods":
		_ = json.NewEncoder(w).Encode(v1.PodList{Items: []v1.Pod{*ready("default", "web")}})
	default:
		http.NotFound(w, r)
	}
}

func (a *watchAgent) serveWatch(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	if len(a.connections) == 0 {
		a.mu.Unlock()
		a.t.Error("one connection too many")
		return
	}
	events, isLast := a.connections[0], len(a.connections) == 1
	a.connections = a.connections[1:]
	a.mu.Unlock()
	for _, event := range events {
		_ = json.NewEncoder(w).Encode(event)
	}
	_ = http.NewResponseController(w).Flush()
	if isLast {
		<-r.Context().Done()
	}
}

func ready(namespace, name string) *v1.Pod {
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = namespace, name, "uid-1"
	pod.Status = v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1", Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
	return pod
}

// event returns an event about a pod in a state: Ready, Running, Pending, Succeeded or Failed.
func event(kind view.WatchType, name, state string) view.WatchEvent {
	pod := view.PodView{Kind: "PodView", Metadata: view.Metadata{Namespace: "default", Name: name, UID: "uid-1"}}
	pod.Local.Status.Phase = v1.PodPhase(state)
	if state == "Ready" {
		pod.Local.Status = ready("default", name).Status
	}
	return podEvent(kind, pod)
}

func podEvent(kind view.WatchType, pod view.PodView) view.WatchEvent {
	object, _ := json.Marshal(pod)
	return view.WatchEvent{Topic: "pods", Type: kind, Object: object}
}

// instance returns an event about an instance of the pod web that has another UID than those of event.
func instance(kind view.WatchType, uid, state, stage, code string) view.WatchEvent {
	pod := view.PodView{Kind: "PodView", Metadata: view.Metadata{Namespace: "default", Name: "web", UID: uid}}
	pod.Local.Status.Phase, pod.Worker.Stage, pod.Why.Code = v1.PodPhase(state), stage, code
	if state == "Ready" {
		pod.Local.Status = ready("default", "web").Status
	}
	return podEvent(kind, pod)
}

var synced = view.WatchEvent{Topic: "pods", Type: view.Synced}

func TestWait(t *testing.T) {
	const never = `default/web cannot become Ready: web will never be Ready` + "\n"
	type events = []view.WatchEvent
	final := map[string]explain.Verdict{"default/web": {Code: "InvalidImageName", Headline: "web will never be Ready", Final: true}}
	pending := map[string]explain.Verdict{"default/web": {Headline: "web is not Ready: it starts"}}
	tests := map[string]struct {
		args        string
		connections []events
		verdicts    map[string]explain.Verdict
		status      int
		want        []string // in the output
	}{
		"ready already":       {"web --for=condition=Ready", []events{{event(view.Added, "web", "Ready"), synced}}, nil, 0, []string{"default/web Ready after "}},
		"becomes ready":       {"web --for=condition=ready", []events{{event(view.Added, "web", "Pending"), synced, event(view.Modified, "web", "Ready")}}, pending, 0, []string{"default/web ready after "}},
		"created later":       {"web --for=condition=Ready", []events{{synced, event(view.Added, "web", "Ready")}}, nil, 0, []string{"default/web Ready after "}},
		"two names":           {"web db --for=condition=Ready", []events{{event(view.Added, "web", "Ready"), synced, event(view.Added, "db", "Ready")}}, nil, 0, []string{"default/web Ready", "default/db Ready"}},
		"selector":            {"-l app=web --for=condition=Ready", []events{{synced, event(view.Added, "web", "Ready")}}, nil, 0, []string{"default/web Ready"}},
		"all":                 {"--all --for=create", []events{{event(view.Added, "web", "Pending"), synced}}, nil, 0, []string{"default/web created"}},
		"phase":               {"web --for=phase=succeeded", []events{{event(view.Added, "web", "Running"), synced, event(view.Modified, "web", "Succeeded")}}, pending, 0, []string{"default/web Succeeded"}},
		"not any more":        {"web --for=condition=Ready=false", []events{{event(view.Added, "web", "Ready"), synced}}, nil, 1, []string{"timed out"}},
		"jsonpath":            {"web --for=jsonpath={.status.podIP}", []events{{event(view.Added, "web", "Ready"), synced}}, nil, 0, []string{"default/web {.status.podIP} after"}},
		"jsonpath with value": {"web --for=jsonpath=.status.phase=Running", []events{{event(view.Added, "web", "Ready"), synced}}, nil, 0, []string{"default/web {.status.phase}=Running after"}},
		"other value":         {"web --for=jsonpath={.status.phase}=Failed", []events{{event(view.Added, "web", "Ready"), synced}}, nil, 1, []string{"timed out"}},
		"final":               {"web --for=condition=Ready --timeout=1h", []events{{event(view.Added, "web", "Pending"), synced}}, final, 1, []string{never}},
		"another phase":       {"web --for=phase=Succeeded --timeout=1h", []events{{event(view.Added, "web", "Failed"), synced}}, nil, 1, []string{"default/web cannot become Succeeded: it has Failed\n"}},
		"timeout":             {"web --for=condition=Ready", []events{{event(view.Added, "web", "Pending"), synced}}, pending, 1, []string{"timed out after 100ms waiting for condition=Ready\n"}},
		"no pod":              {"web --for=condition=Ready --timeout=0", []events{{synced}}, nil, 1, []string{"web does not exist"}},
		"none selected":       {"-l app=web --for=condition=Ready --timeout=0", []events{{synced}}, nil, 1, []string{"no pods are selected"}},
		"check once":          {"web --for=condition=Ready --timeout=0", []events{{event(view.Added, "web", "Pending"), synced}}, pending, 1, []string{"condition not met: condition=Ready\ndefault/web: web is not Ready: it starts\n"}},
		"check once, ready":   {"web --for=condition=Ready --timeout=0", []events{{event(view.Added, "web", "Ready"), synced}}, nil, 0, []string{"default/web Ready"}},
		"deleted already":     {"web --for=delete", []events{{synced}}, nil, 0, nil},
		"deleted":             {"web --for=delete", []events{{event(view.Added, "web", "Ready"), synced, event(view.Deleted, "web", "Ready")}}, nil, 0, []string{"default/web deleted after"}},
		"deleted and again":   {"web --for=delete", []events{{event(view.Added, "web", "Ready"), synced, event(view.Deleted, "web", "Ready"), event(view.Added, "web", "Ready")}}, nil, 0, []string{"default/web deleted after"}},
		"not deleted":         {"web --for=delete", []events{{event(view.Added, "web", "Ready"), synced}}, nil, 1, []string{"timed out"}},
		"agent restarts":      {"web --for=condition=Ready --timeout=1h", []events{{event(view.Added, "web", "Pending"), synced}, {}, {event(view.Added, "web", "Ready"), synced}}, pending, 0, []string{"Waiting for the agent at ", "default/web Ready"}},
		"deleted meanwhile":   {"web --for=delete --timeout=1h", []events{{event(view.Added, "web", "Ready"), synced}, {synced}}, nil, 0, []string{"default/web deleted after"}},
		"list is cut":         {"--all --for=delete --timeout=1h", []events{{event(view.Added, "web", "Ready")}, {event(view.Added, "web", "Ready"), synced, event(view.Deleted, "web", "Ready")}}, nil, 0, []string{"default/web deleted after"}},
		"replaced": {"web --for=condition=Ready", []events{{
			event(view.Added, "web", "Pending"), synced, instance(view.Modified, "uid-2", "Ready", "sync", "Ready"),
		}}, pending, 0, []string{"default/web Ready"}},
		"being replaced": {"web --for=condition=Ready", []events{{
			instance(view.Added, "uid-2", "Ready", "sync", "Ready"), instance(view.Added, "uid-1", "Running", "terminating", "Terminating"), synced,
		}}, pending, 0, []string{"default/web Ready"}},
		"deleted and replaced": {"web --for=delete", []events{{
			event(view.Added, "web", "Ready"), synced, instance(view.Modified, "uid-2", "Pending", "sync", explain.CodeWaitsForName),
			instance(view.Modified, "uid-2", "Running", "sync", "Ready"),
		}}, nil, 0, []string{"default/web deleted after"}},
		"not replaced yet": {"web --for=delete", []events{{
			event(view.Added, "web", "Ready"), synced, instance(view.Modified, "uid-2", "Pending", "sync", explain.CodeWaitsForName),
		}}, nil, 1, []string{"timed out"}},
		"comes and goes": {"web --for=condition=Ready", []events{{event(view.Added, "web", "Pending"), synced, event(view.Deleted, "web", "Pending"), event(view.Added, "web", "Ready")}}, pending, 0, []string{"default/web Ready"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(&watchAgent{t: t, connections: test.connections, verdicts: test.verdicts})
			defer server.Close()
			args := append([]string{"wait", "pod", "-s", server.URL, "--timeout=1h"}, strings.Fields(test.args)...)
			if test.status == 1 && !strings.Contains(test.args, "--timeout") {
				args = append(args, "--timeout=100ms")
			}
			got := runHerald(args...)
			for _, want := range test.want {
				if !strings.Contains(got.stdout+got.stderr, want) {
					t.Errorf("got %q, %q, want %q", got.stdout, got.stderr, want)
				}
			}
			if got.status != test.status {
				t.Errorf("got exit status %d, %q, %q, want %d", got.status, got.stdout, got.stderr, test.status)
			}
		})
	}
}

// The time-out ends with status 3 only if the agent is still away.
func TestWait_Unreachable(t *testing.T) {
	for _, timeout := range []string{"0", "50ms"} {
		got := runHerald("wait", "pod", "web", "--for=delete", "-s", "unix:///nowhere/herald.sock", "--timeout", timeout)
		if got.status != 3 || !strings.Contains(got.stderr, "cannot connect to the agent") {
			t.Errorf("timeout %s: got exit status %d, %q, want 3", timeout, got.status, got.stderr)
		}
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	got := runHerald("wait", "pod", "web", "--for=delete", "-s", server.URL, "--timeout", "1h")
	if got.status != 1 || !strings.Contains(got.stderr, "is it older than this command?") {
		t.Errorf("other server: got exit status %d, %q, want 1", got.status, got.stderr)
	}
}
