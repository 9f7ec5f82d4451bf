package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

// order writes endings as "a, s after a".
func order(endings []plan.OrderedStop) string {
	var words []string
	for _, e := range endings {
		word := e.Stop.ID.ID
		for i, after := range e.After {
			word += []string{" after ", "+"}[min(i, 1)] + after.ID
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func TestPW25SidecarsEndAfterTheOthersLastToFirst(t *testing.T) {
	pod := withInit(
		newPod(v1.RestartPolicyAlways, container("a"), container("b")), sidecar("r"), container("i"), sidecar("s"), sidecar("z"),
	)
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	tests := map[string]struct {
		pod  *v1.Pod
		seen *observed.Pod
		want string
	}{
		"all run": {
			pod, saw(ready, running("r"), running("s"), running("z"), running("a"), running("b")),
			"a#0, b#0, z#0 after a#0+b#0, s#0 after a#0+b#0+z#0, r#0 after a#0+b#0+z#0+s#0",
		},
		"what has ended is not waited for": {
			pod, saw(ready, running("r"), exited("s", 0), running("z"), exited("a", 0), running("b")),
			"b#0, z#0 after b#0, r#0 after b#0+z#0",
		},
		"what nobody knows is stopped":    {pod, saw(ready, running("r"), instance("a", observed.Unknown)), "a#0, r#0 after a#0"},
		"what never ran is not":           {pod, saw(ready, running("r"), instance("a", observed.Created)), "r#0"},
		"an init container":               {pod, saw(ready, running("r"), running("i")), "i#0, r#0 after i#0"},
		"nobody waits for a debugger":     {pod, saw(ready, running("r"), running("debug")), "debug#0, r#0"},
		"two instances of a name":         {pod, saw(ready, running("r", count(1)), running("r"), running("a")), "a#0, r#1 after a#0, r#0 after a#0"},
		"an orphan":                       {nil, saw(ready, running("r"), running("a")), "a#0, r#0"},
		"one that the pod does not have":  {pod, saw(ready, running("r"), running("x")), "x#0, r#0"},
		"a pod that was never seen":       {pod, nil, ""},
		"a pod of which nothing runs now": {pod, saw(ready, exited("a", 0)), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, order(plan.TerminationOrder(test.pod, test.seen, time.Minute))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPW24WaitingIsDeductedFromTheGraceButForTwoSeconds(t *testing.T) {
	pod := newPod(v1.RestartPolicyAlways, container("a"))
	stop := plan.TerminationOrder(pod, saw(ready, running("a")), 30*time.Second)[0].Stop
	want := plan.Stop{
		ID: id("a#0"), Container: &pod.Spec.Containers[0], Grace: 30 * time.Second,
		Reason: plan.StopPodTerminating, Message: "Stopping container a",
	}
	if diff := cmp.Diff(want, stop); diff != "" {
		t.Error(diff)
	}
	for spent, left := range map[time.Duration]time.Duration{
		0: 30 * time.Second, 10 * time.Second: 20 * time.Second, 29 * time.Second: 2 * time.Second, time.Hour: 2 * time.Second,
	} {
		if got := stop.AfterWaiting(spent).Grace; got != left {
			t.Errorf("after %v: %v, want %v", spent, got, left)
		}
	}
}

func TestTheGraceIsThatOfTheDeletionThenOfThePod(t *testing.T) {
	pod := newPod(v1.RestartPolicyAlways)
	graces := []time.Duration{plan.GracePeriod(pod)}
	pod.DeletionGracePeriodSeconds = new(int64(7))
	graces = append(graces, plan.GracePeriod(pod), plan.GracePeriod(&v1.Pod{}))
	if diff := cmp.Diff([]time.Duration{30 * time.Second, 7 * time.Second, 2 * time.Second}, graces); diff != "" {
		t.Error(diff)
	}
}

func TestPW53AContainersHashIsTheKubeletsAndOnlyNameAndImageCount(t *testing.T) {
	c := v1.Container{Name: "foo", Image: "bar"}
	if got := plan.HashContainer(&c); got != 0x11a6d6d6 {
		t.Errorf("got %#x", got)
	}
	c.Command, c.Env = []string{"sleep"}, []v1.EnvVar{{Name: "A", Value: "1"}}
	if got := plan.HashContainer(&c); got != 0x11a6d6d6 {
		t.Errorf("an edited command gives %#x", got)
	}
	for _, other := range []v1.Container{{Name: "foo", Image: "baz"}, {Name: "fox", Image: "bar"}} {
		if plan.HashContainer(&other) == 0x11a6d6d6 {
			t.Errorf("%s %s has the same hash", other.Name, other.Image)
		}
	}
}

func TestAContainerIsFoundByNameWithItsKind(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, sidecar("a")), container("i"), sidecar("s"))
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	for name, want := range map[string]string{
		"a": "regular a", "i": "init i", "s": "sidecar s", "debug": "ephemeral debug", "x": "",
	} {
		c, kind := plan.FindContainer(pod, name)
		got := string(kind)
		if c != nil {
			got = fmt.Sprint(kind, " ", c.Name)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
