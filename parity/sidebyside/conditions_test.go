package sidebyside_test

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/parity/internal/recorder"
)

// all holds when each of them does.
func all(conditions ...condition) condition {
	return func(p *v1.Pod) bool {
		for _, is := range conditions {
			if !is(p) {
				return false
			}
		}
		return true
	}
}

func ready(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodRunning && recorder.ConditionOf(&p.Status, v1.PodReady).Status == v1.ConditionTrue
}

func notReady(p *v1.Pod) bool {
	return recorder.ConditionOf(&p.Status, v1.PodReady).Status == v1.ConditionFalse
}

func containersReady(p *v1.Pod) bool {
	return recorder.ConditionOf(&p.Status, v1.ContainersReady).Status == v1.ConditionTrue
}

func labelled(name string) condition {
	return func(p *v1.Pod) bool { return p.Labels[name] != "" }
}

func deleting(p *v1.Pod) bool { return p.DeletionTimestamp != nil }

func phase(phase v1.PodPhase) condition {
	return func(p *v1.Pod) bool { return p.Status.Phase == phase }
}

// container holds when the container of that name is there and is so.
func container(name string, is func(*v1.ContainerStatus) bool) condition {
	return func(p *v1.Pod) bool {
		for _, c := range recorder.ContainersOf(&p.Status) {
			if c.Name == name {
				return is(&c)
			}
		}
		return false
	}
}

func running(name string) condition {
	return container(name, func(c *v1.ContainerStatus) bool { return c.State.Running != nil })
}

func ended(name string) condition {
	return container(name, func(c *v1.ContainerStatus) bool { return c.State.Terminated != nil })
}

func waiting(name, reason string) condition {
	return container(name, func(c *v1.ContainerStatus) bool {
		return c.State.Waiting != nil && c.State.Waiting.Reason == reason
	})
}

func restarted(name string) condition {
	return container(name, func(c *v1.ContainerStatus) bool { return c.RestartCount > 0 })
}

func crashLoop(name string) condition { return all(restarted(name), waiting(name, "CrashLoopBackOff")) }
