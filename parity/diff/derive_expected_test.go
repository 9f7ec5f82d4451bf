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
func expected(c statusCase) (theirs v1.PodStatus, ok bool) {
	look := lookOf(c)
	if restartIsDone(c.Pod, c.Observed) {
		look.Cached = withoutRestart(look.Cached)
	}
	rememberReadiness(&look)
	keepFlagsByID(&look)
	created := kuberuntime.HasAnyRegularContainerCreated(look.Pod, look.RuntimeStatus)
	ends := keepEnds(&look)
	if len(ends) > 0 && canRestartAll(c.Pod) || created != kuberuntime.HasAnyRegularContainerCreated(look.Pod, look.RuntimeStatus) {
		return theirs, false // GEN-34, PH-30: for these both ask the runtime alone
	}
	dropUnendedBefore(&look)
	endEphemeral(&look)
	introduce(&look)
	keepAddresses(&look)
	keepEnd(c, &look)
	theirs = secondLook(&look)
	if failKilledInits(&look) {
		if canRestartAll(c.Pod) || rawPhase(&look, &theirs) != v1.PodPending {
			return theirs, false
		}
		theirs = secondLook(&look)
		reviveKilledInits(&theirs)
	}
	for _, end := range endsOf(&theirs) {
		if kept, ok := ends[end.ContainerID]; ok {
			end.ContainerID = kept.ContainerID // the kubelet writes it into an end that it sees
		}
	}
	keepRunning(c, &look, &theirs)
	if !c.PodResources {
		theirs.Resources, theirs.AllocatedResources = nil, nil
	}
	return kubelet.NormalizeStatus(c.Pod, &theirs), true
}

// secondLook lets the kubelet look twice: the started flags of the first look reach the phase in the second (PH-2).
func secondLook(look *kubelet.StatusInput) v1.PodStatus {
	first := generator.Generate(*look)
	for _, lists := range [][2][]v1.ContainerStatus{
		{first.InitContainerStatuses, look.Cached.InitContainerStatuses}, {first.ContainerStatuses, look.Cached.ContainerStatuses},
	} {
		for i := range lists[0] {
			if old := statusNamed(lists[1], lists[0][i].Name); old != nil && lists[0][i].State.Running != nil {
				old.Started = lists[0][i].Started
			}
		}
	}
	return generator.Generate(*look)
}

// rememberReadiness is PRB-34: what was shown of this very container is its last result while there is no newer one.
func rememberReadiness(look *kubelet.StatusInput) {
	for _, containers := range [][]v1.Container{look.Pod.Spec.InitContainers, look.Pod.Spec.Containers} {
		for i := range containers {
			newest := newestSeen(look, containers[i].Name)
			if containers[i].ReadinessProbe == nil || newest == nil {
				continue
			}
			if _, known := look.Readiness[newest.ID]; known {
				continue
			}
			old := cachedStatus(look, containers[i].Name)
			look.Readiness[newest.ID] = results.Failure
			if old != nil && old.ContainerID == newest.ID.String() && old.Ready {
				look.Readiness[newest.ID] = results.Success
			}
		}
	}
}

// keepFlagsByID is PH-38, a container that was replaced leaves no flags behind, and PRB-33, one that does not run is not
// ready.
func keepFlagsByID(look *kubelet.StatusInput) {
	for _, list := range cachedLists(look) {
		for i := range *list {
			old := &(*list)[i]
			if newest := newestSeen(look, old.Name); newest == nil || newest.ID.String() != old.ContainerID {
				old.Started = nil
			}
			old.Ready = false
		}
	}
}

// keepEnds is PH-28: a container of which the runtime cannot tell the state, and which was shown as ended, has ended.
// It returns those ends, by container ID.
func keepEnds(look *kubelet.StatusInput) map[string]*v1.ContainerStateTerminated {
	ends := map[string]*v1.ContainerStateTerminated{}
	for _, seen := range look.RuntimeStatus.ContainerStatuses {
		old := cachedStatus(look, seen.Name)
		if seen.State != kubecontainer.ContainerStateUnknown || old == nil || old.ContainerID != seen.ID.String() {
			continue
		}
		if end := old.State.Terminated; end != nil {
			seen.State, seen.ExitCode, seen.Reason = kubecontainer.ContainerStateExited, int(end.ExitCode), end.Reason
			seen.Message, seen.StartedAt, seen.FinishedAt = end.Message, end.StartedAt.Time, end.FinishedAt.Time
			ends[old.ContainerID] = end
		}
	}
	return ends
}

