package replay

import (
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
	"github.com/heraldnode/herald/view"
)

// podState is a pod as the records describe it.
type podState struct {
	pod   *v1.Pod
	kinds map[string]string // of containers, as far as they are known
	// isComplete is set if the first record of the pod is known.
	isComplete bool
	isRemoved  bool
}

// newPodState returns the state before a record. Labels, owner and the kinds of containers are known if the node still has the pod.
func newPodState(record *history.Record, known *view.PodView) *podState {
	p := &podState{kinds: map[string]string{}, isComplete: record.Prev == 0 && !record.Gap}
	p.pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: record.Namespace, Name: record.Name, UID: types.UID(record.UID), CreationTimestamp: metav1.NewTime(record.Time),
	}}
	if known == nil {
		return p
	}
	meta := &known.Metadata
	p.pod.Labels, p.pod.Annotations = meta.Labels, meta.Annotations
	if meta.CreationTimestamp != nil {
		p.pod.CreationTimestamp = metav1.NewTime(meta.CreationTimestamp.Time)
	}
	if meta.OwnerKind != "" {
		p.pod.OwnerReferences = []metav1.OwnerReference{{Kind: meta.OwnerKind, Controller: new(true)}}
	}
	p.pod.Spec.Priority, p.pod.Spec.HostNetwork = new(known.Spec.Priority), known.Spec.HostNetwork
	p.pod.Spec.RestartPolicy = v1.RestartPolicy(known.Spec.RestartPolicy)
	for i := range known.Spec.Containers {
		p.kinds[known.Spec.Containers[i].Name] = known.Spec.Containers[i].Kind
		p.addContainer(&known.Spec.Containers[i])
	}
	return p
}

// addContainer adds a container to the spec.
func (p *podState) addContainer(c *view.Container) {
	container := v1.Container{Name: c.Name, Image: c.Image}
	switch c.Kind {
	case "init", "sidecar":
		if c.Kind == "sidecar" {
			container.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		p.pod.Spec.InitContainers = append(p.pod.Spec.InitContainers, container)
	case "ephemeral":
	default:
		p.pod.Spec.Containers = append(p.pod.Spec.Containers, container)
	}
}

// apply applies the changes of a record.
func (p *podState) apply(changes []transition.Change, at time.Time) {
	p.pod = p.pod.DeepCopy() // the views before share it
	for i := range changes {
		if changes[i].Container != "" {
			p.applyToContainer(&changes[i], at)
		} else {
			p.applyToPod(&changes[i], at)
		}
	}
}

func (p *podState) applyToPod(change *transition.Change, at time.Time) {
	status := &p.pod.Status
	switch change.Field {
	case transition.FieldPhase:
		status.Phase, status.Reason, status.Message = v1.PodPhase(change.To), change.Reason, change.Message
	case transition.FieldReason:
		status.Reason, status.Message = change.To, change.Message
	case transition.FieldAddress:
		status.PodIP = change.To
	case transition.FieldDeletion:
		p.pod.DeletionTimestamp = new(metav1.NewTime(at))
	case transition.FieldRemoved:
		p.isRemoved = true
	case transition.FieldGeneration, transition.FieldStartTime, transition.FieldOther, transition.FieldResources:
	default:
		p.setCondition(change, at)
	}
}

func (p *podState) setCondition(change *transition.Change, at time.Time) {
	conditions := &p.pod.Status.Conditions
	index := slices.IndexFunc(*conditions, func(c v1.PodCondition) bool { return string(c.Type) == string(change.Field) })
	condition := v1.PodCondition{
		Type: v1.PodConditionType(change.Field), Status: v1.ConditionStatus(change.To), Reason: change.Reason, Message: change.Message,
		LastTransitionTime: metav1.NewTime(at),
	}
	switch {
	case change.To == "" && index >= 0:
		*conditions = slices.Delete(*conditions, index, index+1)
	case index >= 0:
		(*conditions)[index] = condition
	case change.To != "":
		*conditions = append(*conditions, condition)
	}
}

// list returns the list of statuses that has a container.
func (p *podState) list(container string) *[]v1.ContainerStatus {
	switch p.kinds[container] {
	case "init", "sidecar":
		return &p.pod.Status.InitContainerStatuses
	case "ephemeral":
		return &p.pod.Status.EphemeralContainerStatuses
	default:
		return &p.pod.Status.ContainerStatuses
	}
}

func (p *podState) applyToContainer(change *transition.Change, at time.Time) {
	list := p.list(change.Container)
	index := slices.IndexFunc(*list, func(s v1.ContainerStatus) bool { return s.Name == change.Container })
	if index < 0 {
		if _, known := p.kinds[change.Container]; !known {
			p.kinds[change.Container] = "regular"
			p.addContainer(&view.Container{Name: change.Container})
		}
		index = len(*list)
		*list = append(*list, v1.ContainerStatus{Name: change.Container})
	}
	status := &(*list)[index]
	switch change.Field {
	case transition.FieldState:
		if change.To == "" {
			*list = slices.Delete(*list, index, index+1)
			return
		}
		if ended := status.State.Terminated; ended != nil && change.To != transition.StateTerminated {
			status.LastTerminationState = v1.ContainerState{Terminated: ended}
		}
		status.State = newContainerState(change, at)
	case transition.FieldLastState:
		status.LastTerminationState = newContainerState(change, at)
	case transition.FieldReady:
		status.Ready = change.To == "true"
	case transition.FieldStarted:
		status.Started = new(change.To == "true")
	case transition.FieldRestartCount:
		if count, err := strconv.ParseInt(change.To, 10, 32); err == nil {
			status.RestartCount = int32(count)
		}
	case transition.FieldImage:
		status.Image = change.To
	}
}

func newContainerState(change *transition.Change, at time.Time) v1.ContainerState {
	switch change.To {
	case transition.StateRunning:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}}
	case transition.StateTerminated:
		ended := &v1.ContainerStateTerminated{Reason: change.Reason, Message: change.Message, FinishedAt: metav1.NewTime(at)}
		if change.Exit != nil {
			ended.ExitCode, ended.Signal = change.Exit.Code, change.Exit.Signal
		}
		return v1.ContainerState{Terminated: ended}
	default:
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: change.Reason, Message: change.Message}}
	}
}

// view returns the pod as rules see it.
func (p *podState) view(now time.Time) *view.PodView {
	v := view.NewRulePod(explain.Facts{Now: now, Name: podid.FullNameOf(p.pod), Pod: p.pod, Worker: explain.Worker{Known: true}})
	return &v
}
