package plan_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

// What a preStop hook takes of the grace, and the two seconds that are always left, are PW-24.
func TestPRB39AfterAFailedProbeTheGraceIsTheDeletionsThenTheProbesThenThePods(t *testing.T) {
	tests := map[string]struct {
		deletion, probe, pod *int64
		want                 time.Duration
	}{
		"the pod's":                                   {nil, nil, new(int64(30)), 30 * time.Second},
		"the probe's is shorter":                      {nil, new(int64(5)), new(int64(30)), 5 * time.Second},
		"the probe's is longer":                       {nil, new(int64(60)), new(int64(30)), 60 * time.Second},
		"the probe's, and the pod says nothing":       {nil, new(int64(60)), nil, 60 * time.Second},
		"nobody says anything":                        {nil, nil, nil, 2 * time.Second},
		"the deletion's is shorter than the probe's":  {new(int64(3)), new(int64(60)), new(int64(30)), 3 * time.Second},
		"the deletion's is longer than the probe's":   {new(int64(40)), new(int64(5)), new(int64(30)), 40 * time.Second},
		"the deletion's, and the probe says nothing":  {new(int64(40)), nil, new(int64(30)), 40 * time.Second},
		"the deletion's, and nobody else has a grace": {new(int64(40)), nil, nil, 40 * time.Second},
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
					Pod: pod, Observed: saw(ready, running("a")), Now: now,
					Unhealthy: map[observed.ContainerID]string{id("a#0"): ""},
				})
				if len(got.Stop) != 1 || got.Stop[0].Reason != cause || got.Stop[0].Grace != test.want {
					t.Errorf("%v: %+v, want %v", cause, got.Stop, test.want)
				}
			}
		})
	}
}
