package sidebyside_test

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/parity/internal/recorder"
)

// fleeting are words that a side may show or skip, as fast as it looks and writes.
var fleeting = []string{
	"phase Pending", "phase Running", "running", "waiting: ContainerCreating", "waiting: PodInitializing", "waiting: ErrImagePull",
	"waiting: PostStartHookError", "waiting: RunContainerError",
}

// impossible is what Herald showed on the way and the kubelet could not have: a word that it never says of this pod, or a
// container that goes back from its back-off to its old end. What no agent may do is the recorder's to judge.
func impossible(kubelet, herald []*v1.Pod) (problems []string) {
	known := map[string]bool{}
	for _, p := range kubelet {
		for _, word := range words(p) {
			known[word] = true
		}
	}
	for i, p := range herald {
		for _, word := range words(p) {
			if !known[word] {
				problems = append(problems, fmt.Sprintf("on the way, only herald shows at version %s: %s", p.ResourceVersion, word))
			}
		}
		if i > 0 {
			problems = append(problems, backwards(herald[i-1], p)...)
		}
	}
	return problems
}

// words are what a version of a pod says, but for what is fleeting.
func words(p *v1.Pod) []string {
	all := []string{"phase " + string(p.Status.Phase), "reason " + p.Status.Reason}
	for _, c := range recorder.ContainersOf(&p.Status) {
		for _, state := range []v1.ContainerState{c.State, c.LastTerminationState} {
			all = append(all, stateWord(c.Name, state))
		}
	}
	return slices.DeleteFunc(all, func(word string) bool { return word == "" || slices.Contains(fleeting, word) })
}

// stateWord names the container where it matters, and is empty for no state.
func stateWord(name string, state v1.ContainerState) string {
	switch {
	case state.Running != nil:
		return "running"
	case state.Waiting != nil && slices.Contains(fleeting, "waiting: "+state.Waiting.Reason):
		return "waiting: " + state.Waiting.Reason
	case state.Waiting != nil:
		return fmt.Sprintf("%s waiting: %s", name, state.Waiting.Reason)
	case state.Terminated != nil:
		return fmt.Sprintf("%s ended: %s, code %d", name, state.Terminated.Reason, state.Terminated.ExitCode)
	}
	return ""
}

// backwards are the containers that waited to be started again and are shown as ended, without having been started. Those of
// a pod that is to go will not be.
func backwards(before, after *v1.Pod) (problems []string) {
	if after.DeletionTimestamp != nil || recorder.IsEnded(after.Status.Phase) {
		return nil
	}
	for _, was := range recorder.ContainersOf(&before.Status) {
		for _, is := range recorder.ContainersOf(&after.Status) {
			if was.Name == is.Name && was.RestartCount == is.RestartCount && was.State.Waiting != nil && is.State.Terminated != nil &&
				was.State.Waiting.Reason == "CrashLoopBackOff" {
				problems = append(problems, fmt.Sprintf("on the way, herald takes %s back from its back-off to its end at version %s",
					is.Name, after.ResourceVersion))
			}
		}
	}
	return problems
}
