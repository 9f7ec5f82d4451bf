package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// minStopGrace is what an instance has at least to end by itself, however much was spent before (PW-24).
const minStopGrace = 2 * time.Second

const willBeRestarted = ", will be restarted"

// GracePeriod is what the pod gives its containers to end by themselves.
func GracePeriod(pod *v1.Pod) time.Duration {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return seconds(*pod.DeletionGracePeriodSeconds)
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return seconds(*pod.Spec.TerminationGracePeriodSeconds)
	default:
		return minStopGrace
	}
}

// seconds is what the API has as a number. One that nobody will live to see the end of is cut, so that sums with it hold.
func seconds(n int64) time.Duration { return time.Duration(min(n, maxSeconds)) * time.Second }

const maxSeconds = 1 << 31 // 68 years

// graceFor lets a probe that gave up shorten or lengthen the pod's grace, unless the pod is being deleted (PRB-39).
func graceFor(pod *v1.Pod, c *v1.Container, reason StopReason) time.Duration {
	var probe *v1.Probe
	switch {
	case c == nil:
	case reason == StopLivenessProbe:
		probe = c.LivenessProbe
	case reason == StopStartupProbe:
		probe = c.StartupProbe
	}
	if probe != nil && probe.TerminationGracePeriodSeconds != nil && pod.DeletionGracePeriodSeconds == nil {
		return seconds(*probe.TerminationGracePeriodSeconds)
	}
	return GracePeriod(pod)
}

// stop asks for the end of one instance, once, though two containers may have its name. c is nil when the pod has no such
// container.
func (d *decision) stop(c *v1.Container, instance *observed.Container, reason StopReason, again bool) {
	if slices.ContainsFunc(d.out.Stop, func(s Stop) bool { return s.ID == instance.ID }) {
		return
	}
	message := d.messageOf(instance, reason)
	if again && !strings.HasSuffix(message, willBeRestarted) {
		message += willBeRestarted
	}
	d.out.Stop = append(d.out.Stop, Stop{
		ID: instance.ID, Container: c, Grace: graceFor(d.Pod, c, reason), Reason: reason, Message: message,
	})
}

func (d *decision) messageOf(instance *observed.Container, reason StopReason) string {
	if said := d.Unhealthy[instance.ID]; said != "" && (reason == StopLivenessProbe || reason == StopStartupProbe) {
		return said
	}
	noun := "Container"
	if _, kind := FindContainer(d.Pod, instance.Name); kind == derive.InitContainer || kind == derive.SidecarContainer {
		noun = "derive.InitContainer container"
	}
	return fmt.Sprintf("%s %s %s", noun, instance.Name, reason.words())
}

// words ends the sentence that begins with the container's name. The kubelet's, where it has such a message.
func (r StopReason) words() string {
	switch r {
	case StopDefinitionChanged:
		return "definition changed"
	case StopLivenessProbe:
		return "failed liveness probe"
	case StopStartupProbe:
		return "failed startup probe"
	case StopUnknownState:
		return "is in an unknown state"
	case StopStale:
		return "is not of the present pod"
	case StopRestartAll:
		return "is stopped by a rule that restarts all containers"
	default:
		return "is stopped"
	}
}

// stopSurplus stops what runs beside the newest instance of its name, or under a name that the pod does not have: no two
// instances of a container ever run at one time by intent.
func (d *decision) stopSurplus() {
	for i := range d.seen.Containers {
		instance := &d.seen.Containers[i]
		if instance.State != observed.Running {
			continue
		}
		if c, _ := FindContainer(d.Pod, instance.Name); c == nil || d.newest(instance.Name) != instance {
			d.stop(c, instance, StopStale, false)
		}
	}
}
