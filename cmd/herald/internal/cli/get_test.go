package cli_test

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/server"
)

// fakeAgent has three pods. During a watch one changes, one is added and one is deleted; then the watch ends.
type fakeAgent struct{ created time.Time }

func (a fakeAgent) pod(namespace, name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, CreationTimestamp: metav1.NewTime(a.created), Labels: map[string]string{"app": name},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "test"}},
		},
		Spec:   v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "main"}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}},
	}
}

func (a fakeAgent) LocalPods() []*v1.Pod {
	return []*v1.Pod{a.pod("default", "db-n1"), a.pod("default", "web"), a.pod("shop", "web")}
}

func (a fakeAgent) WatchLocalPods(context.Context) iter.Seq[watch.Event] {
	return func(yield func(watch.Event) bool) {
		for _, pod := range a.LocalPods() {
			if !yield(watch.Event{Type: watch.Added, Object: pod}) {
				return
			}
		}
		changed, added := a.pod("default", "web"), a.pod("default", "longer-name")
		changed.Status.Phase = v1.PodSucceeded
		_ = yield(watch.Event{Type: watch.Modified, Object: changed}) &&
			yield(watch.Event{Type: watch.Added, Object: added}) && yield(watch.Event{Type: watch.Deleted, Object: a.pod("shop", "web")})
	}
}

func (fakeAgent) Healthy() error { return nil }

// startFakeAgent returns the address of a server of a fakeAgent.
func startFakeAgent(t *testing.T) string {
	t.Helper()
	handler, err := server.New(server.Config{Agent: fakeAgent{time.Now().Add(-time.Hour).Truncate(time.Second)}})
	if err != nil {
		t.Fatal(err)
	}
	httpServer := httptest.NewServer(handler)
	t.Cleanup(httpServer.Close)
	return strings.TrimPrefix(httpServer.URL, "http://")
}

