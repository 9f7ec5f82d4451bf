package recent_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/transition"
)

var start = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

// TestCounter_Model compares with a list of all times: counts, the instant at which they decrease, and all of it after a JSON round trip.
func TestCounter_Model(t *testing.T) {
	type event struct {
		object recent.Object
		kind   string
		at     time.Time
	}
	objects := []recent.Object{{}, {Namespace: "a", Pod: "b"}, {Namespace: "a", Pod: "b", Container: "c"}}
	rapid.Check(t, func(t *rapid.T) {
		counter, now := &recent.Counter{}, start
		var all []event
		count := func(o recent.Object, kind string, window time.Duration, now time.Time) int {
			n := 0
			for _, e := range all {
				if e.object == o && e.kind == kind && e.at.After(now.Add(-window)) {
					n++
				}
			}
			return min(n, recent.MaxCount)
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "minutes")) * time.Minute)
			e := event{rapid.SampledFrom(objects).Draw(t, "object"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "kind"), now}
			if rapid.Bool().Draw(t, "late") {
				e.at = now.Add(-time.Duration(rapid.IntRange(0, 120).Draw(t, "lateness")) * time.Second)
			}
			counter.Add(e.object, e.kind, e.at)
			all = append(all, e)
			if rapid.IntRange(0, 50).Draw(t, "restart") == 0 {
				counter = roundTrip(t, counter)
			}
			o, kind := rapid.SampledFrom(objects).Draw(t, "asked"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "asked kind")
			window := time.Duration(rapid.IntRange(1, 24*60).Draw(t, "window")) * time.Minute
			got, next := counter.Count(o, kind, window, now)
			if want := count(o, kind, window, now); got != want {
				t.Fatalf("got %d of %s of %v in %s, want %d", got, kind, o, window, want)
			}
			if next.IsZero() != (got == 0) {
				t.Fatalf("got %d until %s", got, next)
			}
			if got > 0 {
				before, _ := counter.Count(o, kind, window, next.Add(-1))
				after, _ := counter.Count(o, kind, window, next)
				if before != got || after >= got {
					t.Fatalf("got %d before %s and %d then, want less than %d then", before, next, after, got)
				}
			}
		}
	})
}

func roundTrip(t interface{ Fatal(...any) }, counter *recent.Counter) *recent.Counter {
	data, err := json.Marshal(counter)
	if err != nil {
		t.Fatal(err)
	}
	var again recent.Counter
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	return &again
}

func TestCounter_Bounds(t *testing.T) {
	var counter recent.Counter
	o := recent.Object{Namespace: "a", Pod: "b"}
	for i := range 1000 {
		counter.Add(o, "x", start.Add(time.Duration(i)*time.Second))
		counter.Add(o, fmt.Sprint("kind", i), start)
		counter.Add(recent.Object{Namespace: "c", Pod: fmt.Sprint(i)}, "x", start)
	}
	if got, _ := counter.Count(o, "x", time.Hour, start.Add(1000*time.Second)); got != 64 {
		t.Errorf("got %d, want the newest 64", got)
	}
	if got, _ := counter.Count(o, "kind500", time.Hour, start); got != 0 {
		t.Error("the kinds of an object are not bounded")
	}
	for i := range 5000 {
		counter.Add(recent.Object{Namespace: "d", Pod: fmt.Sprint(i)}, "x", start.Add(time.Hour+time.Duration(i)))
	}
	entries := counter.Entries(start.Add(2 * time.Hour))
	if len(entries) > 4096 || len(entries) < 3500 || entries[0].Namespace != "d" {
		t.Errorf("got %d entries from %v, want at most 4096 of the newest objects", len(entries), entries[0])
	}
	counter.Add(o, "x", start.Add(48*time.Hour))
	if entries := counter.Entries(start.Add(48 * time.Hour)); len(entries) != 1 || len(entries[0].Times) != 1 {
		t.Errorf("got %v, want only the last", entries)
	}
}

// TestCounter_BoundsTimes fills many objects with many kinds: what is remembered of all of them together is bounded, too.
func TestCounter_BoundsTimes(t *testing.T) {
	var counter recent.Counter
	at := start
	for i := range 200 {
		for kind := range 20 {
			for range 64 {
				at = at.Add(time.Millisecond)
				counter.Add(recent.Object{Namespace: "a", Pod: fmt.Sprint(i)}, fmt.Sprint(kind), at)
			}
		}
	}
	total := 0
	for _, entry := range counter.Entries(at) {
		total += len(entry.Times)
	}
	if total > 128<<10 || total < 100<<10 {
		t.Errorf("got %d times", total)
	}
	if got, _ := counter.Count(recent.Object{Namespace: "a", Pod: "199"}, "19", time.Hour, at); got != 64 {
		t.Errorf("got %d of the last object, want all", got)
	}
}

