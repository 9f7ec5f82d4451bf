package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// ListPods returns every pod that the runtime holds, in any state. Sandboxes and containers have IDs, names, states and
// creation times, but no details. Objects that do not belong to a pod are skipped.
func (r *Runtime) ListPods(ctx context.Context) ([]*observed.Pod, error) {
	at := time.Now()
	runtimeName, err := r.name(ctx)
	if err != nil {
		return nil, err
	}
	sandboxes, err := r.listSandboxes(ctx, "")
	if err != nil {
		return nil, err
	}
	containers, err := r.listContainers(ctx, "")
	if err != nil {
		return nil, err
	}
	pods := groupByPod(runtimeName, sandboxes, containers)
	for _, pod := range pods {
		pod.At = at
		pod.Sort()
	}
	return pods, nil
}

// InspectPod returns one pod in full detail. Objects that disappear during the call are skipped (PLEG-18). An unknown pod has
// no sandboxes and no containers.
func (r *Runtime) InspectPod(ctx context.Context, uid podid.UID) (*observed.Pod, error) {
	pod := &observed.Pod{UID: uid, At: time.Now()}
	runtimeName, err := r.name(ctx)
	if err != nil {
		return nil, err
	}
	sandboxes, containers, err := r.listPod(ctx, uid)
	if err != nil {
		return nil, err
	}
	for _, listed := range groupByPod(runtimeName, sandboxes, containers) {
		pod.Name, pod.Source, pod.SeenAt = listed.Name, listed.Source, listed.SeenAt
		if err := r.inspectListed(ctx, pod, listed); err != nil {
			return nil, err
		}
	}
	pod.Sort()
	if newest, found := pod.NewestSandbox(); found && newest.Ready && newest.Network != nil {
		pod.IPs = newest.Network.IPs
	}
	return pod, nil
}

// inspectListed adds the sandboxes and containers of a list to the pod, in full detail.
func (r *Runtime) inspectListed(ctx context.Context, pod, listed *observed.Pod) error {
	return concurrently(
		func() error {
			for _, sandbox := range listed.Sandboxes {
				if err := r.inspectSandbox(ctx, pod, sandbox); err != nil {
					return err
				}
			}
			return nil
		},
		func() error {
			for _, container := range listed.Containers {
				if err := r.inspectContainer(ctx, pod, container); err != nil {
					return err
				}
			}
			return nil
		},
	)
}

// WatchPods calls changed with the UID of the pod of each event until ctx or the stream ends, and returns why it ended.
// errors.ErrUnsupported means that the runtime does not report events at all. Events are hints: some get lost (F23).
func (r *Runtime) WatchPods(ctx context.Context, changed func(podid.UID)) error {
	r.mu.Lock()
	noEvents := r.unsupported.events
	r.mu.Unlock()
	if noEvents {
		return fmt.Errorf("cri: watch container events: %w", errors.ErrUnsupported)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := r.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	for isFirst := true; err == nil; isFirst = false {
		var event *runtimeapi.ContainerEventResponse
		if event, err = stream.Recv(); err == nil {
			r.metrics.events.observe(event.CreatedAt, isFirst)
			if uid := eventPod(event); uid != "" {
				changed(uid)
			}
		}
	}
	if isUnimplemented(err) {
		r.mu.Lock()
		r.unsupported.events = true
		r.mu.Unlock()
		err = errors.ErrUnsupported
	}
	return fmt.Errorf("cri: watch container events: %w", err)
}

// eventPod returns the pod of an event, or "" if it names none.
func eventPod(event *runtimeapi.ContainerEventResponse) podid.UID {
	if uid, _, ok := criconfig.Owner(event.GetPodSandboxStatus().GetLabels()); ok {
		return uid
	}
	for _, container := range event.GetContainersStatuses() {
		if uid, _, ok := criconfig.Owner(container.GetLabels()); ok {
			return uid
		}
	}
	return podid.UID(event.GetPodSandboxStatus().GetMetadata().GetUid())
}

// listSandboxes lists the sandboxes of one pod, or of all pods for "".
func (r *Runtime) listSandboxes(ctx context.Context, uid podid.UID) ([]*runtimeapi.PodSandbox, error) {
	request := &runtimeapi.ListPodSandboxRequest{}
	if uid != "" {
		request.Filter = &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{criconfig.LabelPodUID: string(uid)}}
	}
	response, err := r.runtime.ListPodSandbox(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("cri: list sandboxes: %w", err)
	}
	return response.Items, nil
}