// The output is the same as that of kubectl get pods.
func TestGet_Table(t *testing.T) {
	const closed = "herald: the agent at ADDRESS closed the connection\n"
	tests := map[string]struct {
		args           string
		status         int
		stdout, stderr string
	}{
		"namespace":              {"pods", 0, "NAME    READY   STATUS    RESTARTS   AGE\ndb-n1   0/1     Running   0          60m\nweb     0/1     Running   0          60m\n", ""},
		"all namespaces":         {"po -A --no-headers", 0, "default   db-n1   0/1   Running   0     60m\ndefault   web     0/1   Running   0     60m\nshop      web     0/1   Running   0     60m\n", ""},
		"wide":                   {"pod -n shop -o wide", 0, "NAME   READY   STATUS    RESTARTS   AGE   IP         NODE   NOMINATED NODE   READINESS GATES\nweb    0/1     Running   0          60m   10.0.0.1   n1     <none>           <none>\n", ""},
		"output name":            {"pods -A -o name", 0, "pod/db-n1\npod/web\npod/web\n", ""},
		"order of names":         {"pod/web pods/db-n1 -o name", 0, "pod/web\npod/db-n1\n", ""},
		"label selector":         {"pods -l app!=web -o name", 0, "pod/db-n1\n", ""},
		"field selector":         {"pods -A --field-selector metadata.namespace=shop,status.phase=Running -o name", 0, "pod/web\n", ""},
		"empty namespace flag":   {"pods web --no-headers --namespace=", 0, "web   0/1   Running   0     60m\n", ""},
		"none in namespace":      {"pods -n empty", 0, "", "No resources found in empty namespace.\n"},
		"none at all":            {"pods -A -l app=none", 0, "", "No resources found\n"},
		"no names":               {"pods -n empty -o name", 0, "", ""},
		"empty list":             {"pods -n empty -o yaml", 0, "apiVersion: v1\nitems: []\nkind: List\nmetadata:\n  resourceVersion: \"\"\n", ""},
		"one missing":            {"pods other web --no-headers", 1, "web   0/1   Running   0     60m\n", "herald: pods \"other\" not found\n"},
		"static pod":             {"pods db", 1, "", "herald: pods \"db\" not found; did you mean the static pod db-n1?\n"},
		"other namespace":        {"pods web -n other -o json", 1, "", "herald: pods \"web\" not found in namespace other; it exists in namespace default\n"},
		"ignore not found":       {"pods other --ignore-not-found", 0, "", ""},
		"watch":                  {"pods -w", 3, "NAME    READY   STATUS    RESTARTS   AGE\ndb-n1   0/1     Running   0          60m\nweb     0/1     Running   0          60m\nweb     0/1     Succeeded   0          60m\nlonger-name   0/1     Running     0          60m\n", closed},
		"watch only":             {"pods -A --watch-only --no-headers", 3, "default   web   0/1   Succeeded   0     60m\ndefault   longer-name   0/1   Running     0     60m\nshop      web           0/1   Running     0     60m\n", closed},
		"watch one not existing": {"pods longer-name -w -o name", 3, "pod/longer-name\n", closed},
	}
	address := startFakeAgent(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := runHerald(append([]string{"get", "--server", address}, strings.Fields(test.args)...)...)
			want := result{test.status, test.stdout, strings.ReplaceAll(test.stderr, "ADDRESS", address)}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGet_Objects(t *testing.T) {
	address := startFakeAgent(t)
	t.Run("list", func(t *testing.T) {
		got := runHerald("get", "pods", "--server", address, "-A", "-o", "json")
		if !strings.HasPrefix(got.stdout, "{\n    \"apiVersion\": \"v1\",\n    \"items\": [\n        {\n            \"apiVersion\": \"v1\",\n            \"kind\": \"Pod\",") ||
			!strings.HasSuffix(got.stdout, "    ],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n") {
			t.Errorf("got %s, want a List", got.stdout)
		}
		var list v1.PodList
		if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || len(list.Items) != 3 || strings.Contains(got.stdout, "managedFields") {
			t.Errorf("got error %v, output %s, want three pods without managed fields", err, got.stdout)
		}
	})
	t.Run("one pod", func(t *testing.T) {
		got := runHerald("get", "pod", "web", "--server", address, "-o", "yaml")
		if !strings.HasPrefix(got.stdout, "apiVersion: v1\nkind: Pod\nmetadata:\n  creationTimestamp: ") {
			t.Errorf("got %s, want a Pod", got.stdout)
		}
	})
	t.Run("name in all namespaces", func(t *testing.T) {
		got := runHerald("get", "pod", "web", "-A", "--server", address, "-o", "yaml")
		if strings.Count(got.stdout, "\n  kind: Pod\n") != 2 {
			t.Errorf("got %s, want a List of two pods", got.stdout)
		}
	})
	t.Run("watch", func(t *testing.T) {
		got := runHerald("get", "pod", "web", "-w", "--server", address, "-o", "yaml")
		if documents := strings.Split(got.stdout, "---\n"); len(documents) != 2 || !strings.Contains(documents[1], "phase: Succeeded") {
			t.Errorf("got %s, want two documents", got.stdout)
		}
	})
}

func TestGet_Completion(t *testing.T) {
	t.Setenv("HERALD_SERVER", startFakeAgent(t))
	for args, want := range map[string]string{ // | separates the word to complete
		"get pods |":             "db-n1\nweb\n",
		"get pods web |":         "db-n1\n",
		"get pods -n shop |":     "web\n",
		"get |pod/":              "pod/db-n1\npod/web\n",
		"get pods --namespace |": "default\nshop\n",
	} {
		words, last, _ := strings.Cut(args, "|")
		output := runHerald(append(append([]string{"__complete"}, strings.Fields(words)...), last)...)
		if got, _, _ := strings.Cut(output.stdout, ":"); got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
}

func TestGet_Unreachable(t *testing.T) {
	for name, address := range map[string]string{"socket": "unix://" + filepath.Join(t.TempDir(), "none.sock"), "port": "http://127.0.0.1:1/"} {
		got := runHerald("get", "pods", "--server", address)
		if got.status != 3 || !strings.Contains(got.stderr, "herald run") {
			t.Errorf("%s: got exit status %d, error %q, want 3, herald run", name, got.status, got.stderr)
		}
	}
}

func TestGet_Timeout(t *testing.T) {
	address := "unix://" + filepath.Join(shortTempDir(t), "s")
	listener, err := server.Listen(t.Context(), address) // never accepts
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, args := range [][]string{{}, {"--watch"}} {
		got := runHerald(append([]string{"get", "pods", "--server", address, "--request-timeout", "10ms"}, args...)...)
		if got.status != 3 || !strings.Contains(got.stderr, "did not respond in time\nThe agent may be stopped") {
			t.Errorf("%v: got exit status %d, error %q, want 3, did not respond", args, got.status, got.stderr)
		}
	}
}

// Control characters in responses do not reach the terminal.
func TestGet_ControlCharacters(t *testing.T) {
	const pods = `{"items": [{"metadata": {"name": "\u001b[2Jx", "namespace": "default"}}, {"metadata": {"name": "y", "namespace": "\u001b[2J"}},
		{"metadata": {"name": "z-\u001b[2J", "namespace": "default"}, "spec": {"nodeName": "\u001b[2J"}}]}`
	writePods := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, pods) }
	for args, handler := range map[string]http.HandlerFunc{
		"-o name": writePods,
		"y":       writePods,
		"z":       writePods,
		"x":       func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "\x1b[2Jno", http.StatusTeapot) },
	} {
		httpServer := httptest.NewServer(handler)
		got := runHerald(append([]string{"get", "pods", "--server", httpServer.URL}, strings.Fields(args)...)...)
		httpServer.Close()
		if output := got.stdout + got.stderr; !strings.Contains(output, "^[[2J") || strings.Contains(output, "\x1b") {
			t.Errorf("%s: got %q, want escaped control characters", args, output)
		}
	}
}
