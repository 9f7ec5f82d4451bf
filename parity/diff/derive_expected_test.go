package diff_test

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/internal/kubelet"
)

// expectedStatus returns what the kubelet would compute with Herald's knowledge: each intended difference is a change
// of the kubelet's input, so that the rest of its result is compared in full. ok is false if no input makes the kubelet
// agree.
func expectedStatus(c statusCase) (theirs v1.PodStatus, ok bool) {
	input := newStatusInput(c)
	if isRestartAllDone(c.Pod, c.Observed) {
		input.Cached = withoutRestartCondition(input.Cached)
	}
	keepReadinessByID(&input)
	keepFlagsByID(&input)
	hadRegularContainers := kuberuntime.HasAnyRegularContainerCreated(input.Pod, input.RuntimeStatus)
	terminations := keepTerminations(&input)
	if len(terminations) > 0 && canRestartAll(c.Pod) || hadRegularContainers != kuberuntime.HasAnyRegularContainerCreated(input.Pod, input.RuntimeStatus) {
		return theirs, false // GEN-34, PH-30: both consult only the runtime for these
	}
	dropUnterminatedInstances(&input)
	dropEphemeralReasons(&input)
	addFirstStatuses(&input)
	keepPublishedAddresses(&input)
	keepTerminalPhase(c, &input)
	theirs = generateTwice(&input)
	if failOOMKilledInits(&input) {
		if canRestartAll(c.Pod) || phaseOf(&input, &theirs) != v1.PodPending {
			return theirs, false
		}
		theirs = generateTwice(&input)
		restoreOOMKilledInits(&theirs)
	}
	for _, end := range terminatedStates(&theirs) {
		if kept, ok := terminations[end.ContainerID]; ok {
			end.ContainerID = kept.ContainerID // the kubelet sets it for terminations that it observes
		}
	}
	keepRestartCounts(&input, &theirs)
	if derive.IsTerminal(theirs.Phase) && isStoppedByRestartAll(c.Pod, c.Observed) && !c.Terminating {
		return theirs, false // PH-4: the kubelet has removed the records of what it stopped
	}
	keepRunningPhase(c, &input, &theirs)
	if previous := input.Cached; !c.PodResources && previous.Resources == nil && previous.AllocatedResources == nil {
		theirs.Resources, theirs.AllocatedResources = nil, nil
	}
	return kubelet.NormalizeStatus(c.Pod, &theirs), true
}

// generateTwice generates the status twice: the started flags of the first status affect the phase of the second
// (PH-2).
func generateTwice(input *kubelet.StatusInput) v1.PodStatus {
	first := kubeletGenerator.Generate(*input)
	for _, lists := range [][2][]v1.ContainerStatus{
		{first.InitContainerStatuses, input.Cached.InitContainerStatuses}, {first.ContainerStatuses, input.Cached.ContainerStatuses},
	} {
		for i := range lists[0] {
			if old := findContainerStatus(lists[1], lists[0][i].Name); old != nil && lists[0][i].State.Running != nil {
				old.Started = lists[0][i].Started
			}
		}
	}
	return kubeletGenerator.Generate(*input)
}

// keepReadinessByID implements PRB-34: the published readiness of the same container stands in for a missing result.
func keepReadinessByID(input *kubelet.StatusInput) {
	for _, containers := range [][]v1.Container{input.Pod.Spec.InitContainers, input.Pod.Spec.Containers} {
		for i := range containers {
			newest := newestInstance(input, containers[i].Name)
			if containers[i].ReadinessProbe == nil || newest == nil {
				continue
			}
			if _, known := input.Readiness[newest.ID]; known {
				continue
			}
			old := cachedStatus(input, containers[i].Name)
			input.Readiness[newest.ID] = results.Failure
			if old != nil && old.ContainerID == newest.ID.String() && old.Ready {
				input.Readiness[newest.ID] = results.Success
			}
		}
	}
}