func TestCounter_TakeAddedRestores(t *testing.T) {
	var counter, other recent.Counter
	o := recent.Object{Namespace: "a", Pod: "b"}
	counter.Add(o, "x", start)
	other.Restore(counter.Entries(start), start)
	if got := counter.TakeAdded(); got != nil {
		t.Errorf("got %v from the first call", got)
	}
	counter.Add(o, "x", start.Add(time.Hour))
	counter.Add(o, "y", start.Add(2*time.Hour))
	other.Restore(counter.TakeAdded(), start.Add(90*time.Minute))
	if got := counter.TakeAdded(); got != nil {
		t.Errorf("got %v again", got)
	}
	if got, _ := other.Count(o, "x", 3*time.Hour, start.Add(2*time.Hour)); got != 2 {
		t.Errorf("got %d", got)
	}
	if _, next := other.Count(o, "y", time.Hour, start.Add(90*time.Minute)); !next.Equal(start.Add(150 * time.Minute)) {
		t.Errorf("got a decrease at %s: a time in the future must become the time of the restart", next)
	}
}

// TestCounter_ClockSet checks that setting the clock changes no window: times with a monotonic reading are compared by it.
func TestCounter_ClockSet(t *testing.T) {
	var counter recent.Counter
	now := time.Now() // with a monotonic reading
	counter.Add(recent.Object{}, "clock", now)
	entries := counter.Entries(now.Add(time.Hour))
	if got := entries[0].Times[0]; !got.Equal(now) {
		t.Errorf("got %s, want %s", got, now)
	}
	var restored recent.Counter
	restored.Restore([]recent.Entry{{Kind: "x", Times: []time.Time{now.Add(-time.Minute).Round(0)}}}, now)
	if _, next := restored.Count(recent.Object{}, "x", time.Hour, now); !strings.Contains(next.String(), " m=") {
		t.Error("a restored time has no monotonic reading: it would follow the wall clock")
	}
}

func terminated(reason string, at int) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: reason, ContainerID: fmt.Sprint("id", at)}}
}

var (
	waiting = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	running = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
)

func status(ready v1.ConditionStatus, restarts int32, state, last v1.ContainerState) *v1.PodStatus {
	return &v1.PodStatus{
		Phase:      v1.PodRunning,
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}},
		ContainerStatuses: []v1.ContainerStatus{
			{Name: "c", RestartCount: restarts, State: state, LastTerminationState: last, ContainerID: fmt.Sprint("id", restarts)},
		},
	}
}

// TestCounter_Observe reads the changes between statuses, as package transition finds them.
func TestCounter_Observe(t *testing.T) {
	tests := map[string]struct {
		statuses []*v1.PodStatus
		stopped  string
		want     []string
	}{
		"first status of a run": {
			statuses: []*v1.PodStatus{status("True", 14, running, terminated("OOMKilled", 13))},
		},
		"starts and gets ready": {
			statuses: []*v1.PodStatus{status("False", 0, waiting, v1.ContainerState{}), status("True", 0, running, v1.ContainerState{})},
			want:     []string{"flip/Ready 1"},
		},
		"out of memory for milliseconds": {
			statuses: []*v1.PodStatus{
				status("True", 0, running, v1.ContainerState{}), status("False", 0, terminated("OOMKilled", 0), v1.ContainerState{}),
				status("True", 1, running, terminated("OOMKilled", 0)),
			},
			want: []string{"flip/Ready 2", "c ended/OOMKilled 1", "c restart 1"},
		},
		"end and successor in one status": {
			statuses: []*v1.PodStatus{status("True", 0, running, v1.ContainerState{}), status("True", 1, running, terminated("Error", 0))},
			stopped:  "LivenessProbe",
			want:     []string{"c ended/Error 1", "c ended/liveness 1", "c restart 1"},
		},
		"several restarts at once": {
			statuses: []*v1.PodStatus{status("True", 2, running, v1.ContainerState{}), status("True", 5, running, terminated("Error", 4))},
			want:     []string{"c ended/Error 1", "c restart 3"},
		},
		"a message that comes later is no second end": {
			statuses: []*v1.PodStatus{
				status("True", 0, running, v1.ContainerState{}), status("True", 0, terminated("Unknown", 0), v1.ContainerState{}),
				status("True", 0, terminated("Error", 0), v1.ContainerState{}),
			},
			want: []string{"c ended/Unknown 1"},
		},
		"terminated twice": {
			statuses: []*v1.PodStatus{
				status("True", 0, running, v1.ContainerState{}), status("True", 0, terminated("Error", 0), v1.ContainerState{}),
				status("True", 1, terminated("OOMKilled", 1), terminated("Error", 0)),
			},
			want: []string{"c ended/Error 1", "c ended/OOMKilled 1", "c restart 1"},
		},
		"the count starts again": {
			statuses: []*v1.PodStatus{status("True", 5, running, v1.ContainerState{}), status("True", 0, running, v1.ContainerState{})},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var counter recent.Counter
			var before *v1.PodStatus
			for _, after := range test.statuses {
				changes := transition.AppendPod(nil, before, after)
				for i := range changes {
					if changes[i].Exit != nil {
						changes[i].Exit.StoppedBy = test.stopped
					}
				}
				counter.Observe("ns", "p", "u", changes, start)
				before = after
			}
			var got []string
			for _, entry := range counter.Entries(start) {
				text := fmt.Sprint(entry.Kind, " ", len(entry.Times))
				if entry.Container != "" {
					text = entry.Container + " " + text
				}
				got = append(got, text)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestStoppedBy(t *testing.T) {
	for reason, want := range map[string]string{"LivenessProbe": "liveness", "StartupProbe": "startup", "PodTerminating": "podterminating", "User": "user"} {
		if got := recent.StoppedBy(reason); got != want {
			t.Errorf("%s: got %s", reason, got)
		}
	}
}
