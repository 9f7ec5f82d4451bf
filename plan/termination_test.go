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

// describeOrder formats stops as "a, s after a".
func describeOrder(stops []plan.OrderedStop) string {
	var parts []string
	for _, stop := range stops {
		part := stop.Stop.ID.ID
		for i, after := range stop.After {
			part += []string{" after ", "+"}[min(i, 1)] + after.ID
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

func TestPW25_TerminationOrder(t *testing.T) {
	pod := withInit(
		newPod(v1.RestartPolicyAlways, newContainer("a"), newContainer("b")), newSidecar("r"), newContainer("i"), newSidecar("s"), newSidecar("z"),
	)
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	tests := map[string]struct {
		pod        *v1.Pod
		runtimePod *observed.Pod
		want       string
	}{
		"all running": {
			pod, newRuntimePod(readySandbox, newRunning("r"), newRunning("s"), newRunning("z"), newRunning("a"), newRunning("b")),
			"a#0, b#0, z#0 after a#0+b#0, s#0 after a#0+b#0+z#0, r#0 after a#0+b#0+z#0+s#0",
		},
		"terminated containers": {
			pod, newRuntimePod(readySandbox, newRunning("r"), newExited("s", 0), newRunning("z"), newExited("a", 0), newRunning("b")),
			"b#0, z#0 after b#0, r#0 after b#0+z#0",
		},
		"unknown state":            {pod, newRuntimePod(readySandbox, newRunning("r"), newInstance("a", observed.Unknown)), "a#0, r#0 after a#0"},
		"created":                  {pod, newRuntimePod(readySandbox, newRunning("r"), newInstance("a", observed.Created)), "r#0"},
		"init container":           {pod, newRuntimePod(readySandbox, newRunning("r"), newRunning("i")), "i#0, r#0 after i#0"},
		"ephemeral container":      {pod, newRuntimePod(readySandbox, newRunning("r"), newRunning("debug")), "debug#0, r#0"},
		"two instances":            {pod, newRuntimePod(readySandbox, newRunning("r", restartCount(1)), newRunning("r"), newRunning("a")), "a#0, r#1 after a#0, r#0 after a#0"},
		"no spec":                  {nil, newRuntimePod(readySandbox, newRunning("r"), newRunning("a")), "a#0, r#0"},
		"container not in the pod": {pod, newRuntimePod(readySandbox, newRunning("r"), newRunning("x")), "x#0, r#0"},
		"never inspected":          {pod, nil, ""},
		"nothing running":          {pod, newRuntimePod(readySandbox, newExited("a", 0)), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, describeOrder(plan.TerminationOrder(test.pod, test.runtimePod, time.Minute))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPW24_AfterWaiting(t *testing.T) {
	pod := newPod(v1.RestartPolicyAlways, newContainer("a"))
	stop := plan.TerminationOrder(pod, newRuntimePod(readySandbox, newRunning("a")), 30*time.Second)[0].Stop
	want := plan.Stop{
		ID: containerID("a#0"), Container: &pod.Spec.Containers[0], Grace: 30 * time.Second,
		Reason: plan.StopPodTerminating, Message: "Stopping container a",
	}
	if diff := cmp.Diff(want, stop); diff != "" {
		t.Error(diff)
	}
	for spent, left := range map[time.Duration]time.Duration{
		0: 30 * time.Second, 10 * time.Second: 20 * time.Second, 29 * time.Second: 2 * time.Second, time.Hour: 2 * time.Second,
	} {
		if got := stop.AfterWaiting(spent).Grace; got != left {
			t.Errorf("after %v: got %v, want %v", spent, got, left)
		}
	}
}

func TestGracePeriod(t *testing.T) {
	pod := newPod(v1.RestartPolicyAlways)
	graces := []time.Duration{plan.GracePeriod(pod)}
	pod.DeletionGracePeriodSeconds = new(int64(7))
	graces = append(graces, plan.GracePeriod(pod), plan.GracePeriod(&v1.Pod{}))
	if diff := cmp.Diff([]time.Duration{30 * time.Second, 7 * time.Second, 2 * time.Second}, graces); diff != "" {
		t.Error(diff)
	}
}

func TestPW53_HashContainer(t *testing.T) {
	c := v1.Container{Name: "foo", Image: "bar"}
	if got := plan.HashContainer(&c); got != 0x11a6d6d6 {
		t.Errorf("got %#x, want 0x11a6d6d6", got)
	}
	c.Command, c.Env = []string{"sleep"}, []v1.EnvVar{{Name: "A", Value: "1"}}
	if got := plan.HashContainer(&c); got != 0x11a6d6d6 {
		t.Errorf("edited command: got %#x, want 0x11a6d6d6", got)
	}
	for _, other := range []v1.Container{{Name: "foo", Image: "baz"}, {Name: "fox", Image: "bar"}} {
		if plan.HashContainer(&other) == 0x11a6d6d6 {
			t.Errorf("%s %s: got the same hash, want another", other.Name, other.Image)
		}
	}
}

func TestFindContainer(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, newSidecar("a")), newContainer("i"), newSidecar("s"))
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

// The time of the preStop hook and the minimum of two seconds are PW-24.
func TestPRB39_GracePeriod(t *testing.T) {
	tests := map[string]struct {
		deletion, probe, pod *int64
		want                 time.Duration
	}{
		"pod":                    {nil, nil, new(int64(30)), 30 * time.Second},
		"shorter probe":          {nil, new(int64(5)), new(int64(30)), 5 * time.Second},
		"longer probe":           {nil, new(int64(60)), new(int64(30)), 60 * time.Second},
		"probe only":             {nil, new(int64(60)), nil, 60 * time.Second},
		"default":                {nil, nil, nil, 2 * time.Second},
		"shorter deletion":       {new(int64(3)), new(int64(60)), new(int64(30)), 3 * time.Second},
		"longer deletion":        {new(int64(40)), new(int64(5)), new(int64(30)), 40 * time.Second},
		"deletion without probe": {new(int64(40)), nil, new(int64(30)), 40 * time.Second},
		"deletion only":          {new(int64(40)), nil, nil, 40 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			probe := &v1.Probe{TerminationGracePeriodSeconds: test.probe}
			for cause, c := range map[plan.StopReason]v1.Container{
				plan.StopLivenessProbe: {Name: "a", Image: "a:1", LivenessProbe: probe},
				plan.StopStartupProbe:  {Name: "a", Image: "a:1", StartupProbe: probe},
			} {
				pod := newPod(v1.RestartPolicyAlways, c)
				pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds = test.deletion, test.pod
				got := plan.ComputeActions(plan.Input{
					Pod: pod, Observed: newRuntimePod(readySandbox, newRunning("a")), Now: now,
					Unhealthy: map[observed.ContainerID]string{containerID("a#0"): ""},
				})
				if len(got.Stop) != 1 || got.Stop[0].Reason != cause || got.Stop[0].Grace != test.want {
					t.Errorf("%v: got %+v, want %v", cause, got.Stop, test.want)
				}
			}
		})
	}
}
