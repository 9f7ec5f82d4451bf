package plan_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/observed"
)

func TestGEN29_NewSandbox(t *testing.T) {
	web := newPod(v1.RestartPolicyAlways, newContainer("a"))
	onHost := newPod(v1.RestartPolicyAlways, newContainer("a"))
	onHost.Spec.HostNetwork = true
	hostSandbox, noIP, unmanaged := readySandbox, readySandbox, readySandbox
	hostSandbox.HostNetwork, hostSandbox.Network = true, &observed.Network{}
	noIP.Network = &observed.Network{}
	unmanaged.Network = nil
	noRecord := &observed.Pod{Containers: []observed.Container{newRunning("a")}}
	two := newRuntimePod(readySandbox)
	two.Sandboxes = append(two.Sandboxes, observed.Sandbox{ID: "s7", Attempt: 7, Ready: true})
	runActionTests(t, map[string]actionTest{
		"not inspected":               {web, nil, "sandbox 0, start regular a#0"},
		"no sandbox":                  {web, &observed.Pod{}, "sandbox 0, start regular a#0"},
		"not ready":                   {web, newRuntimePod(deadSandbox(3)), "kill, sandbox 4, start regular a#0"},
		"two ready":                   {web, two, "kill, sandbox 8, start regular a#0"},
		"sandbox on the host network": {web, newRuntimePod(hostSandbox), "kill, sandbox 1, start regular a#0"},
		"pod on the host network":     {onHost, newRuntimePod(readySandbox), "kill, sandbox 1, start regular a#0"},
		"no IP address":               {web, newRuntimePod(noIP), "kill, sandbox 1, start regular a#0"},
		"no network reported":         {web, newRuntimePod(unmanaged), "start regular a#0"},
		"host network":                {onHost, newRuntimePod(hostSandbox), "start regular a#0"},
		"record gone":                 {web, noRecord, "kill, sandbox 0, start regular a#1"},
		"ready":                       {web, newRuntimePod(readySandbox), "start regular a#0"},
	})
}

func TestComputeActions_Done(t *testing.T) {
	deleted := newPod(v1.RestartPolicyAlways, newContainer("a"))
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	never := newPod(v1.RestartPolicyNever, newContainer("a"))
	withInitNever := withInit(newPod(v1.RestartPolicyNever, newContainer("a")), newContainer("i"))
	two := newPod(v1.RestartPolicyNever, newContainer("a"), newContainer("b"))
	ownNever := newPod(v1.RestartPolicyAlways, withPolicy("a", v1.ContainerRestartPolicyNever))
	onFailure := newPod(v1.RestartPolicyOnFailure, newContainer("a"), newContainer("b"))
	runActionTests(t, map[string]actionTest{
		"Never, succeeded":                    {never, newRuntimePod(deadSandbox(0), newExited("a", 0)), "done"},
		"Never, failed":                       {never, newRuntimePod(deadSandbox(0), newExited("a", 1)), "done"},
		"Never, succeeded, no sandbox record": {never, &observed.Pod{Containers: []observed.Container{newExited("a", 0)}}, "done"},
		"Never, running in a dead sandbox":    {never, newRuntimePod(deadSandbox(0), newRunning("a")), "done"},
		"Never, unknown (PH-28)":              {never, newRuntimePod(deadSandbox(0), newInstance("a", observed.Unknown)), "done"},
		"OnFailure, all succeeded":            {onFailure, newRuntimePod(deadSandbox(0), newExited("a", 0), newExited("b", 0)), "done"},
		"OnFailure, one failed":               {onFailure, newRuntimePod(deadSandbox(0), newExited("a", 0), newExited("b", 1)), "kill, sandbox 1, start regular b#1"},
		"deleted":                             {deleted, newRuntimePod(deadSandbox(0), newExited("a", 0)), "done"},
		"deleted, running":                    {deleted, newRuntimePod(readySandbox, newRunning("a")), "done"},
		"init container failed":               {withInitNever, newRuntimePod(deadSandbox(0), newExited("i", 1)), "done"},
		"init container lost":                 {withInitNever, newRuntimePod(deadSandbox(0), newRunning("i")), "done"},
		"only init containers ran":            {withInitNever, newRuntimePod(deadSandbox(0), newExited("i", 0)), "kill, sandbox 1, start init i#1"},
		"one of two never ran":                {two, newRuntimePod(deadSandbox(0), newExited("a", 0)), "kill, sandbox 1, start regular b#0"},
		"container Never, succeeded":          {ownNever, newRuntimePod(deadSandbox(0), newExited("a", 0)), "done"},
	})
}

