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
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/internal/kubelet"
)

// expected is the kubelet's status where it had known, or thought of, what Herald does: each intended difference is a
// change of the kubelet's input, so that all the rest of its answer counts. ok is false where no input makes the kubelet
// answer as Herald does.
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
		return theirs, false // GEN-34, PH-30: for these both ask the runtime alone
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
			end.ContainerID = kept.ContainerID // the kubelet writes it into an end that it sees
		}
	}
	keepRunningPhase(c, &input, &theirs)
	if !c.PodResources {
		theirs.Resources, theirs.AllocatedResources = nil, nil
	}
	return kubelet.NormalizeStatus(c.Pod, &theirs), true
}

// secondLook lets the kubelet look twice: the started flags of the first look reach the phase in the second (PH-2).
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

// rememberReadiness is PRB-34: what was shown of this very container is its last result while there is no newer one.
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

// keepFlagsByID is PH-38, a container that was replaced leaves no flags behind, and PRB-33, one that does not run is not
// ready.
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

// keepEnds is PH-28: a container of which the runtime cannot tell the state, and which was shown as ended, has ended.
// It returns those ends, by container ID.
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

// dropUnendedBefore is BUG-40: an instance before the newest that has not ended is no last state.
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

// endEphemeral is PH-42: an ephemeral container that ended does not wait to be started again.
func dropEphemeralReasons(input *kubelet.StatusInput) {
	for i := range input.Pod.Spec.EphemeralContainers {
		name := input.Pod.Spec.EphemeralContainers[i].Name
		if newest := newestInstance(input, name); newest != nil && newest.State == kubecontainer.ContainerStateExited {
			delete(input.Reasons, name)
		}
	}
}

// introduce gives a container that is seen for the first time an empty status before, with the mounts that the spec
// asks for: the kubelet takes them from there (PH-22).
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

// keepAddresses is PH-44 and PH-45, a pod that ended keeps its addresses, also across a restart, and PH-47, as do all
// pods while the node's are not known.
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

// keepEnd is PH-17, PH-19 and PH-20: a terminal phase that anybody was told is final, the API server's first, with what
// was said about it. The kubelet obeys only the API server's; an eviction is how it comes by reason and message.
func keepTerminalPhase(c statusCase, input *kubelet.StatusInput) {
	api, previous := &c.Pod.Status, c.baseStatus()
	switch {
	case isTerminal(api.Phase) && api.Phase != previous.Phase:
		input.Eviction = &lifecycle.ShouldEvictResponse{Evict: true, Reason: api.Reason, Message: api.Message}
	case isTerminal(previous.Phase):
		input.Pod.Status.Phase = previous.Phase
		input.Eviction = &lifecycle.ShouldEvictResponse{Evict: true}
		input.Eviction.Reason, input.Eviction.Message = inheritedReason(c)
	}
}

// carriedOver is PH-18.
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

// failKilledInits is PH-16: an init container that was killed for want of memory has failed, also with exit code 0. It
// reports whether there is one.
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

// reviveKilledInits gives them the code back that they ended with.
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

// keepRunning is BUG-42: a pod that was Running stays so where the kubelet shows it as Pending only because it cannot
// tell that a container ran. If all of those ran, the kubelet would say Running, too.
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

// rawPhase is the phase that the statuses alone stand for.
func phaseOf(input *kubelet.StatusInput, status *v1.PodStatus) v1.PodPhase {
	statuses := slices.Concat(status.ContainerStatuses, status.InitContainerStatuses)
	return kubelet.Phase(input.Pod, statuses, input.Terminal, isInitialized(input))
}

func isInitialized(input *kubelet.StatusInput) bool {
	return kubecontainer.HasAnyActiveRegularContainerStarted(&input.Pod.Spec, input.RuntimeStatus)
}

// restartIsDone is GEN-34: Herald replaces containers and keeps the records of the old ones, so that a restart of all of
// them is over when each was made after the end that caused it.
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
		if made, ok := newest[container.Name]; ok && !made.After(trigger) {
			return false
		}
	}
	return !trigger.IsZero()
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
