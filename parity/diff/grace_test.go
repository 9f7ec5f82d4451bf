package diff_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/plan"
)

// graceCase is a container whose probe gave up.
type graceCase struct {
	Pod     *v1.Pod
	Startup bool
}

// compareGrace gives pods as the API server fills them in: each has a grace period.
var compareGrace = compared(
	func(d *drawer) graceCase {
		seconds := func() *int64 { return oneOf(d, nil, new(int64(1)), new(int64(5)), new(int64(30)), new(int64(600))) }
		c := graceCase{podWith(v1.RestartPolicyAlways, "app"), d.chance(50)}
		c.Pod.DeletionGracePeriodSeconds = seconds()
		c.Pod.Spec.TerminationGracePeriodSeconds = oneOf(d, new(int64(0)), new(int64(10)), new(int64(30)))
		app := &c.Pod.Spec.Containers[0]
		app.LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: seconds()}
		if c.Startup {
			app.StartupProbe = &v1.Probe{TerminationGracePeriodSeconds: seconds()}
		}
		return c
	},
	func(c graceCase) string {
		if c.Pod.Spec.TerminationGracePeriodSeconds == nil {
			return ""
		}
		seen, reason := sights(sight("app", 1, observed.Running)), plan.StopLivenessProbe
		if c.Startup {
			reason = plan.StopStartupProbe
		}
		ours := plan.Next(plan.Input{
			Pod: c.Pod, Observed: seen, Now: time.Now(), Unhealthy: map[observed.ContainerID]string{containerID("app", 1): ""},
		}).Stop
		if len(ours) != 1 || ours[0].Reason != reason {
			return unlike(reason, ours)
		}
		if theirs := kubelet.GracePeriod(c.Pod, &c.Pod.Spec.Containers[0], string(reason)); theirs != ours[0].Grace {
			return unlike(theirs.String(), ours[0].Grace.String())
		}
		return ""
	},
)

func TestPRB39BothGiveTheSameGraceAfterAFailedProbe(t *testing.T) { compareGrace.run(t) }
