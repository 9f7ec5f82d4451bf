package plan_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/observed"
)

func TestGEN29ANewSandboxIsMadeExactlyWhenNoneCanBeUsed(t *testing.T) {
	web := newPod(v1.RestartPolicyAlways, container("a"))
	onHost := newPod(v1.RestartPolicyAlways, container("a"))
	onHost.Spec.HostNetwork = true
	hostSandbox, noIP, unmanaged := ready, ready, ready
	hostSandbox.HostNetwork, hostSandbox.Network = true, &observed.Network{}
	noIP.Network = &observed.Network{}
	unmanaged.Network = nil
	noRecord := &observed.Pod{Containers: []observed.Container{running("a")}}
	two := saw(ready)
	two.Sandboxes = append(two.Sandboxes, observed.Sandbox{ID: "s7", Attempt: 7, Ready: true})
	check(t, map[string]decision{
		"none was seen":               {web, nil, "sandbox 0, start regular a#0"},
		"none exists":                 {web, &observed.Pod{}, "sandbox 0, start regular a#0"},
		"the only one is dead":        {web, saw(dead(3)), "kill, sandbox 4, start regular a#0"},
		"two are ready":               {web, two, "kill, sandbox 8, start regular a#0"},
		"it has the node's network":   {web, saw(hostSandbox), "kill, sandbox 1, start regular a#0"},
		"it has a network of its own": {onHost, saw(ready), "kill, sandbox 1, start regular a#0"},
		"its network failed":          {web, saw(noIP), "kill, sandbox 1, start regular a#0"},
		"its network is not ours":     {web, saw(unmanaged), "start regular a#0"},
		"on the node's network":       {onHost, saw(hostSandbox), "start regular a#0"},
		"its record is gone":          {web, noRecord, "kill, sandbox 0, start regular a#1"},
		"it is ready":                 {web, saw(ready), "start regular a#0"},
	})
}

func TestAPodThatIsOverGetsNoNewSandbox(t *testing.T) {
	deleted := newPod(v1.RestartPolicyAlways, container("a"))
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	never := newPod(v1.RestartPolicyNever, container("a"))
	withInitNever := withInit(newPod(v1.RestartPolicyNever, container("a")), container("i"))
	two := newPod(v1.RestartPolicyNever, container("a"), container("b"))
	ownNever := newPod(v1.RestartPolicyAlways, withPolicy("a", v1.ContainerRestartPolicyNever))
	onFailure := newPod(v1.RestartPolicyOnFailure, container("a"), container("b"))
	check(t, map[string]decision{
		"run once, ended":                {never, saw(dead(0), exited("a", 0)), "done"},
		"run once, failed":               {never, saw(dead(0), exited("a", 1)), "done"},
		"run once, ended, no record":     {never, &observed.Pod{Containers: []observed.Container{exited("a", 0)}}, "done"},
		"run once, runs in a dead one":   {never, saw(dead(0), running("a")), "done"},
		"run once, lost (PH-28)":         {never, saw(dead(0), instance("a", observed.Unknown)), "done"},
		"all succeeded":                  {onFailure, saw(dead(0), exited("a", 0), exited("b", 0)), "done"},
		"one failed and is tried again":  {onFailure, saw(dead(0), exited("a", 0), exited("b", 1)), "kill, sandbox 1, start regular b#1"},
		"deleted":                        {deleted, saw(dead(0), exited("a", 0)), "done"},
		"deleted while it runs":          {deleted, saw(ready, running("a")), "done"},
		"an init container failed":       {withInitNever, saw(dead(0), exited("i", 1)), "done"},
		"an init container was lost":     {withInitNever, saw(dead(0), running("i")), "done"},
		"its init containers alone ran":  {withInitNever, saw(dead(0), exited("i", 0)), "kill, sandbox 1, start init i#1"},
		"one of two has not run yet":     {two, saw(dead(0), exited("a", 0)), "kill, sandbox 1, start regular b#0"},
		"never by its own policy, ended": {ownNever, saw(dead(0), exited("a", 0)), "done"},
	})
}

func TestBUG40AContainerThatWasCreatedAndNeverStartedHasNotRun(t *testing.T) {
	never := newPod(v1.RestartPolicyNever, container("a"))
	check(t, map[string]decision{
		"in a sandbox that is dead": {never, saw(dead(0), instance("a", observed.Created)), "kill, sandbox 1, start regular a#1"},
		"in one that is ready":      {never, saw(ready, instance("a", observed.Created)), "start regular a#0"},
	})
}

func TestF15AStartThatMayBeUnderWayIsNotMadeBesideUnderAnotherName(t *testing.T) {
	pod := newPod(v1.RestartPolicyAlways, container("a"))
	check(t, map[string]decision{
		"the first":              {pod, saw(ready, instance("a", observed.Created)), "start regular a#0"},
		"one after some ends":    {pod, saw(ready, instance("a", observed.Created, count(3)), exited("a", 1, count(2))), "start regular a#3"},
		"of no known number":     {pod, saw(ready, instance("a", observed.Created, count(-1))), "start regular a#0"},
		"in a sandbox of before": {pod, saw(ready, instance("a", observed.Created, in("old"))), "start regular a#1"},
	})
}

func TestInANewSandboxAllBeginsAgain(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, container("a")), container("i"), sidecar("s"))
	check(t, map[string]decision{
		"after the sandbox died": {
			pod, saw(dead(0), exited("i", 0), running("s"), running("a")), "kill, sandbox 1, start init i#1",
		},
		"what ran in the old one proves nothing (PH-15)": {
			pod, saw(ready, exited("i", 0, in("old")), exited("s", 1, in("old")), exited("a", 1, in("old"))), "start init i#1",
		},
		"which has come to its sidecar": {
			pod, saw(ready, exited("i", 0, count(1)), exited("s", 1, in("old")), exited("a", 1, in("old"))), "start sidecar s#1",
		},
		"what ran once does not run there again": {
			newPod(v1.RestartPolicyNever, container("a"), container("b")), saw(dead(0), running("a")),
			"kill, sandbox 1, start regular b#0",
		},
		"what still runs in an old one is stopped": {
			newPod(v1.RestartPolicyAlways, container("a")), saw(ready, running("a", in("old"))),
			"stop a#0 Stale, start regular a#1",
		},
	})
}

func TestAContainerKilledWithItsSandboxIsStartedAgainEvenIfItEndedWell(t *testing.T) {
	pod := newPod(v1.RestartPolicyOnFailure, container("a"))
	first := next(pod, saw(dead(0), running("a")), nil)
	if got, want := told(first), "kill, sandbox 1, start regular a#1"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	killed := saw(ready, exited("a", 0, in("old"), ran(time.Minute, time.Second)))
	if got, want := told(next(pod, killed, first.Backoff)), "start regular a#1"; got != want {
		t.Errorf("after a failed start: got %s, want %s", got, want)
	}
	if got, want := told(next(pod, killed, nil)), "done"; got != want {
		t.Errorf("without memory the exit code decides: got %s, want %s", got, want)
	}
}
