package action

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/remedy"
	"github.com/heraldnode/herald/view"
)

// objectOf returns what an alert is about.
func objectOf(labels alert.Labels) remedy.Object {
	return remedy.Object{
		Namespace: labels[alert.LabelNamespace], Pod: labels[alert.LabelPod], Container: labels[alert.LabelContainer],
	}
}

// nodeFacts returns what is known about the node; nothing if there are no alerts.
func (a *Actor) nodeFacts(ctx context.Context) remedy.Node {
	if len(a.alerts) == 0 {
		return remedy.Node{}
	}
	node := a.config.Views.Node(ctx)
	return remedy.Node{
		Pods: node.Pods.Total, RuntimeUnknown: node.Runtime.Stale || node.Runtime.Problem != "", StartedAt: a.startedAt,
	}
}

// podFacts returns what is known about the pod and the container of an object. It returns nil if the node does not have the pod.
func (a *Actor) podFacts(ctx context.Context, object remedy.Object) *remedy.Pod {
	if object.Pod == "" {
		return nil
	}
	pod, found := a.config.Views.Pod(ctx, podid.FullName{Namespace: object.Namespace, Name: object.Pod})
	if !found {
		return nil
	}
	return newPodFacts(&pod, object.Container)
}

func newPodFacts(pod *view.PodView, container string) *remedy.Pod {
	status := &pod.Local.Status
	facts := &remedy.Pod{
		Static: pod.Spec.Static, Priority: pod.Spec.Priority, OwnerKind: pod.Metadata.OwnerKind, RestartPolicy: pod.Spec.RestartPolicy,
		OptedOut:    pod.Metadata.Annotations[remedy.OptOutAnnotation] == remedy.OptOutNever,
		Terminating: pod.Metadata.DeletionTimestamp != nil || status.Phase == v1.PodSucceeded || status.Phase == v1.PodFailed || isEnding(pod),
	}
	if status.StartTime != nil {
		facts.StartedAt = status.StartTime.Time
	}
	if container != "" {
		facts.Container = containerFacts(pod, container)
	}
	return facts
}

// isEnding reports whether the worker is past the stage in which it starts containers. Without a worker nothing is known.
func isEnding(pod *view.PodView) bool { return pod.Worker.Stage != "" && pod.Worker.Stage != "sync" }

func containerFacts(pod *view.PodView, name string) *remedy.Container {
	i := slices.IndexFunc(pod.Spec.Containers, func(c view.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	facts := &remedy.Container{Kind: pod.Spec.Containers[i].Kind}
	status := &pod.Local.Status
	for _, s := range slices.Concat(status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses) {
		if s.Name == name && s.State.Running != nil {
			facts.Running, facts.StartedAt = true, s.State.Running.StartedAt.Time
		}
	}
	return facts
}
