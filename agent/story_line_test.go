package agent_test

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// describe is a pod in one line, much as kubectl get shows it.
func describe(p *v1.Pod) string {
	ready, restarts := 0, int32(0)
	for _, c := range p.Status.ContainerStatuses {
		restarts += c.RestartCount
		if c.Ready {
			ready++
		}
	}
	kind := ""
	if podid.IsMirror(p) {
		kind = "(mirror) "
	}
	line := fmt.Sprintf("%s%s %d/%d %s", kind, p.Status.Phase, ready, len(p.Spec.Containers), shortWord(p))
	if restarts > 0 {
		line += fmt.Sprintf(", restarts %d", restarts)
	}
	for _, c := range p.Status.ContainerStatuses {
		if cpu, allocated := c.AllocatedResources[v1.ResourceCPU]; allocated {
			line += fmt.Sprintf(", %s has %s", c.Name, cpu.String())
		}
	}
	return line
}

// shortWord is what stands under STATUS: the first thing that is remarkable.
func shortWord(p *v1.Pod) string {
	if p.DeletionTimestamp != nil && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
		return fmt.Sprintf("Terminating(%ds)", *p.DeletionGracePeriodSeconds)
	}
	if p.Status.Reason != "" {
		return p.Status.Reason
	}
	for i, c := range p.Status.InitContainerStatuses {
		if isInitialized(p) {
			break
		}
		if word, done := initWord(p.Spec.InitContainers[i], c); !done {
			return fmt.Sprintf("Init:%d/%d%s", i, len(p.Spec.InitContainers), word)
		}
	}
	word := string(p.Status.Phase)
	for _, c := range p.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			word = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			word = ending(c.State.Terminated)
		}
	}
	return word
}

func isInitialized(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodInitialized && c.Status == v1.ConditionTrue
	})
}

// initWord is what keeps an init container from being done, if it is not.
func initWord(c v1.Container, status v1.ContainerStatus) (word string, done bool) {
	state := status.State
	switch sidecar := c.RestartPolicy != nil; {
	case !sidecar && state.Terminated != nil && state.Terminated.ExitCode == 0, sidecar && status.Started != nil && *status.Started:
		return "", true
	case state.Terminated != nil:
		return " " + ending(state.Terminated), false
	case state.Waiting != nil && state.Waiting.Reason != "" && state.Waiting.Reason != "PodInitializing":
		return " " + state.Waiting.Reason, false
	default:
		return "", false
	}
}

func ending(t *v1.ContainerStateTerminated) string {
	word := t.Reason
	if t.ExitCode != 0 {
		word += fmt.Sprintf("(%d)", t.ExitCode)
	}
	if t.Message != "" {
		word += fmt.Sprintf("(%q)", t.Message)
	}
	return word
}