// dropUnendedBefore is BUG-40: an instance before the newest that has not ended is no last state.
func dropUnendedBefore(look *kubelet.StatusInput) {
	for _, name := range containerNames(look.Pod) {
		instances := slices.DeleteFunc(slices.Clone(look.RuntimeStatus.ContainerStatuses), func(c *kubecontainer.Status) bool {
			return c.Name != name
		})
		if len(instances) < 2 || hasEnded(instances[1], cachedStatus(look, name)) {
			continue
		}
		look.RuntimeStatus.ContainerStatuses = slices.DeleteFunc(look.RuntimeStatus.ContainerStatuses, func(c *kubecontainer.Status) bool {
			return c.Name == name && c != instances[0]
		})
	}
}

func hasEnded(c *kubecontainer.Status, old *v1.ContainerStatus) bool {
	lostSight := c.State == kubecontainer.ContainerStateUnknown && old != nil && old.State.Running != nil
	return c.State == kubecontainer.ContainerStateExited || lostSight
}

// endEphemeral is PH-42: an ephemeral container that ended does not wait to be started again.
func endEphemeral(look *kubelet.StatusInput) {
	for i := range look.Pod.Spec.EphemeralContainers {
		name := look.Pod.Spec.EphemeralContainers[i].Name
		if newest := newestSeen(look, name); newest != nil && newest.State == kubecontainer.ContainerStateExited {
			delete(look.Reasons, name)
		}
	}
}

// introduce gives a container that is seen for the first time an empty status before, with the mounts that the spec
// asks for: the kubelet takes them from there (PH-22).
func introduce(look *kubelet.StatusInput) {
	unseen := generator.Generate(kubelet.StatusInput{
		Pod: &v1.Pod{ObjectMeta: look.Pod.ObjectMeta, Spec: look.Pod.Spec}, RuntimeStatus: &kubecontainer.PodStatus{},
	})
	fresh := [][]v1.ContainerStatus{unseen.InitContainerStatuses, unseen.ContainerStatuses, unseen.EphemeralContainerStatuses}
	for i, list := range cachedLists(look) {
		for _, untouched := range fresh[i] {
			newest := newestSeen(look, untouched.Name)
			if newest != nil && statusNamed(*list, untouched.Name) == nil {
				*list = append(*list, v1.ContainerStatus{
					Name: untouched.Name, ContainerID: newest.ID.String(), VolumeMounts: untouched.VolumeMounts,
				})
			}
		}
	}
}

// keepAddresses is PH-44 and PH-45, a pod that ended keeps its addresses, also across a restart, and PH-47, as do all
// pods while the node's are not known.
func keepAddresses(look *kubelet.StatusInput) {
	ready := slices.ContainsFunc(look.RuntimeStatus.SandboxStatuses, isReady)
	if len(look.RuntimeStatus.IPs) == 0 && (!ready || look.Pod.Spec.HostNetwork) {
		for _, ip := range look.Cached.PodIPs {
			look.RuntimeStatus.IPs = append(look.RuntimeStatus.IPs, ip.IP)
		}
	}
	if len(derive.HostIPs(look.NodeAddresses)) > 0 {
		return
	}
	look.NodeAddresses = nil
	for _, ip := range look.Cached.HostIPs {
		look.NodeAddresses = append(look.NodeAddresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.IP})
	}
}

// keepEnd is PH-17, PH-19 and PH-20: a terminal phase that anybody was told is final, the API server's first, with what
// was said about it. The kubelet obeys only the API server's; an eviction is how it comes by reason and message.
func keepEnd(c statusCase, look *kubelet.StatusInput) {
	api, previous := &c.Pod.Status, c.before()
	switch {
	case isTerminal(api.Phase) && api.Phase != previous.Phase:
		look.Eviction = &lifecycle.ShouldEvictResponse{Evict: true, Reason: api.Reason, Message: api.Message}
	case isTerminal(previous.Phase):
		look.Pod.Status.Phase = previous.Phase
		look.Eviction = &lifecycle.ShouldEvictResponse{Evict: true}
		look.Eviction.Reason, look.Eviction.Message = carriedOver(c)
	}
}

