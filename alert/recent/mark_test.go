package recent_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/transition"
)

var container = recent.Object{Namespace: "ns", Pod: "p", Container: "c"}

// restarted returns a status after that number of restarts. The IDs of the instances are those of the pod.
func restarted(uid string, restarts int32) *v1.PodStatus {
	status := status("True", restarts, running, v1.ContainerState{})
	c := &status.ContainerStatuses[0]
	c.ContainerID = fmt.Sprint(uid, "-", restarts)
	if restarts > 0 {
		c.LastTerminationState = terminated("Error", 0)
		c.LastTerminationState.Terminated.ContainerID = fmt.Sprint(uid, "-", restarts-1)
	}
	return status
}

func observe(counter *recent.Counter, uid string, before, after *v1.PodStatus) {
	counter.Observe("ns", "p", uid, transition.AppendPod(nil, before, after), start)
}

func wantCounts(t interface {
	Helper()
	Fatalf(string, ...any)
}, counter *recent.Counter, restarts, ends int) {
	t.Helper()
	gotRestarts, _ := counter.Count(container, recent.Restart, time.Hour, start)
	gotEnds, _ := counter.Count(container, recent.Ended("Error"), time.Hour, start)
	if gotRestarts != restarts || gotEnds != ends {
		t.Fatalf("got %d restarts and %d ends, want %d and %d", gotRestarts, gotEnds, restarts, ends)
	}
}

// TestA5_ObservedAgain restarts a container, and the agent at random points with a status that is some versions old, as a crash leaves it.
// The changes that are seen again, one by one or together, are counted once.
func TestA5_ObservedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counter, restarts := &recent.Counter{}, int32(0)
		observe(counter, "u", nil, restarted("u", 0))
		saved := counter.Entries(start)
		counter.TakeAdded()
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			observe(counter, "u", restarted("u", restarts), restarted("u", restarts+1))
			restarts++
			wantCounts(t, counter, int(restarts), int(restarts))
			switch rapid.IntRange(0, 3).Draw(t, "restart") {
			case 0:
				counter = roundTrip(t, counter)
			case 1:
				saved = append(saved, counter.TakeAdded()...)
				counter = &recent.Counter{}
				counter.Restore(saved, start)
			default:
				continue
			}
			saved = counter.Entries(start)
			counter.TakeAdded()
			known := max(0, restarts-rapid.Int32Range(0, 4).Draw(t, "versions"))
			observe(counter, "u", nil, restarted("u", known)) // the status that was restored
			for isTogether := rapid.Bool().Draw(t, "together"); known < restarts; {
				next := known + 1
				if isTogether {
					next = restarts
				}
				observe(counter, "u", restarted("u", known), restarted("u", next))
				known = next
			}
			wantCounts(t, counter, int(restarts), int(restarts))
		}
	})
}

func TestObserve_PodReplaced(t *testing.T) {
	var counter recent.Counter
	for _, uid := range []string{"u1", "u2", "u3", "u4", "u5", "u6", "u7"} {
		observe(&counter, uid, nil, restarted(uid, 0))
		observe(&counter, uid, restarted(uid, 0), restarted(uid, 1))
		observe(&counter, uid, restarted(uid, 0), restarted(uid, 1))
	}
	wantCounts(t, &counter, 7, 7)
	for _, entry := range counter.Entries(start) {
		if len(entry.Marks) != 4 {
			t.Errorf("got %d marks of %s, want those of the last four pods", len(entry.Marks), entry.Kind)
		}
	}
}

// TestObserve_CountStartsAgain checks that restarts are counted after the restart count fell, or after the pod was removed and came back
// with its UID, also if the agent was restarted in between.
func TestObserve_CountStartsAgain(t *testing.T) {
	ways := map[string]func(*recent.Counter){
		"falls":   func(c *recent.Counter) { observe(c, "u", restarted("u", 3), restarted("u", 0)) },
		"removed": func(c *recent.Counter) { c.Removed("ns", "p", "u") },
		"removal in the history": func(c *recent.Counter) {
			c.Observe("ns", "p", "u", []transition.Change{{Field: transition.FieldRemoved}}, start)
		},
	}
	for name, begin := range ways {
		t.Run(name, func(t *testing.T) {
			var counter, again recent.Counter
			observe(&counter, "u", restarted("u", 0), restarted("u", 3))
			saved := counter.Entries(start)
			counter.TakeAdded()
			begin(&counter)
			again.Restore(append(saved, counter.TakeAdded()...), start)
			for _, c := range []*recent.Counter{&counter, &again, roundTrip(t, &counter)} {
				observe(c, "u", restarted("u", 0), status("True", 1, running, terminated("Error", 7)))
				wantCounts(t, c, 4, 2)
			}
		})
	}
}

// TestObserve_AnotherReason checks that an instance that was unknown for a moment has its true end counted.
func TestObserve_AnotherReason(t *testing.T) {
	var counter recent.Counter
	up := status("True", 0, running, v1.ContainerState{})
	observe(&counter, "u", up, status("True", 0, terminated("Unknown", 0), v1.ContainerState{}))
	observe(&counter, "u", up, status("True", 0, terminated("Error", 0), v1.ContainerState{}))
	wantCounts(t, &counter, 0, 1)
}

// TestRestore_WithoutMarks reads what earlier versions have saved.
func TestRestore_WithoutMarks(t *testing.T) {
	var counter recent.Counter
	text := `[{"namespace":"ns","pod":"p","container":"c","kind":"restart","times":["2026-11-17T11:59:00Z"]}]`
	if err := json.Unmarshal([]byte(text), &counter); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, &counter, 1, 0)
	observe(&counter, "u", restarted("u", 1), restarted("u", 2))
	wantCounts(t, &counter, 2, 1)
}