// listContainers lists the containers of one pod, or of all pods for "".
func (r *Runtime) listContainers(ctx context.Context, uid podid.UID) ([]*runtimeapi.Container, error) {
	request := &runtimeapi.ListContainersRequest{}
	if uid != "" {
		request.Filter = &runtimeapi.ContainerFilter{LabelSelector: map[string]string{criconfig.LabelPodUID: string(uid)}}
	}
	response, err := r.runtime.ListContainers(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("cri: list containers: %w", err)
	}
	return response.Containers, nil
}

// groupByPod returns the pods of the sandboxes and containers, sorted by UID.
func groupByPod(runtimeName string, sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) []*observed.Pod {
	pods := map[podid.UID]*observed.Pod{}
	podOf := func(labels map[string]string) *observed.Pod {
		uid, name, ok := criconfig.Owner(labels)
		if !ok {
			return nil
		}
		if pods[uid] == nil {
			pods[uid] = &observed.Pod{UID: uid, Name: name}
		}
		return pods[uid]
	}
	for _, sandbox := range sandboxes {
		if pod := podOf(sandbox.Labels); pod != nil {
			pod.Source = podid.Source(sandbox.Annotations[podid.SourceAnnotation])
			if at, err := time.Parse(time.RFC3339Nano, sandbox.Annotations[podid.SeenAnnotation]); err == nil && at.After(pod.SeenAt) {
				pod.SeenAt = at
			}
			pod.Sandboxes = append(pod.Sandboxes, listedSandbox(sandbox))
		}
	}
	for _, container := range containers {
		if pod := podOf(container.Labels); pod != nil && container.Labels[criconfig.LabelContainerName] != "" {
			pod.Containers = append(pod.Containers, listedContainer(runtimeName, container))
		}
	}
	var sorted []*observed.Pod
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		sorted = append(sorted, pods[uid])
	}
	return sorted
}

func listedSandbox(sandbox *runtimeapi.PodSandbox) observed.Sandbox {
	return observed.Sandbox{
		ID:        sandbox.Id,
		Attempt:   sandbox.GetMetadata().GetAttempt(),
		Ready:     sandbox.State == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: time.Unix(0, sandbox.CreatedAt),
	}
}

func listedContainer(runtimeName string, container *runtimeapi.Container) observed.Container {
	return observed.Container{
		ID:           observed.ContainerID{Runtime: runtimeName, ID: container.Id},
		Name:         container.Labels[criconfig.LabelContainerName],
		SandboxID:    container.PodSandboxId,
		State:        containerState(container.State),
		RestartCount: criconfig.RestartCount(container.Annotations, container.GetMetadata().GetAttempt()),
		CreatedAt:    time.Unix(0, container.CreatedAt),
		Image:        observed.Image{Name: imageName(container.Image), Ref: container.ImageRef},
		SpecHash:     criconfig.SpecHash(container.Annotations),
	}
}

func containerState(state runtimeapi.ContainerState) observed.State {
	switch state {
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

func (r *Runtime) inspectSandbox(ctx context.Context, pod *observed.Pod, sandbox observed.Sandbox) error {
	response, err := r.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox.ID})
	if isNotFound(err) {
		return nil
	}
	status := response.GetStatus()
	if err == nil && status == nil {
		err = errNoStatus
	}
	if err != nil {
		return fmt.Errorf("cri: inspect sandbox %s of pod %s: %w", sandbox.ID, pod.Name, err)
	}
	sandbox.Ready = status.State == runtimeapi.PodSandboxState_SANDBOX_READY
	sandbox.CreatedAt = time.Unix(0, status.CreatedAt)
	sandbox.HostNetwork = status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	if status.Network != nil && !sandbox.HostNetwork {
		sandbox.Network = &observed.Network{IPs: r.sandboxIPs(status)}
	}
	pod.Sandboxes = append(pod.Sandboxes, sandbox)
	return nil
}