func TestBUG40_CreatedContainer(t *testing.T) {
	never := newPod(v1.RestartPolicyNever, newContainer("a"))
	runActionTests(t, map[string]actionTest{
		"dead sandbox":  {never, newRuntimePod(deadSandbox(0), newInstance("a", observed.Created)), "kill, sandbox 1, start regular a#1"},
		"ready sandbox": {never, newRuntimePod(readySandbox, newInstance("a", observed.Created)), "start regular a#0"},
	})
}

func TestF15_StartInFlight(t *testing.T) {
	pod := newPod(v1.RestartPolicyAlways, newContainer("a"))
	runActionTests(t, map[string]actionTest{
		"first instance": {pod, newRuntimePod(readySandbox, newInstance("a", observed.Created)), "start regular a#0"},
		"after restarts": {pod, newRuntimePod(readySandbox, newInstance("a", observed.Created, restartCount(3)), newExited("a", 1, restartCount(2))), "start regular a#3"},
		"negative count": {pod, newRuntimePod(readySandbox, newInstance("a", observed.Created, restartCount(-1))), "start regular a#0"},
		"old sandbox":    {pod, newRuntimePod(readySandbox, newInstance("a", observed.Created, inSandbox("old"))), "start regular a#1"},
	})
}

func TestComputeActions_SandboxReplaced(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, newContainer("a")), newContainer("i"), newSidecar("s"))
	runActionTests(t, map[string]actionTest{
		"sandbox died": {
			pod, newRuntimePod(deadSandbox(0), newExited("i", 0), newRunning("s"), newRunning("a")), "kill, sandbox 1, start init i#1",
		},
		"old containers prove nothing (PH-15)": {
			pod, newRuntimePod(readySandbox, newExited("i", 0, inSandbox("old")), newExited("s", 1, inSandbox("old")), newExited("a", 1, inSandbox("old"))), "start init i#1",
		},
		"init container done": {
			pod, newRuntimePod(readySandbox, newExited("i", 0, restartCount(1)), newExited("s", 1, inSandbox("old")), newExited("a", 1, inSandbox("old"))), "start sidecar s#1",
		},
		"run-once container lost": {
			newPod(v1.RestartPolicyNever, newContainer("a"), newContainer("b")), newRuntimePod(deadSandbox(0), newRunning("a")),
			"kill, sandbox 1, start regular b#0",
		},
		"running in an old sandbox": {
			newPod(v1.RestartPolicyAlways, newContainer("a")), newRuntimePod(readySandbox, newRunning("a", inSandbox("old"))),
			"stop a#0 Stale, start regular a#1",
		},
	})
}

func TestComputeActions_KilledWithSandbox(t *testing.T) {
	pod := newPod(v1.RestartPolicyOnFailure, newContainer("a"))
	first := compute(pod, newRuntimePod(deadSandbox(0), newRunning("a")), nil)
	if got, want := describe(first), "kill, sandbox 1, start regular a#1"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	killed := newRuntimePod(readySandbox, newExited("a", 0, inSandbox("old"), ran(time.Minute, time.Second)))
	if got, want := describe(compute(pod, killed, first.Backoff)), "start regular a#1"; got != want {
		t.Errorf("after a failed start: got %s, want %s", got, want)
	}
	if got, want := describe(compute(pod, killed, nil)), "done"; got != want {
		t.Errorf("without back-off: got %s, want %s", got, want)
	}
}

