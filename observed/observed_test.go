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

func rebooted() *observed.Pod {
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

func TestPH24InstancesOfANameComeNewestFirst(t *testing.T) {
	want := []string{"test://3", "test://2", "test://1"}
	if diff := cmp.Diff(want, ids(rebooted().Instances("web"))); diff != "" {
		t.Fatal(diff)
	}
	if got := rebooted().Instances("unknown"); got != nil {
		t.Fatalf("a name that never ran has instances: %v", got)
	}
}

func TestPH15OnlyTheNewestSandboxIsActive(t *testing.T) {
	pod := rebooted()
	if diff := cmp.Diff([]string{"test://3", "test://4"}, ids(pod.ActiveContainers())); diff != "" {
		t.Fatal(diff)
	}
	if newest, ok := pod.NewestSandbox(); !ok || newest.ID != "new" {
		t.Fatalf("newest sandbox is %v, %v", newest.ID, ok)
	}
}

func TestAPodThatWasNeverSeenHasNothing(t *testing.T) {
	pod := &observed.Pod{}
	pod.Sort()
	if _, ok := pod.NewestSandbox(); ok || pod.ActiveContainers() != nil || pod.Running() || pod.ReadySandboxes() != 0 {
		t.Fatalf("an empty pod answers as if it had something: %+v", pod)
	}
}

func TestRunningAndReadyAreCounted(t *testing.T) {
	pod := rebooted()
	if !pod.Running() || pod.ReadySandboxes() != 1 {
		t.Fatalf("running %v, ready sandboxes %d", pod.Running(), pod.ReadySandboxes())
	}
}

func TestOrderDoesNotDependOnTheRuntimesWhenTimesAreEqual(t *testing.T) {
	one := &observed.Pod{Containers: []observed.Container{
		container("web", "b", "s", 0, observed.Created), container("web", "a", "s", 0, observed.Created),
	}}
	one.Sort()
	if diff := cmp.Diff([]string{"test://a", "test://b"}, ids(one.Containers)); diff != "" {
		t.Fatal(diff)
	}
}

// TestF14AClockThatIsSetBackDoesNotMakeTheOldNew has what followed each sandbox and container an hour before it, by the
// wall clock.
func TestF14AClockThatIsSetBackDoesNotMakeTheOldNew(t *testing.T) {
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
		t.Errorf("the newest sandbox is %q", newest.ID)
	}
}

func TestStatesAndIDsAreWrittenAsTheAPIShowsThem(t *testing.T) {
	var forgotten observed.State
	if forgotten.String() != "unknown" || observed.Exited.String() != "exited" || observed.Created.String() != "created" {
		t.Fatal("a state is not written in the runtime's words")
	}
	if got := (observed.ContainerID{}).String(); got != "" {
		t.Fatalf("no container is written as %q", got)
	}
}

func TestAContainerIDSurvivesWritingAndReading(t *testing.T) {
	tests := map[string]struct {
		written string
		want    observed.ContainerID
	}{
		"runtime and id":      {"containerd://abc", observed.ContainerID{Runtime: "containerd", ID: "abc"}},
		"none":                {"", observed.ContainerID{}},
		"no runtime":          {"://abc", observed.ContainerID{}},
		"no id":               {"containerd://", observed.ContainerID{}},
		"not of the API form": {"abc", observed.ContainerID{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := observed.ParseContainerID(test.written)
			if got != test.want {
				t.Fatalf("ParseContainerID(%q) = %+v, want %+v", test.written, got, test.want)
			}
			if got != (observed.ContainerID{}) && got.String() != test.written {
				t.Fatalf("%q was written back as %q", test.written, got)
			}
		})
	}
}

func TestReadingAContainerIDAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { observed.ParseContainerID("containerd://abc") }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