// keepFlagsByID implements PH-38, a replaced container passes on no flags, and PRB-33, a container that does not run is
// not ready.
func keepFlagsByID(input *kubelet.StatusInput) {
	for _, list := range cachedStatusLists(input) {
		for i := range *list {
			old := &(*list)[i]
			if newest := newestInstance(input, old.Name); newest == nil || newest.ID.String() != old.ContainerID {
				old.Started = nil
			}
			old.Ready = false
		}
	}
}

// keepTerminations implements PH-28: a container in an unknown state that was published as terminated stays terminated.
// It returns those terminations by container ID.
func keepTerminations(input *kubelet.StatusInput) map[string]*v1.ContainerStateTerminated {
	terminations := map[string]*v1.ContainerStateTerminated{}
	for _, instance := range input.RuntimeStatus.ContainerStatuses {
		old := cachedStatus(input, instance.Name)
		if instance.State != kubecontainer.ContainerStateUnknown || old == nil || old.ContainerID != instance.ID.String() {
			continue
		}
		if terminated := old.State.Terminated; terminated != nil {
			instance.State, instance.ExitCode, instance.Reason = kubecontainer.ContainerStateExited, int(terminated.ExitCode), terminated.Reason
			instance.Message, instance.StartedAt, instance.FinishedAt = terminated.Message, terminated.StartedAt.Time, terminated.FinishedAt.Time
			terminations[old.ContainerID] = terminated
		}
	}
	return terminations
}

// keepRestartCounts implements PH-36: an instance that was published as terminated and is running again was counted already.
func keepRestartCounts(input *kubelet.StatusInput, theirs *v1.PodStatus) {
	for _, statuses := range [][]v1.ContainerStatus{theirs.InitContainerStatuses, theirs.ContainerStatuses, theirs.EphemeralContainerStatuses} {
		for i := range statuses {
			newest, old := newestInstance(input, statuses[i].Name), cachedStatus(input, statuses[i].Name)
			if newest == nil || old == nil || newest.State != kubecontainer.ContainerStateRunning || old.State.Terminated == nil {
				continue
			}
			if old.ContainerID == newest.ID.String() && int(old.RestartCount) >= newest.RestartCount {
				statuses[i].RestartCount = old.RestartCount
			}
		}
	}
}

// dropUnterminatedInstances implements BUG-40: an older instance that has not terminated is no last state.
func dropUnterminatedInstances(input *kubelet.StatusInput) {
	for _, name := range containerNames(input.Pod) {
		instances := slices.DeleteFunc(slices.Clone(input.RuntimeStatus.ContainerStatuses), func(c *kubecontainer.Status) bool {
			return c.Name != name
		})
		if len(instances) < 2 || hasTerminated(instances[1], cachedStatus(input, name)) {
			continue
		}
		input.RuntimeStatus.ContainerStatuses = slices.DeleteFunc(input.RuntimeStatus.ContainerStatuses, func(c *kubecontainer.Status) bool {
			return c.Name == name && c != instances[0]
		})
	}
}

func hasTerminated(c *kubecontainer.Status, old *v1.ContainerStatus) bool {
	lostWhileRunning := c.State == kubecontainer.ContainerStateUnknown && old != nil && old.State.Running != nil
	return c.State == kubecontainer.ContainerStateExited || lostWhileRunning
}

// dropEphemeralReasons implements PH-42: a terminated ephemeral container does not wait to be restarted.
func dropEphemeralReasons(input *kubelet.StatusInput) {
	for i := range input.Pod.Spec.EphemeralContainers {
		name := input.Pod.Spec.EphemeralContainers[i].Name
		if newest := newestInstance(input, name); newest != nil && newest.State == kubecontainer.ContainerStateExited {
			delete(input.Reasons, name)
		}
	}
}

