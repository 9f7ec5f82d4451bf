package plan_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

func TestARestartAllRuleReplacesEveryContainerInTheSameSandbox(t *testing.T) {
	pod := withInit(
		newPod(v1.RestartPolicyNever, ruled("a", v1.ContainerRestartRuleActionRestartAllContainers), container("b")),
		container("i"), sidecar("s"),
	)
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	trigger := exited("a", 42, ran(time.Minute, 30*time.Second))
	old, debug := createdAgo(2*time.Minute), running("debug", createdAgo(2*time.Minute))
	initAgain := exited("i", 0, count(1), ran(time.Second, 20*time.Second))
	sidecarAgain := running("s", count(1), createdAgo(15*time.Second))
	check(t, map[string]decision{
		"what runs is stopped first": {
			pod, saw(ready, trigger, debug, exited("i", 0), running("s", old), running("b", old)),
			"stop b#0 RestartAllContainers",
		},
		"sidecars last, and nothing is started before (PW-25)": {
			pod, saw(ready, trigger, debug, exited("i", 0), running("s", old), exited("b", 137, old)),
			"stop s#0 RestartAllContainers",
		},
		"then all begins again": {
			pod, saw(ready, trigger, debug, exited("i", 0), exited("s", 0, old), exited("b", 137, old)), "start init i#1",
		},
		"in order": {
			pod, saw(ready, trigger, debug, initAgain, exited("i", 0), exited("s", 0, old), exited("b", 0, old)), "start sidecar s#1",
		},
		"also what was done": {
			pod, saw(ready, trigger, debug, initAgain, sidecarAgain, exited("s", 0, old), exited("b", 0, old)),
			"start regular a#1, start regular b#1",
		},
		"until all are new": {
			pod, saw(ready, trigger, debug, sidecarAgain, running("a", count(1), createdAgo(time.Second)), exited("b", 0, old)),
			"start regular b#1",
		},
		"once": {
			pod, saw(ready, trigger, debug, sidecarAgain, running("a", count(1), createdAgo(time.Second)),
				exited("b", 0, old), exited("b", 0, count(1), ran(time.Second, time.Second))),
			"",
		},
		"also what nobody knows": {
			pod, saw(ready, trigger, debug, instance("i", observed.Unknown, old), exited("b", 0, old)),
			"stop i#0 Unknown, start init i#1",
		},
		"in a new sandbox, if the old one died meanwhile": {
			pod, saw(dead(0), trigger, debug, exited("i", 0), running("s", old), exited("b", 0, old)), "kill, sandbox 1, start init i#1",
		},
		"not for another exit code": {
			pod, saw(ready, exited("a", 41), debug, running("s", old), running("b", old)), "",
		},
	})
}

func TestARestartAllRuleOfAnInitContainerBeginsWithTheFirst(t *testing.T) {
	pod := withInit(
		newPod(v1.RestartPolicyNever, container("a")),
		container("i"), ruled("j", v1.ContainerRestartRuleActionRestartAllContainers),
	)
	check(t, map[string]decision{
		"its exit": {pod, saw(ready, exited("i", 0, createdAgo(2*time.Hour)), exited("j", 42)), "start init i#1"},
	})
}

func TestARestartAllRuleOfASidecarBeginsAgainWithAnInitContainerThatMayRunOnce(t *testing.T) {
	s := sidecar("s")
	s.RestartPolicyRules = ruled("s", v1.ContainerRestartRuleActionRestartAllContainers).RestartPolicyRules
	pod := withInit(newPod(v1.RestartPolicyNever, container("a")), s, container("i"))
	trigger := exited("s", 42, ran(time.Minute, 30*time.Second))
	check(t, map[string]decision{
		"it runs":             {pod, saw(ready, trigger, running("i")), "stop i#0 RestartAllContainers"},
		"it was killed by it": {pod, saw(ready, trigger, exited("i", 137, ran(time.Minute, 29*time.Second))), "start sidecar s#1"},
	})
}

func TestTheLastOfSeveralRestartsCounts(t *testing.T) {
	pod := newPod(v1.RestartPolicyNever, ruled("a", v1.ContainerRestartRuleActionRestartAllContainers), container("b"))
	first := exited("a", 42, ran(time.Minute, 30*time.Minute))
	second := exited("a", 42, count(1), ran(time.Minute, time.Minute))
	check(t, map[string]decision{
		"b runs since the first": {pod, saw(ready, second, first, running("b")), "stop b#0 RestartAllContainers"},
		"b runs since the last": {
			pod, saw(ready, second, first, running("b", createdAgo(time.Second))), "start regular a#2",
		},
	})
}

func TestAPodThatRestartsItselfForEverBacksOff(t *testing.T) {
	pod := newPod(v1.RestartPolicyNever, ruled("a", v1.ContainerRestartRuleActionRestartAllContainers))
	check(t, map[string]decision{
		"the third time": {pod, saw(ready, exited("a", 42, count(2), ran(time.Second, time.Second))), "a waits 19s"},
	})
}
