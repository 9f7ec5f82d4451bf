package transition

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// Via is the way by which a new version of a pod's status came about.
type Via string

// The setters of the status manager, and what it does itself.
const (
	ViaWorker    Via = "worker"    // the pod's worker reported a status
	ViaProbe     Via = "probe"     // the prober reported a result
	ViaTerminate Via = "terminate" // the pod's worker reported that the pod holds nothing any more
	ViaAdopt     Via = "adopt"     // the API object had an earlier start time
	ViaRestore   Via = "restore"   // an earlier process left the status
	ViaRemove    Via = "remove"    // the status was removed
)

// Cause is who or what made the status change.
type Cause string

// Causes.
const (
	CauseRuntime Cause = "runtime" // a container or the container runtime did it
	CauseProbe   Cause = "probe"   // a probe's result
	CauseAgent   Cause = "agent"   // a decision of the agent: start, back-off, admission, deadline
	CauseSpec    Cause = "spec"    // the manifest or the API object asks for something else
	CauseAPI     Cause = "api"     // deletion, eviction or another writer in the API server
	CauseRestart Cause = "restart" // the agent was restarted and found this
	CauseNode    Cause = "node"    // pressure, shutdown or the clock of the node
	CauseUser    Cause = "user"    // somebody asked the agent for it
	CauseAction  Cause = "action"  // an action of an alert rule
)

// PodFacts are the facts that the cause of a transition depends on.
type PodFacts struct {
	Via     Via
	Pod     *v1.Pod
	After   *v1.PodStatus
	Changes []Change
	// Resumed is set for the first version of a pod after a restart of the agent.
	Resumed bool
}

// Stop reasons, as plan.StopReason has them, that say more than that the agent decided.
const (
	stopPodTerminating    = "PodTerminating"
	stopDefinitionChanged = "DefinitionChanged"
	stopResize            = "Resize"
	stopLivenessProbe     = "LivenessProbe"
	stopStartupProbe      = "StartupProbe"
	// StopUser is the reason of a stop that somebody asked for.
	StopUser = "User"
	// StopAction is the reason of a stop that an alert rule asked for.
	StopAction = "Action"
)

// PodCause returns the cause of a transition: the first row that applies.
//
//	the first version after a restart of the agent               restart
//	the API object had an earlier start time                      api
//	the pod's deletion was requested, or the pod was removed      spec for a static pod, else api
//	the node ended the pod: evicted, preempted, shut down         node
//	a container was stopped by a liveness or startup probe        probe
//	a container was stopped because its definition changed        spec
//	a container was stopped because the pod ends                  as for the end of the pod
//	a container was stopped because somebody asked for it         user
//	a container was stopped because an alert rule asked for it    action
//	a container was stopped for another reason                    agent
//	a container ended by itself                                   runtime
//	a probe result was reported                                   probe
//	the pod ended for another reason: deadline, admission         agent
//	a container started, or waits for the agent                   agent
//	a container waits for the runtime: image, creation            runtime
//	a condition of another writer changed                         api
//	the spec has a new generation, or resources changed           spec
//	else                                                          agent
func PodCause(f PodFacts) Cause {
	switch {
	case f.Resumed || f.Via == ViaRestore:
		return CauseRestart
	case f.Via == ViaAdopt:
		return CauseAPI
	case f.has(FieldDeletion), f.has(FieldRemoved):
		return f.endCause()
	case nodeReasons[f.After.Reason] && (f.has(FieldPhase) || f.has(FieldReason)):
		return CauseNode
	}
	if cause, found := f.exitCause(); found {
		return cause
	}
	if f.Via == ViaProbe {
		return CauseProbe
	}
	if f.has(FieldPhase) && f.After.Reason != "" {
		return CauseAgent
	}
	if cause, found := f.stateCause(); found {
		return cause
	}
	return f.otherCause()
}

// nodeReasons are the pod reasons with which the node ends a pod for its own sake. They are the kubelet's.
var nodeReasons = map[string]bool{
	"Evicted": true, "Preempting": true, "Preempted": true, "Terminated": true, "NodeShutdown": true, "NodeLost": true,
}

func (f *PodFacts) has(field Field) bool {
	for i := range f.Changes {
		if f.Changes[i].Field == field {
			return true
		}
	}
	return false
}

// endCause returns who ended the pod.
func (f *PodFacts) endCause() Cause {
	switch {
	case podid.IsStatic(f.Pod):
		return CauseSpec
	case f.Pod.DeletionTimestamp != nil || f.has(FieldRemoved):
		return CauseAPI
	default:
		return CauseAgent
	}
}

// exitCause returns the cause of the first end of a container.
func (f *PodFacts) exitCause() (Cause, bool) {
	for i := range f.Changes {
		exit := f.Changes[i].Exit
		if exit == nil {
			continue
		}
		switch exit.StoppedBy {
		case "":
			return CauseRuntime, true
		case stopLivenessProbe, stopStartupProbe:
			return CauseProbe, true
		case stopDefinitionChanged, stopResize:
			return CauseSpec, true
		case StopUser:
			return CauseUser, true
		case StopAction:
			return CauseAction, true
		case stopPodTerminating:
			return f.endCause(), true
		default:
			return CauseAgent, true
		}
	}
	return "", false
}

// runtimeReasons are the waiting reasons that report an error of the runtime, a registry or the network. All others are
// decisions of the agent.
var runtimeReasons = map[string]bool{
	"ErrImagePull": true, "RegistryUnavailable": true, "SignatureValidationFailed": true, "ImageInspectError": true,
	"CreateContainerError": true, "RunContainerError": true, "PostStartHookError": true, "CreatePodSandboxError": true,
	"ContainerStatusUnknown": true,
}

func (f *PodFacts) stateCause() (Cause, bool) {
	for i := range f.Changes {
		if change := &f.Changes[i]; change.Field == FieldState {
			if change.To == StateWaiting && runtimeReasons[change.Reason] {
				return CauseRuntime, true
			}
			return CauseAgent, true
		}
	}
	return "", false
}

// otherCause returns the cause of a transition without a change of a container's state.
func (f *PodFacts) otherCause() Cause {
	for i := range f.Changes {
		switch f.Changes[i].Field {
		case FieldGeneration, FieldResources, Field(v1.PodResizePending), Field(v1.PodResizeInProgress):
			return CauseSpec
		case Field(v1.DisruptionTarget):
			return CauseAPI
		case Field(v1.PodReady):
			if f.Changes[i].Reason == "ReadinessGatesNotReady" || len(f.Pod.Spec.ReadinessGates) > 0 {
				return CauseAPI
			}
		}
	}
	return CauseAgent
}