// addFirstStatuses gives a container that is observed for the first time a previous status with the mounts of its spec,
// which is where the kubelet takes them from (PH-22).
func addFirstStatuses(input *kubelet.StatusInput) {
	initial := kubeletGenerator.Generate(kubelet.StatusInput{
		Pod: &v1.Pod{ObjectMeta: input.Pod.ObjectMeta, Spec: input.Pod.Spec}, RuntimeStatus: &kubecontainer.PodStatus{},
	})
	initialLists := [][]v1.ContainerStatus{initial.InitContainerStatuses, initial.ContainerStatuses, initial.EphemeralContainerStatuses}
	for i, list := range cachedStatusLists(input) {
		for _, initialStatus := range initialLists[i] {
			newest := newestInstance(input, initialStatus.Name)
			if newest != nil && findContainerStatus(*list, initialStatus.Name) == nil {
				*list = append(*list, v1.ContainerStatus{
					Name: initialStatus.Name, ContainerID: newest.ID.String(), VolumeMounts: initialStatus.VolumeMounts,
				})
			}
		}
	}
}

// keepPublishedAddresses implements PH-44 and PH-45, a terminated pod keeps its addresses across restarts, and PH-47,
// all pods do while the node's addresses are unknown.
func keepPublishedAddresses(input *kubelet.StatusInput) {
	ready := slices.ContainsFunc(input.RuntimeStatus.SandboxStatuses, isSandboxReady)
	if len(input.RuntimeStatus.IPs) == 0 && (!ready || input.Pod.Spec.HostNetwork) {
		for _, ip := range input.Cached.PodIPs {
			input.RuntimeStatus.IPs = append(input.RuntimeStatus.IPs, ip.IP)
		}
	}
	if len(derive.HostIPs(input.NodeAddresses)) > 0 {
		return
	}
	input.NodeAddresses = nil
	for _, ip := range input.Cached.HostIPs {
		input.NodeAddresses = append(input.NodeAddresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.IP})
	}
}

// keepTerminalPhase implements PH-17, PH-19 and PH-20: a published terminal phase is final, with its reason and
// message. The API server's takes precedence. The kubelet obeys only the API server's; an eviction carries reason and
// message into its status.
func keepTerminalPhase(c statusCase, input *kubelet.StatusInput) {
	api, previous := &c.Pod.Status, c.baseStatus()
	switch {
	case derive.IsTerminal(api.Phase) && api.Phase != previous.Phase:
		input.Eviction = &lifecycle.ShouldEvictResponse{Evict: true, Reason: api.Reason, Message: api.Message}
	case derive.IsTerminal(previous.Phase):
		input.Pod.Status.Phase = previous.Phase
		input.Eviction = &lifecycle.ShouldEvictResponse{Evict: true}
		input.Eviction.Reason, input.Eviction.Message = inheritedReason(c)
	}
}

// inheritedReason implements PH-18.
func inheritedReason(c statusCase) (reason, message string) {
	reason, message = c.baseStatus().Reason, c.baseStatus().Message
	if reason == "" {
		reason = c.Pod.Status.Reason
	}
	if message == "" {
		message = c.Pod.Status.Message
	}
	return reason, message
}

// failOOMKilledInits implements PH-16: an OOM-killed init container has failed, even with exit code 0. It reports
// whether there is one.
func failOOMKilledInits(input *kubelet.StatusInput) bool {
	found := false
	for i := range input.Pod.Spec.InitContainers {
		name := input.Pod.Spec.InitContainers[i].Name
		for _, instance := range input.RuntimeStatus.ContainerStatuses {
			if instance.Name == name && instance.State == kubecontainer.ContainerStateExited && instance.ExitCode == 0 && instance.Reason == oomKilled {
				instance.ExitCode, found = sigkillExitCode, true
			}
		}
		if old := findContainerStatus(input.Cached.InitContainerStatuses, name); old != nil {
			old.State.Terminated = withExitCode(old.State.Terminated, 0, sigkillExitCode, &found)
			old.LastTerminationState.Terminated = withExitCode(old.LastTerminationState.Terminated, 0, sigkillExitCode, &found)
		}
	}
	return found
}

const (
	oomKilled       = "OOMKilled"
	sigkillExitCode = 137
)

// restoreOOMKilledInits restores the original exit codes.
func restoreOOMKilledInits(theirs *v1.PodStatus) {
	var found bool
	for i := range theirs.InitContainerStatuses {
		status := &theirs.InitContainerStatuses[i]
		status.State.Terminated = withExitCode(status.State.Terminated, sigkillExitCode, 0, &found)
		status.LastTerminationState.Terminated = withExitCode(status.LastTerminationState.Terminated, sigkillExitCode, 0, &found)
	}
}

