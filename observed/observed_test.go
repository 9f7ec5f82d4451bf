package observed_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/observed"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func container(name, id, sandbox string, age time.Duration, state observed.State) observed.Container {
	return observed.Container{
		ID: observed.ContainerID{Runtime: "test", ID: id}, Name: name, SandboxID: sandbox, State: state,
		CreatedAt: noon.Add(-age),
	}
}

// newRebootedPod returns a pod with an old and a new sandbox.
func newRebootedPod() *observed.Pod {
	pod := &observed.Pod{
		Sandboxes: []observed.Sandbox{
			{ID: "old", CreatedAt: noon.Add(-time.Hour)},
			{ID: "new", CreatedAt: noon.Add(-time.Minute), Ready: true},
		},
		Containers: []observed.Container{
			container("web", "1", "old", time.Hour, observed.Exited),
			container("web", "3", "new", time.Second, observed.Running),
			container("log", "4", "new", time.Second, observed.Running),
			container("web", "2", "old", 30*time.Minute, observed.Exited),
		},
	}
	pod.Sort()
	return pod
}

func ids(containers []observed.Container) []string {
	var ids []string
	for _, c := range containers {
		ids = append(ids, c.ID.String())
	}
	return ids
}

func TestPH24_Instances(t *testing.T) {
	want := []string{"test://3", "test://2", "test://1"}
	if diff := cmp.Diff(want, ids(newRebootedPod().Instances("web"))); diff != "" {
		t.Fatal(diff)
	}
	if got := newRebootedPod().Instances("unknown"); got != nil {
		t.Fatalf("Instances of an unknown name: got %v, want nil", got)
	}
}

func TestPH15_ActiveContainers(t *testing.T) {
	pod := newRebootedPod()
	if diff := cmp.Diff([]string{"test://3", "test://4"}, ids(pod.ActiveContainers())); diff != "" {
		t.Fatal(diff)
	}
	if newest, ok := pod.NewestSandbox(); !ok || newest.ID != "new" {
		t.Fatalf("NewestSandbox: got %v, %v, want new, true", newest.ID, ok)
	}
}

func TestPod_Empty(t *testing.T) {
	pod := &observed.Pod{}
	pod.Sort()
	if _, ok := pod.NewestSandbox(); ok || pod.ActiveContainers() != nil || pod.Running() || pod.ReadySandboxes() != 0 {
		t.Fatalf("got %+v, want an empty pod", pod)
	}
}

func TestPod_Running(t *testing.T) {
	pod := newRebootedPod()
	if !pod.Running() || pod.ReadySandboxes() != 1 {
		t.Fatalf("got running %v, ready sandboxes %d, want true, 1", pod.Running(), pod.ReadySandboxes())
	}
}

func TestPod_SortEqualTimes(t *testing.T) {
	pod := &observed.Pod{Containers: []observed.Container{
		container("web", "b", "s", 0, observed.Created), container("web", "a", "s", 0, observed.Created),
	}}
	pod.Sort()
	if diff := cmp.Diff([]string{"test://a", "test://b"}, ids(pod.Containers)); diff != "" {
		t.Fatal(diff)
	}
}

// TestF14_SortClockSetBack sorts a pod whose newer sandbox and container were created an hour earlier by the wall clock.
func TestF14_SortClockSetBack(t *testing.T) {
	first := container("web", "1", "old", 0, observed.Exited)
	second := container("web", "2", "new", time.Hour, observed.Running)
	second.RestartCount = 1
	pod := &observed.Pod{
		Sandboxes: []observed.Sandbox{
			{ID: "old", CreatedAt: noon}, {ID: "new", Attempt: 1, CreatedAt: noon.Add(-time.Hour), Ready: true},
		},
		Containers: []observed.Container{first, second},
	}
	pod.Sort()
	if diff := cmp.Diff([]string{"test://2", "test://1"}, ids(pod.Instances("web"))); diff != "" {
		t.Error(diff)
	}
	if newest, _ := pod.NewestSandbox(); newest.ID != "new" {
		t.Errorf("NewestSandbox: got %q, want new", newest.ID)
	}
}

func TestState_String(t *testing.T) {
	var zero observed.State
	for state, want := range map[observed.State]string{zero: "unknown", observed.Exited: "exited", observed.Created: "created"} {
		if got := state.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := (observed.ContainerID{}).String(); got != "" {
		t.Errorf("zero ContainerID: got %q, want an empty string", got)
	}
}

func TestParseContainerID(t *testing.T) {
	tests := map[string]struct {
		text string
		want observed.ContainerID
	}{
		"runtime and id": {"containerd://abc", observed.ContainerID{Runtime: "containerd", ID: "abc"}},
		"none":           {"", observed.ContainerID{}},
		"no runtime":     {"://abc", observed.ContainerID{}},
		"no id":          {"containerd://", observed.ContainerID{}},
		"other form":     {"abc", observed.ContainerID{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := observed.ParseContainerID(test.text)
			if got != test.want {
				t.Fatalf("ParseContainerID(%q) = %+v, want %+v", test.text, got, test.want)
			}
			if got != (observed.ContainerID{}) && got.String() != test.text {
				t.Fatalf("String: got %q, want %q", got, test.text)
			}
		})
	}
}

func TestParseContainerID_Allocations(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { observed.ParseContainerID("containerd://abc") }); n != 0 {
		t.Fatalf("got %v allocations, want 0", n)
	}
}

func TestPod_Newest(t *testing.T) {
	pod := newRebootedPod()
	for _, name := range []string{"web", "log", "missing"} {
		instances := pod.Instances(name)
		newest := pod.Newest(name)
		switch {
		case newest == nil && len(instances) > 0, newest != nil && (len(instances) == 0 || newest.ID != instances[0].ID):
			t.Errorf("%s: got %v, want the first of %v", name, newest, ids(instances))
		}
	}
}
