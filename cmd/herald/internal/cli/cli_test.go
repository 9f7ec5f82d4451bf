package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/cmd/herald/internal/cli"
	"github.com/heraldnode/herald/server"
)

// result is what a command did.
type result struct {
	status   int
	out, err string
}

func herald(args ...string) result {
	var out, errs bytes.Buffer
	status := cli.Main(args, &out, &errs)
	return result{status, out.String(), errs.String()}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const goodPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: nginx}]}\n"

func TestCheckNamesFileLineAndField(t *testing.T) {
	tests := map[string]struct {
		text   string
		status int
		says   []string
	}{
		"good":              {goodPod, 0, []string{"pod default/web-node is valid"}},
		"a typo":            {strings.Replace(goodPod, "image:", "imagee:", 1), 1, []string{"pod.yaml:4:", "spec.containers[0].imagee"}},
		"no YAML":           {"a: [", 1, []string{"pod.yaml"}},
		"nothing":           {"", 1, []string{"pod.yaml"}},
		"what is not done":  {strings.Replace(goodPod, "spec: {", "spec: {hostUsers: false, ", 1), 1, []string{"spec.hostUsers"}},
		"a missing command": {strings.Replace(goodPod, "name: main, ", "", 1), 1, []string{"spec.containers[0].name"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := herald("check", write(t, "pod.yaml", test.text))
			if got.status != test.status {
				t.Errorf("exit status %d, want %d", got.status, test.status)
			}
			for _, part := range test.says {
				if !strings.Contains(got.out, part) {
					t.Errorf("%q is not in: %s", part, got.out)
				}
			}
		})
	}
}

func TestWrongUsageHasItsOwnStatusAndARemedy(t *testing.T) {
	tests := map[string]struct {
		args []string
		says string
	}{
		"no source":           {[]string{"run"}, "--manifests"},
		"an unknown flag":     {[]string{"run", "--nonsense"}, "herald run --help"},
		"no manifest":         {[]string{"check"}, "name at least one"},
		"an unknown format":   {[]string{"get", "pods", "-o", "xml"}, "wide, json, yaml or name"},
		"an unknown field":    {[]string{"run", "--config", write(t, "c.yaml", "apiVersion: heraldnode.github.io/v1alpha1\nkind: HeraldConfiguration\nstaticPodPaht: /x\n")}, "line 3: field staticPodPaht not found"},
		"another kind":        {[]string{"run", "--config", write(t, "c.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")}, "kind: HeraldConfiguration"},
		"a file that is gone": {[]string{"run", "--config", "/nowhere/c.yaml"}, "/nowhere/c.yaml"},
		"two documents":       {[]string{"run", "--config", write(t, "c.yaml", "apiVersion: heraldnode.github.io/v1alpha1\nkind: HeraldConfiguration\n---\nkind: X\n")}, "want one document"},
		"no kubeconfig":       {[]string{"run", "--kubeconfig", "/nowhere/k"}, "/nowhere/k"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := herald(test.args...); got.status != 2 || !strings.Contains(got.err, test.says) {
				t.Errorf("exit status %d: %s", got.status, got.err)
			}
		})
	}
}

func TestWithoutARuntimeItSaysWhatToInstall(t *testing.T) {
	got := herald("run", "--manifests", t.TempDir(), "--data-dir", t.TempDir(), "--runtime-endpoint", "unix:///nowhere/containerd.sock")
	for _, part := range []string{"unix:///nowhere/containerd.sock", "apt-get install containerd", "--runtime=process"} {
		if got.status != 1 || !strings.Contains(got.err, part) {
			t.Errorf("exit status %d, %q is not in: %s", got.status, part, got.err)
		}
	}
}

func TestF30ASecondAgentOnTheFolderIsRefused(t *testing.T) {
	data := t.TempDir()
	held, err := checkpoint.Open(filepath.Join(data, "state"), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	got := herald("run", "--runtime=process", "--manifests", t.TempDir(), "--data-dir", data)
	if got.status != 1 || !strings.Contains(got.err, "--data-dir") {
		t.Errorf("exit status %d: %s", got.status, got.err)
	}
}

// node is one with two pods.
type node struct{}

func (node) LocalPods() []*v1.Pod {
	pods := []*v1.Pod{{}, {}}
	for i, namespace := range []string{"default", "shop"} {
		pods[i].Name, pods[i].Namespace = "web", namespace
		pods[i].CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		pods[i].Spec = v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "main"}}}
		pods[i].Status = v1.PodStatus{Phase: v1.PodRunning, PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}}
	}
	return pods
}