var errNoStatus = errors.New("runtime returned no status")

// sandboxIPs returns the sandbox's addresses. Invalid ones are skipped.
// sandboxIPs returns the addresses of the sandbox, those of the primary family first, whatever the runtime's order.
func (r *Runtime) sandboxIPs(status *runtimeapi.PodSandboxStatus) []netip.Addr {
	texts := []string{status.GetNetwork().GetIp()}
	for _, additional := range status.GetNetwork().GetAdditionalIps() {
		texts = append(texts, additional.GetIp())
	}
	var ips []netip.Addr
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, ip)
		}
	}
	slices.SortStableFunc(ips, func(a, b netip.Addr) int {
		return cmp.Compare(r.familyRank(a), r.familyRank(b))
	})
	return ips
}

// familyRank orders addresses by family.
func (r *Runtime) familyRank(ip netip.Addr) int {
	if ip.Unmap().Is4() == r.config.IPv6First {
		return 1
	}
	return 0
}

func (r *Runtime) inspectContainer(ctx context.Context, pod *observed.Pod, listed observed.Container) error {
	response, err := r.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: listed.ID.ID})
	if isNotFound(err) {
		return nil
	}
	if err == nil && response.GetStatus() == nil {
		err = errNoStatus
	}
	if err != nil {
		return fmt.Errorf("cri: inspect container %s of pod %s: %w", listed.Name, pod.Name, err)
	}
	pod.Containers = append(pod.Containers, r.inspectedContainer(listed, response.Status))
	return nil
}

// inspectedContainer adds the details of the status to a listed container.
func (r *Runtime) inspectedContainer(container observed.Container, status *runtimeapi.ContainerStatus) observed.Container {
	container.State = containerState(status.State)
	container.CreatedAt = time.Unix(0, status.CreatedAt)
	container.Image = observed.Image{Name: imageName(status.Image), Ref: status.ImageRef}
	container.Resources = observedResources(status.GetResources().GetLinux())
	container.User = observedUser(status.GetUser().GetLinux())
	if container.State != observed.Created && status.StartedAt > 0 {
		container.StartedAt = time.Unix(0, status.StartedAt)
	}
	if container.State == observed.Exited {
		container.Exit = r.observedExit(status)
	}
	return container
}

// imageName returns the image name of the spec. Runtimes that do not store it report one of the image's names.
func imageName(image *runtimeapi.ImageSpec) string {
	if name := image.GetUserSpecifiedImage(); name != "" {
		return name
	}
	return image.GetImage()
}

func observedResources(limits *runtimeapi.LinuxContainerResources) *observed.Resources {
	if limits == nil {
		return nil
	}
	var resources observed.Resources
	if limits.CpuPeriod > 0 && limits.CpuQuota > 0 {
		resources.MilliCPULimit = new(limits.CpuQuota * 1000 / limits.CpuPeriod)
	}
	if limits.CpuShares > 0 {
		resources.MilliCPURequest = new(cgroup.MilliCPU(limits.CpuShares))
	}
	if limits.MemoryLimitInBytes > 0 {
		resources.MemoryLimitBytes = new(limits.MemoryLimitInBytes)
	}
	if resources == (observed.Resources{}) {
		return nil
	}
	return &resources
}

func observedUser(user *runtimeapi.LinuxContainerUser) *observed.User {
	if user == nil {
		return nil
	}
	return &observed.User{UID: user.Uid, GID: user.Gid, SupplementalGroups: user.SupplementalGroups}
}
