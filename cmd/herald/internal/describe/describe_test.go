package describe_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cmd/herald/internal/describe"
)

func read(t *testing.T, name string, object any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, object); err != nil {
		t.Fatal(err)
	}
}

// golden returns what kubectl v1.32 printed about the objects of testdata, without events and Lease, which the agent has no facts for,
// and changed to the layout of v1.36: with names of ports and without Kube-Proxy Version.
func golden(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMain prints times in UTC, as kubectl did.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

func TestPod_LikeKubectl(t *testing.T) {
	for _, name := range []string{"web", "rich"} {
		var pod v1.Pod
		read(t, name+".json", &pod)
		if diff := cmp.Diff(golden(t, name+".txt"), describe.Pod(&pod, nil, time.Now())); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestNode_LikeKubectl(t *testing.T) {
	var node v1.Node
	pods := make([]v1.Pod, 2)
	read(t, "node.json", &node)
	read(t, "rich.json", &pods[0])
	read(t, "web.json", &pods[1])
	got := describe.Node(&node, pods, nil, pods[0].CreationTimestamp.Add(20*time.Second))
	if diff := cmp.Diff(golden(t, "node.txt"), got); diff != "" {
		t.Error(diff)
	}
}

func TestPod_EventsAndControlCharacters(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pod := &v1.Pod{}
	pod.Name = "x\x1b[2J"
	got := describe.Pod(pod, []describe.Event{
		{Type: "Normal", Reason: "Pulled", Message: "pulled\n", From: "kubelet", Count: 1, First: now.Add(-time.Hour), Last: now.Add(-time.Hour)},
		{
			Type: "Warning", Reason: "BackOff", Message: "Back-off", FieldPath: "spec.containers{web}", From: "kubelet", Count: 14,
			First: now.Add(-time.Hour), Last: now.Add(-time.Minute),
		},
	}, now)
	want := `Events:
  Type     Reason   Age                 From     Message
  ----     ------   ----                ----     -------
  Normal   Pulled   60m                 kubelet  pulled
  Warning  BackOff  60s (x14 over 60m)  kubelet  spec.containers{web}: Back-off
`
	if none := describe.Pod(pod, []describe.Event{}, now); !strings.HasSuffix(none, "\nEvents:          <none>\n") {
		t.Errorf("got %q, want no events at the end", none)
	}
	if !strings.HasSuffix(got, want) || strings.Contains(got, "\x1b") {
		t.Errorf("got %q, want the end %q", got, want)
	}
}