func (n node) LocalChanges(context.Context) iter.Seq[watch.Event] {
	return func(yield func(watch.Event) bool) {
		for _, p := range n.LocalPods() {
			if !yield(watch.Event{Type: watch.Added, Object: p}) {
				return
			}
		}
	}
}

func (node) Healthy() error { return nil }

func agentAt(t *testing.T) string {
	t.Helper()
	s, err := server.New(server.Config{Node: node{}})
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(s)
	t.Cleanup(listening.Close)
	return strings.TrimPrefix(listening.URL, "http://")
}

func TestGetPodsPrintsWhatKubectlWould(t *testing.T) {
	at := agentAt(t)
	tests := map[string]struct {
		args   []string
		status int
		out    string
	}{
		"a table": {nil, 0, "NAME   READY   STATUS    RESTARTS   AGE\nweb    0/1     Running   0          60m\n"},
		"all":     {[]string{"-A", "--no-headers"}, 0, "default   web   0/1   Running   0     60m\nshop      web   0/1   Running   0     60m\n"},
		"wide": {[]string{"-n", "shop", "-o", "wide"}, 0,
			"NAME   READY   STATUS    RESTARTS   AGE   IP         NODE   NOMINATED NODE   READINESS GATES\n" +
				"web    0/1     Running   0          60m   10.0.0.1   n1     <none>           <none>\n"},
		"names":           {[]string{"-A", "-o", "name"}, 0, "pod/web\npod/web\n"},
		"nothing there":   {[]string{"-n", "empty"}, 0, "No resources found in empty namespace.\n"},
		"nothing by name": {[]string{"other"}, 4, ""},
		"followed":        {[]string{"-A", "-w", "--no-headers"}, 1, "default   web   0/1   Running   0     60m\nshop      web   0/1   Running   0     60m\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := herald(append([]string{"get", "pods", "--server", at}, test.args...)...)
			if got.status != test.status || got.out != test.out {
				t.Errorf("exit status %d, printed:\n%s%s", got.status, got.out, got.err)
			}
		})
	}
}

func TestGetPodsPrintsObjects(t *testing.T) {
	at := agentAt(t)
	var list v1.PodList
	if got := herald("get", "pods", "--server", at, "-A", "-o", "json"); json.Unmarshal([]byte(got.out), &list) != nil || len(list.Items) != 2 {
		t.Errorf("%s", got.out)
	}
	var one v1.Pod
	if got := herald("get", "pods", "web", "--server", at, "-o", "json"); json.Unmarshal([]byte(got.out), &one) != nil || one.Kind != "Pod" {
		t.Errorf("%s", got.out)
	}
	if got := herald("get", "pods", "web", "--server", at, "-o", "yaml"); !strings.HasPrefix(got.out, "apiVersion: v1\nkind: Pod\n") {
		t.Errorf("%s", got.out)
	}
}

func TestAnAgentThatDoesNotAnswerHasItsOwnStatus(t *testing.T) {
	got := herald("get", "pods", "--server", "unix://"+filepath.Join(t.TempDir(), "none.sock"))
	if got.status != 3 || !strings.Contains(got.err, "herald run") {
		t.Errorf("exit status %d: %s", got.status, got.err)
	}
}

func TestTheRestOfTheCommand(t *testing.T) {
	for name, args := range map[string][]string{
		"version": {"version"}, "help": {"--help"}, "completion": {"completion", "bash"}, "demo's help": {"demo", "--help"},
	} {
		if got := herald(args...); got.status != 0 || got.out == "" {
			t.Errorf("%s: exit status %d: %s", name, got.status, got.err)
		}
	}
	if got := herald("demo", "pod", "nonsense"); got.status != 1 {
		t.Errorf("exit status %d", got.status)
	}
}
