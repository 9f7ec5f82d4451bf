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

// node has three pods, of which one changes, one comes and one goes while somebody watches; then it ends.
type node struct{ born time.Time }

func (n node) pod(namespace, name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, CreationTimestamp: metav1.NewTime(n.born), Labels: map[string]string{"app": name},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "somebody"}},
		},
		Spec:   v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "main"}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}},
	}
}

func (n node) LocalPods() []*v1.Pod {
	return []*v1.Pod{n.pod("default", "db-n1"), n.pod("default", "web"), n.pod("shop", "web")}
}

func (n node) WatchLocalPods(context.Context) iter.Seq[watch.Event] {
	return func(yield func(watch.Event) bool) {
		for _, p := range n.LocalPods() {
			if !yield(watch.Event{Type: watch.Added, Object: p}) {
				return
			}
		}
		changed, added := n.pod("default", "web"), n.pod("default", "longer-name")
		changed.Status.Phase = v1.PodSucceeded
		_ = yield(watch.Event{Type: watch.Modified, Object: changed}) &&
			yield(watch.Event{Type: watch.Added, Object: added}) && yield(watch.Event{Type: watch.Deleted, Object: n.pod("shop", "web")})
	}
}

func (node) Healthy() error { return nil }

// agentAt is the address of an agent of that node.
func agentAt(t *testing.T) string {
	t.Helper()
	s, err := server.New(server.Config{Agent: node{time.Now().Add(-time.Hour).Truncate(time.Second)}})
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(s)
	t.Cleanup(listening.Close)
	return strings.TrimPrefix(listening.URL, "http://")
}

