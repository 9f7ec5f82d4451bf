package cri

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// ListPods is every pod that the runtime holds, in any state: sandboxes and containers with IDs, names, states and
// creation times, no details. What was not made for a pod is left out.
func (r *Runtime) ListPods(ctx context.Context) ([]*observed.Pod, error) {
	at := time.Now()
	runtime, err := r.runtimeName(ctx)
	if err != nil {
		return nil, err
	}
	sandboxes, err := r.sandboxesOf(ctx, "")
	if err != nil {
		return nil, err
	}
	containers, err := r.containersOf(ctx, "")
	if err != nil {
		return nil, err
	}
	pods := collect(runtime, sandboxes, containers)
	for _, pod := range pods {
		pod.At = at
		pod.Sort()
	}
	return pods, nil
}

// collect groups by pod, in the order of the UIDs.
func collect(runtime string, sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) []*observed.Pod {
	pods := map[podid.UID]*observed.Pod{}
	of := func(labels map[string]string) *observed.Pod {
		uid, name, ours := owner(labels)
		if !ours {
			return nil
		}
		if pods[uid] == nil {
			pods[uid] = &observed.Pod{UID: uid, Name: name}
		}
		return pods[uid]
	}
	for _, sandbox := range sandboxes {
		if pod := of(sandbox.Labels); pod != nil {
			pod.Sandboxes = append(pod.Sandboxes, listedSandbox(sandbox))
		}
	}
	for _, container := range containers {
		if pod := of(container.Labels); pod != nil && container.Labels[labelContainerName] != "" {
			pod.Containers = append(pod.Containers, listedContainer(runtime, container))
		}
	}
	var all []*observed.Pod
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		all = append(all, pods[uid])
	}
	return all
}

func listedSandbox(s *runtimeapi.PodSandbox) observed.Sandbox {
	return observed.Sandbox{
		ID:        s.Id,
		Attempt:   s.GetMetadata().GetAttempt(),
		Ready:     s.State == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: time.Unix(0, s.CreatedAt),
	}
}

func listedContainer(runtime string, c *runtimeapi.Container) observed.Container {
	return observed.Container{
		ID:           observed.ContainerID{Runtime: runtime, ID: c.Id},
		Name:         c.Labels[labelContainerName],
		SandboxID:    c.PodSandboxId,
		State:        state(c.State),
		RestartCount: notedRestarts(c.Annotations, c.GetMetadata().GetAttempt()),
		CreatedAt:    time.Unix(0, c.CreatedAt),
		Image:        observed.Image{Name: imageName(c.Image), Ref: c.ImageRef},
		SpecHash:     notedHash(c.Annotations),
	}
}

func state(s runtimeapi.ContainerState) observed.State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return observed.Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return observed.Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return observed.Exited
	default:
		return observed.Unknown
	}
}

// sandboxesOf lists those of one pod, or of all for "".
func (r *Runtime) sandboxesOf(ctx context.Context, uid podid.UID) ([]*runtimeapi.PodSandbox, error) {
	request := &runtimeapi.ListPodSandboxRequest{}
	if uid != "" {
		request.Filter = &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{labelPodUID: string(uid)}}
	}
	answer, err := r.pods.ListPodSandbox(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("cri: listing sandboxes: %w", err)
	}
	return answer.Items, nil
}

// containersOf lists those of one pod, or of all for "".
func (r *Runtime) containersOf(ctx context.Context, uid podid.UID) ([]*runtimeapi.Container, error) {
	request := &runtimeapi.ListContainersRequest{}
	if uid != "" {
		request.Filter = &runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelPodUID: string(uid)}}
	}
	answer, err := r.pods.ListContainers(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("cri: listing containers: %w", err)
	}
	return answer.Containers, nil
}