func withExitCode(terminated *v1.ContainerStateTerminated, from, to int32, found *bool) *v1.ContainerStateTerminated {
	if terminated == nil || terminated.Reason != oomKilled || terminated.ExitCode != from {
		return terminated
	}
	changed := *terminated
	changed.ExitCode, *found = to, true
	return &changed
}

// keepRunningPhase implements BUG-42: a Running pod stays Running if the kubelet shows it as Pending only because of
// unknown container states. If all of those containers were running, the kubelet would report Running, too.
func keepRunningPhase(c statusCase, input *kubelet.StatusInput, theirs *v1.PodStatus) {
	if c.baseStatus().Phase != v1.PodRunning || theirs.Phase != v1.PodPending {
		return
	}
	running := theirs.DeepCopy()
	initialized := isInitialized(input)
	forEachContainer(c.Pod, running, func(spec *v1.Container, status *v1.ContainerStatus) {
		if isRegular := findContainerStatus(running.InitContainerStatuses, spec.Name) == nil; isRegular || isSidecar(spec) && initialized {
			status.State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
			status.Started = new(true)
		}
	})
	if phaseOf(input, running) == v1.PodRunning {
		theirs.Phase = v1.PodRunning
		theirs.Reason, theirs.Message = inheritedReason(c)
	}
}

// phaseOf returns the phase that follows from the statuses alone.
func phaseOf(input *kubelet.StatusInput, status *v1.PodStatus) v1.PodPhase {
	statuses := slices.Concat(status.ContainerStatuses, status.InitContainerStatuses)
	return kubelet.Phase(input.Pod, statuses, input.Terminal, isInitialized(input))
}

func isInitialized(input *kubelet.StatusInput) bool {
	return kubecontainer.HasAnyActiveRegularContainerStarted(&input.Pod.Spec, input.RuntimeStatus)
}

// isRestartAllDone implements GEN-34: Herald replaces containers and keeps the old ones, so a restart of all containers
// is done when each was created after the exit that triggered it.
func isRestartAllDone(pod *v1.Pod, observedPod *observed.Pod) bool {
	var trigger time.Time
	newest := map[string]time.Time{}
	for _, c := range observedPod.Containers { // newest first
		if _, later := newest[c.Name]; !later {
			newest[c.Name] = c.CreatedAt
		}
		if c.State == observed.Exited && c.Exit != nil && c.Exit.FinishedAt.After(trigger) && triggersRestartAll(pod, c.Name, int32(c.Exit.Code)) {
			trigger = c.Exit.FinishedAt
		}
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if created, ok := newest[container.Name]; ok && !created.After(trigger) {
			return false
		}
	}
	return !trigger.IsZero()
}

// isStoppedByRestartAll reports whether a container that was created before an exit that restarts all containers, exited after
// it.
func isStoppedByRestartAll(pod *v1.Pod, observedPod *observed.Pod) bool {
	trigger := restart.LastRestartAll(&pod.Spec, observedPod)
	return !trigger.IsZero() && slices.ContainsFunc(containerNames(pod), func(name string) bool {
		newest := observedPod.Newest(name)
		return newest != nil && newest.Exit != nil && !newest.CreatedAt.After(trigger) && newest.Exit.FinishedAt.After(trigger)
	})
}

func triggersRestartAll(pod *v1.Pod, name string, code int32) bool {
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if container.Name != name {
			continue
		}
		for _, rule := range container.RestartPolicyRules {
			codes := rule.ExitCodes
			if codes == nil {
				continue
			}
			if slices.Contains(codes.Values, code) == (codes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
				return rule.Action == v1.ContainerRestartRuleActionRestartAllContainers
			}
		}
	}
	return false
}

func withoutRestartCondition(status *v1.PodStatus) *v1.PodStatus {
	status = status.DeepCopy()
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.AllContainersRestarting })
	return status
}