func TestGetPodsPrintsWhatKubectlWould(t *testing.T) {
	const ended = "herald: the agent at ADDRESS has ended\n"
	tests := map[string]struct {
		args     string
		status   int
		out, err string
	}{
		"a table":              {"pods", 0, "NAME    READY   STATUS    RESTARTS   AGE\ndb-n1   0/1     Running   0          60m\nweb     0/1     Running   0          60m\n", ""},
		"all":                  {"po -A --no-headers", 0, "default   db-n1   0/1   Running   0     60m\ndefault   web     0/1   Running   0     60m\nshop      web     0/1   Running   0     60m\n", ""},
		"wide":                 {"pod -n shop -o wide", 0, "NAME   READY   STATUS    RESTARTS   AGE   IP         NODE   NOMINATED NODE   READINESS GATES\nweb    0/1     Running   0          60m   10.0.0.1   n1     <none>           <none>\n", ""},
		"names":                {"pods -A -o name", 0, "pod/db-n1\npod/web\npod/web\n", ""},
		"as they are named":    {"pod/web pods/db-n1 -o name", 0, "pod/web\npod/db-n1\n", ""},
		"a label":              {"pods -l app!=web -o name", 0, "pod/db-n1\n", ""},
		"fields":               {"pods -A --field-selector metadata.namespace=shop,status.phase=Running -o name", 0, "pod/web\n", ""},
		"no namespace":         {"pods web --no-headers --namespace=", 0, "web   0/1   Running   0     60m\n", ""},
		"nothing there":        {"pods -n empty", 0, "", "No resources found in empty namespace.\n"},
		"nothing anywhere":     {"pods -A -l app=none", 0, "", "No resources found\n"},
		"no names":             {"pods -n empty -o name", 0, "", ""},
		"no list":              {"pods -n empty -o yaml", 0, "apiVersion: v1\nitems: []\nkind: List\nmetadata:\n  resourceVersion: \"\"\n", ""},
		"one is missing":       {"pods other web --no-headers", 1, "web   0/1   Running   0     60m\n", "herald: pods \"other\" not found\n"},
		"a static pod":         {"pods db", 1, "", "herald: pods \"db\" not found; a static pod's name ends with the node's: db-n1\n"},
		"elsewhere":            {"pods web -n other -o json", 1, "", "herald: pods \"web\" not found in the namespace other; there is one in default\n"},
		"missing is all right": {"pods other --ignore-not-found", 0, "", ""},
		"followed":             {"pods -w", 3, "NAME    READY   STATUS    RESTARTS   AGE\ndb-n1   0/1     Running   0          60m\nweb     0/1     Running   0          60m\nweb     0/1     Succeeded   0          60m\nlonger-name   0/1     Running     0          60m\n", ended},
		"changes only":         {"pods -A --watch-only --no-headers", 3, "default   web   0/1   Succeeded   0     60m\ndefault   longer-name   0/1   Running     0     60m\nshop      web           0/1   Running     0     60m\n", ended},
		"one followed":         {"pods longer-name -w -o name", 3, "pod/longer-name\n", ended},
	}
	at := agentAt(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := herald(append([]string{"get", "--server", at}, strings.Fields(test.args)...)...)
			if diff := cmp.Diff(result{test.status, test.out, strings.ReplaceAll(test.err, "ADDRESS", at)}, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGetPodsPrintsObjectsAsKubectlDoes(t *testing.T) {
	at := agentAt(t)
	t.Run("a list", func(t *testing.T) {
		got := herald("get", "pods", "--server", at, "-A", "-o", "json")
		if !strings.HasPrefix(got.out, "{\n    \"apiVersion\": \"v1\",\n    \"items\": [\n        {\n            \"apiVersion\": \"v1\",\n            \"kind\": \"Pod\",") ||
			!strings.HasSuffix(got.out, "    ],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n") {
			t.Error(got.out)
		}
		var list v1.PodList
		if err := json.Unmarshal([]byte(got.out), &list); err != nil || len(list.Items) != 3 || strings.Contains(got.out, "managedFields") {
			t.Errorf("%v: %s", err, got.out)
		}
	})
	t.Run("one", func(t *testing.T) {
		got := herald("get", "pod", "web", "--server", at, "-o", "yaml")
		if !strings.HasPrefix(got.out, "apiVersion: v1\nkind: Pod\nmetadata:\n  creationTimestamp: ") {
			t.Error(got.out)
		}
	})
	t.Run("a name in all namespaces is a list", func(t *testing.T) {
		if got := herald("get", "pod", "web", "-A", "--server", at, "-o", "yaml"); strings.Count(got.out, "\n  kind: Pod\n") != 2 {
			t.Error(got.out)
		}
	})
	t.Run("followed", func(t *testing.T) {
		got := herald("get", "pod", "web", "-w", "--server", at, "-o", "yaml")
		if documents := strings.Split(got.out, "---\n"); len(documents) != 2 || !strings.Contains(documents[1], "phase: Succeeded") {
			t.Error(got.out)
		}
	})
}

func TestTheShellCompletesWhatTheAgentHas(t *testing.T) {
	t.Setenv("HERALD_SERVER", agentAt(t))
	for args, want := range map[string]string{
		"get pods |":             "db-n1\nweb\n",
		"get pods web |":         "db-n1\n",
		"get pods -n shop |":     "web\n",
		"get |pod/":              "pod/db-n1\npod/web\n",
		"get pods --namespace |": "default\nshop\n",
	} {
		words, last, _ := strings.Cut(args, "|")
		got := herald(append(append([]string{"__complete"}, strings.Fields(words)...), last)...)
		if offered, _, _ := strings.Cut(got.out, ":"); offered != want {
			t.Errorf("after %q: %q, want %q", args, offered, want)
		}
	}
}

func TestAnAgentThatDoesNotAnswerHasItsOwnStatus(t *testing.T) {
	for name, at := range map[string]string{"a socket": "unix://" + filepath.Join(t.TempDir(), "none.sock"), "an address": "http://127.0.0.1:1/"} {
		got := herald("get", "pods", "--server", at)
		if got.status != 3 || !strings.Contains(got.err, "herald run") {
			t.Errorf("%s: exit status %d: %s", name, got.status, got.err)
		}
	}
	if got := herald("get", "pods", "--server", "127.0.0.1:x"); got.status != 2 || !strings.Contains(got.err, "want a port") {
		t.Errorf("exit status %d: %s", got.status, got.err)
	}
}

func TestAnAgentThatIsStoppedIsNotWaitedForForever(t *testing.T) {
	silent := "unix://" + filepath.Join(shortFolder(t), "s")
	listener, err := server.Listen(t.Context(), silent) // and nobody ever takes a call
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, args := range [][]string{{}, {"--watch"}} {
		got := herald(append([]string{"get", "pods", "--server", silent, "--request-timeout", "10ms"}, args...)...)
		if got.status != 3 || !strings.Contains(got.err, "does not answer in time\nIs it stopped") {
			t.Errorf("%v: exit status %d: %s", args, got.status, got.err)
		}
	}
}

func TestWhoPosesAsAnAgentDoesNotCommandTheTerminal(t *testing.T) {
	const evil = `{"items": [{"metadata": {"name": "\u001b[2Jx", "namespace": "default"}}, {"metadata": {"name": "y", "namespace": "\u001b[2J"}}]}`
	for args, answer := range map[string]http.HandlerFunc{
		"-o name": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, evil) },
		"y":       func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, evil) },
		"x":       func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "\x1b[2Jno", http.StatusTeapot) },
	} {
		listening := httptest.NewServer(answer)
		got := herald(append([]string{"get", "pods", "--server", listening.URL}, strings.Fields(args)...)...)
		listening.Close()
		if said := got.out + got.err; !strings.Contains(said, "^[[2J") || strings.Contains(said, "\x1b") {
			t.Errorf("%s: %q", args, said)
		}
	}
}