func TestComputeActions_RestartAll(t *testing.T) {
	pod := withInit(
		newPod(v1.RestartPolicyNever, withRule("a", v1.ContainerRestartRuleActionRestartAllContainers), newContainer("b")),
		newContainer("i"), newSidecar("s"),
	)
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	trigger := newExited("a", 42, ran(time.Minute, 30*time.Second))
	old, debug := createdAgo(2*time.Minute), newRunning("debug", createdAgo(2*time.Minute))
	initAgain := newExited("i", 0, restartCount(1), ran(time.Second, 20*time.Second))
	sidecarAgain := newRunning("s", restartCount(1), createdAgo(15*time.Second))
	runActionTests(t, map[string]actionTest{
		"running containers stop first": {
			pod, newRuntimePod(readySandbox, trigger, debug, newExited("i", 0), newRunning("s", old), newRunning("b", old)),
			"stop b#0 RestartAllContainers",
		},
		"sidecars stop last (PW-25)": {
			pod, newRuntimePod(readySandbox, trigger, debug, newExited("i", 0), newRunning("s", old), newExited("b", 137, old)),
			"stop s#0 RestartAllContainers",
		},
		"init container restarts": {
			pod, newRuntimePod(readySandbox, trigger, debug, newExited("i", 0), newExited("s", 0, old), newExited("b", 137, old)), "start init i#1",
		},
		"sidecar restarts": {
			pod, newRuntimePod(readySandbox, trigger, debug, initAgain, newExited("i", 0), newExited("s", 0, old), newExited("b", 0, old)), "start sidecar s#1",
		},
		"regular containers restart": {
			pod, newRuntimePod(readySandbox, trigger, debug, initAgain, sidecarAgain, newExited("s", 0, old), newExited("b", 0, old)),
			"start regular a#1, start regular b#1",
		},
		"one left": {
			pod, newRuntimePod(readySandbox, trigger, debug, sidecarAgain, newRunning("a", restartCount(1), createdAgo(time.Second)), newExited("b", 0, old)),
			"start regular b#1",
		},
		"completed": {
			pod, newRuntimePod(readySandbox, trigger, debug, sidecarAgain, newRunning("a", restartCount(1), createdAgo(time.Second)),
				newExited("b", 0, old), newExited("b", 0, restartCount(1), ran(time.Second, time.Second))),
			"",
		},
		"unknown container": {
			pod, newRuntimePod(readySandbox, trigger, debug, newInstance("i", observed.Unknown, old), newExited("b", 0, old)),
			"stop i#0 Unknown, start init i#1",
		},
		"sandbox died": {
			pod, newRuntimePod(deadSandbox(0), trigger, debug, newExited("i", 0), newRunning("s", old), newExited("b", 0, old)), "kill, sandbox 1, start init i#1",
		},
		"other exit code": {
			pod, newRuntimePod(readySandbox, newExited("a", 41), debug, newRunning("s", old), newRunning("b", old)), "",
		},
	})
}

func TestComputeActions_RestartAllByInitContainer(t *testing.T) {
	pod := withInit(
		newPod(v1.RestartPolicyNever, newContainer("a")),
		newContainer("i"), withRule("j", v1.ContainerRestartRuleActionRestartAllContainers),
	)
	runActionTests(t, map[string]actionTest{
		"exited": {pod, newRuntimePod(readySandbox, newExited("i", 0, createdAgo(2*time.Hour)), newExited("j", 42)), "start init i#1"},
	})
}

func TestComputeActions_RestartAllBySidecar(t *testing.T) {
	s := newSidecar("s")
	s.RestartPolicyRules = withRule("s", v1.ContainerRestartRuleActionRestartAllContainers).RestartPolicyRules
	pod := withInit(newPod(v1.RestartPolicyNever, newContainer("a")), s, newContainer("i"))
	trigger := newExited("s", 42, ran(time.Minute, 30*time.Second))
	runActionTests(t, map[string]actionTest{
		"init container running": {pod, newRuntimePod(readySandbox, trigger, newRunning("i")), "stop i#0 RestartAllContainers"},
		"init container killed":  {pod, newRuntimePod(readySandbox, trigger, newExited("i", 137, ran(time.Minute, 29*time.Second))), "start sidecar s#1"},
	})
}

func TestComputeActions_RestartAllTwice(t *testing.T) {
	pod := newPod(v1.RestartPolicyNever, withRule("a", v1.ContainerRestartRuleActionRestartAllContainers), newContainer("b"))
	first := newExited("a", 42, ran(time.Minute, 30*time.Minute))
	second := newExited("a", 42, restartCount(1), ran(time.Minute, time.Minute))
	runActionTests(t, map[string]actionTest{
		"created before the last": {pod, newRuntimePod(readySandbox, second, first, newRunning("b")), "stop b#0 RestartAllContainers"},
		"created after the last": {
			pod, newRuntimePod(readySandbox, second, first, newRunning("b", createdAgo(time.Second))), "start regular a#2",
		},
	})
}

func TestComputeActions_RestartAllBackoff(t *testing.T) {
	pod := newPod(v1.RestartPolicyNever, withRule("a", v1.ContainerRestartRuleActionRestartAllContainers))
	runActionTests(t, map[string]actionTest{
		"third time": {pod, newRuntimePod(readySandbox, newExited("a", 42, restartCount(2), ran(time.Second, time.Second))), "a waits 19s"},
	})
}
