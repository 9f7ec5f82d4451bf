package nodeagent

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

// minEndingTime is the least time that a pod is given to end.
const minEndingTime = 10 * time.Second

// endsBy returns when a pod that terminates should have ended: after one and a half times its grace period (ADM-27). It is zero for
// others.
func endsBy(state worker.PodState) time.Time {
	if state.Stage != plan.Terminating || state.Pod == nil {
		return time.Time{}
	}
	gracePeriod := plan.GracePeriod(state.Pod)
	return state.StageAt.Add(max(minEndingTime, gracePeriod+gracePeriod/2))
}

const (
	preempted        = "Preempting"
	preemptedMessage = "Preempted in order to admit critical pod"
)

// preempt terminates a pod for a critical one. It does not wait.
func (n *NodeAgent) preempt(victim *v1.Pod, resource v1.ResourceName) {
	n.config.Logger.Info("Preempting pod for a critical one", "pod", podid.FullNameOf(victim).Key(), "podUID", victim.UID)
	n.Events.Event(victim, v1.EventTypeWarning, preempted, preemptedMessage)
	n.preemptions.WithLabelValues(string(resource)).Inc()
	kill := plan.KillOptions{Evict: true, StatusFunc: func(status *v1.PodStatus) {
		status.Phase, status.Reason, status.Message = v1.PodFailed, preempted, preemptedMessage
		derive.SetDisruptionTarget(status, victim, "Pod was preempted by Kubelet to accommodate a critical pod.", time.Now())
	}}
	n.Agent.Workers.UpdatePod(worker.Update{Op: plan.OpKill, Pod: victim, Kill: kill})
}

// newPreemptions returns the kubelet's counter of preempted pods.
func newPreemptions(registry prometheus.Registerer) (*prometheus.CounterVec, error) {
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_preemptions", Help: "Number of pods that were ended for a critical one, by the resource that it lacked.",
	}, []string{"preemption_signal"})
	if registry == nil {
		return counter, nil
	}
	if err := registry.Register(counter); err != nil {
		return nil, fmt.Errorf("nodeagent: register metrics: %w", err)
	}
	return counter, nil
}