// carriedOver is PH-18.
func carriedOver(c statusCase) (reason, message string) {
	reason, message = c.before().Reason, c.before().Message
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
func failKilledInits(look *kubelet.StatusInput) bool {
	found := false
	for i := range look.Pod.Spec.InitContainers {
		name := look.Pod.Spec.InitContainers[i].Name
		for _, seen := range look.RuntimeStatus.ContainerStatuses {
			if seen.Name == name && seen.State == kubecontainer.ContainerStateExited && seen.ExitCode == 0 && seen.Reason == outOfMemory {
				seen.ExitCode, found = killed, true
			}
		}
		if old := statusNamed(look.Cached.InitContainerStatuses, name); old != nil {
			old.State.Terminated = withCode(old.State.Terminated, 0, killed, &found)
			old.LastTerminationState.Terminated = withCode(old.LastTerminationState.Terminated, 0, killed, &found)
		}
	}
	return found
}

const (
	outOfMemory = "OOMKilled"
	killed      = 137
)

// reviveKilledInits gives them the code back that they ended with.
func reviveKilledInits(theirs *v1.PodStatus) {
	var found bool
	for i := range theirs.InitContainerStatuses {
		status := &theirs.InitContainerStatuses[i]
		status.State.Terminated = withCode(status.State.Terminated, killed, 0, &found)
		status.LastTerminationState.Terminated = withCode(status.LastTerminationState.Terminated, killed, 0, &found)
	}
}

func withCode(end *v1.ContainerStateTerminated, old, code int32, found *bool) *v1.ContainerStateTerminated {
	if end == nil || end.Reason != outOfMemory || end.ExitCode != old {
		return end
	}
	changed := *end
	changed.ExitCode, *found = code, true
	return &changed
}

// keepRunning is BUG-42: a pod that was Running stays so where the kubelet shows it as Pending only because it cannot
// tell that a container ran. If all of those ran, the kubelet would say Running, too.
func keepRunning(c statusCase, look *kubelet.StatusInput, theirs *v1.PodStatus) {
	if c.before().Phase != v1.PodRunning || theirs.Phase != v1.PodPending {
		return
	}
	ran := theirs.DeepCopy()
	initialized := isInitialized(look)
	eachContainer(c.Pod, ran, func(spec *v1.Container, status *v1.ContainerStatus) {
		if isRegular := statusNamed(ran.InitContainerStatuses, spec.Name) == nil; isRegular || isSidecar(spec) && initialized {
			status.State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
			status.Started = new(true)
		}
	})
	if rawPhase(look, ran) == v1.PodRunning {
		theirs.Phase = v1.PodRunning
		theirs.Reason, theirs.Message = carriedOver(c)
	}
}

// rawPhase is the phase that the statuses alone stand for.
func rawPhase(look *kubelet.StatusInput, status *v1.PodStatus) v1.PodPhase {
	statuses := slices.Concat(status.ContainerStatuses, status.InitContainerStatuses)
	return kubelet.Phase(look.Pod, statuses, look.Terminal, isInitialized(look))
}

func isInitialized(look *kubelet.StatusInput) bool {
	return kubecontainer.HasAnyActiveRegularContainerStarted(&look.Pod.Spec, look.RuntimeStatus)
}

// restartIsDone is GEN-34: Herald replaces containers and keeps the records of the old ones, so that a restart of all of
// them is over when each was made after the end that caused it.
func restartIsDone(pod *v1.Pod, seen *observed.Pod) bool {
	var cause time.Time
	newest := map[string]time.Time{}
	for _, c := range seen.Containers { // newest first
		if _, later := newest[c.Name]; !later {
			newest[c.Name] = c.CreatedAt
		}
		if c.State == observed.Exited && c.Exit != nil && c.Exit.FinishedAt.After(cause) && restartsAllAfter(pod, c.Name, int32(c.Exit.Code)) {
			cause = c.Exit.FinishedAt
		}
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if made, ok := newest[container.Name]; ok && !made.After(cause) {
			return false
		}
	}
	return !cause.IsZero()
}

func restartsAllAfter(pod *v1.Pod, name string, code int32) bool {
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

func withoutRestart(status *v1.PodStatus) *v1.PodStatus {
	status = status.DeepCopy()
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.AllContainersRestarting })
	return status
}
