package node_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cgroup/host"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// size is the CPU and memory of a container; requests and limits are equal.
type size struct{ cpu, memory string }

func (s size) list() v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(s.cpu), v1.ResourceMemory: resource.MustParse(s.memory)}
}

func (s size) requirements() v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: s.list(), Limits: s.list()}
}

func (s size) container(name string, args ...string) v1.Container {
	container := newContainer(name, args...)
	container.Resources = s.requirements()
	return container
}

// resizePod asks for other resources of containers, as kubectl does.
func (h *harness) resizePod(name string, sizes map[string]size) {
	h.t.Helper()
	type container struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources"`
	}
	var containers []container
	for _, name := range slices.Sorted(maps.Keys(sizes)) { // the API server refuses another order than that of the pod
		containers = append(containers, container{name, sizes[name].requirements()})
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": containers}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.kubectl("patch", "pod", name, "--subresource", "resize", "--patch", string(patch))
}

func resizeCondition(p *v1.Pod, conditionType v1.PodConditionType) v1.PodCondition {
	return recorder.PodCondition(&p.Status, conditionType)
}

// awaitResized waits until the resize is complete and the pod is ready, and compares status and cgroups with what is expected.
func (h *harness) awaitResized(name string, sizes map[string]size) *v1.Pod {
	h.t.Helper()
	p := h.Await(name, "resized", func(p *v1.Pod) bool {
		return desires(p, sizes) && p.Status.ObservedGeneration == p.Generation && isReady(p) &&
			resizeCondition(p, v1.PodResizePending).Status == "" && resizeCondition(p, v1.PodResizeInProgress).Status == ""
	})
	var cpu, memory int64
	for container, size := range sizes {
		want, status := size.list(), containerStatus(p, container)
		for from, got := range map[string]v1.ResourceList{
			"allocated": status.AllocatedResources, "requests": status.Resources.Requests, "limits": status.Resources.Limits,
		} {
			if !got.Cpu().Equal(want[v1.ResourceCPU]) || !got.Memory().Equal(want[v1.ResourceMemory]) {
				h.t.Errorf("status of container %s: got %s %v, want %v", container, from, got, want)
			}
		}
		h.wantCgroup(p, container, want.Cpu().MilliValue(), want.Memory().Value())
		cpu, memory = cpu+want.Cpu().MilliValue(), memory+want.Memory().Value()
	}
	h.wantCgroup(p, "", cpu, memory)
	return p
}

// desires reports whether the pod is one after the request for these sizes: it is watched, so an older one may be seen first.
func desires(p *v1.Pod, sizes map[string]size) bool {
	return !slices.ContainsFunc(p.Spec.Containers, func(container v1.Container) bool {
		size, found := sizes[container.Name]
		want := size.list()
		requests := container.Resources.Requests
		return found && (!requests.Cpu().Equal(want[v1.ResourceCPU]) || !requests.Memory().Equal(want[v1.ResourceMemory]))
	})
}

// wantCgroup compares the limits of the cgroup of a container, or of the pod.
func (h *harness) wantCgroup(p *v1.Pod, container string, milliCPU, memory int64) {
	h.t.Helper()
	machine, err := host.Read(host.Paths{Mount: host.Mount})
	if err != nil {
		h.t.Fatal(err)
	}
	got := cgroup.ParseResources(machine, func(controller, file string) (string, bool) {
		dir := host.Mount
		if !machine.V2 {
			dir = filepath.Join(dir, controller)
		}
		below := ""
		if container != "" {
			_, id, _ := strings.Cut(containerStatus(p, container).ContainerID, "://")
			below = "*" + id + "*"
		}
		matches, _ := filepath.Glob(filepath.Join(dir, h.config.CgroupRoot, "kubepods", "*pod"+string(p.UID), below, file))
		burstable, _ := filepath.Glob(filepath.Join(dir, h.config.CgroupRoot, "kubepods", "*", "*pod"+string(p.UID), below, file))
		for _, match := range append(matches, burstable...) {
			content, err := os.ReadFile(match)
			return string(content), err == nil
		}
		return "", false
	})
	if got.CPUQuota == nil || got.Memory == nil || got.CPUShares == nil {
		h.t.Errorf("cgroup of %s %q: got no values", p.Name, container)
		return
	}
	if *got.CPUQuota != cgroup.CPUQuota(milliCPU) || *got.Memory != memory {
		h.t.Errorf("cgroup of %s %q: got quota %d, memory %d; want %d, %d", p.Name, container, *got.CPUQuota, *got.Memory, cgroup.CPUQuota(milliCPU), memory)
	}
	if want := (cgroup.Resources{CPUShares: new(cgroup.CPUShares(milliCPU))}).Normalized(machine); !machine.V2 && *got.CPUShares != *want.CPUShares {
		h.t.Errorf("cgroup of %s %q: got %d shares, want %d", p.Name, container, *got.CPUShares, *want.CPUShares)
	}
}

func TestRSZ16_GrowAndShrink(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	small, large := size{"100m", "64Mi"}, size{"200m", "96Mi"}
	h.createPod(newPod("sized", small.container("a", "pause"), large.container("b", "pause")))
	h.awaitResized("sized", map[string]size{"a": small, "b": large})
	for _, sizes := range []map[string]size{
		{"a": large, "b": large}, {"a": large, "b": small}, {"a": small, "b": small}, {"a": small, "b": large},
	} {
		h.resizePod("sized", sizes)
		p := h.awaitResized("sized", sizes)
		for name := range sizes {
			if status := containerStatus(p, name); status.RestartCount > 0 {
				t.Errorf("container %s was restarted", name)
			}
		}
	}
	h.awaitEvent("sized", "ResizeStarted", `Pod resize started: {"containers":[{"name":"a","resources":`)
	h.awaitEvent("sized", "ResizeCompleted", `"generation":5}`)
}

func TestRSZ15_RestartContainer(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	small, large := size{"100m", "64Mi"}, size{"100m", "96Mi"}
	restarting := small.container("a", "pause")
	restarting.ResizePolicy = []v1.ContainerResizePolicy{
		{ResourceName: v1.ResourceCPU, RestartPolicy: v1.NotRequired}, {ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer},
	}
	h.createPod(newPod("restarted", restarting, small.container("b", "pause")))
	h.awaitResized("restarted", map[string]size{"a": small, "b": small})
	h.resizePod("restarted", map[string]size{"a": large, "b": large})
	p := h.awaitResized("restarted", map[string]size{"a": large, "b": large})
	if a, b := containerStatus(p, "a").RestartCount, containerStatus(p, "b").RestartCount; a != 1 || b != 0 {
		t.Errorf("got %d restarts of a, %d of b; want 1, 0", a, b)
	}
	h.awaitEvent("restarted", "Killing", "Container a resize requires restart")
	cpuOnly := map[string]size{"a": {"150m", "96Mi"}, "b": large}
	h.resizePod("restarted", cpuOnly)
	if p := h.awaitResized("restarted", cpuOnly); containerStatus(p, "a").RestartCount != 1 {
		t.Error("a change of the CPU restarted the container")
	}
}

// A limit below the memory in use is refused until the memory is free or the limit is raised again; the container runs on.
func TestRSZ19_BelowUsage(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	large := size{"100m", "128Mi"}
	h.createPod(newPod("holder", large.container("a", "hold", "64")))
	p := h.awaitResized("holder", map[string]size{"a": large})
	heraldtest.Eventually(t, func() error { return h.usesMemory(p, 64<<20) })
	h.resizePod("holder", map[string]size{"a": {"100m", "32Mi"}})
	refused := h.Await("holder", "refused", func(p *v1.Pod) bool {
		return resizeCondition(p, v1.PodResizeInProgress).Reason == v1.PodReasonError
	})
	condition := resizeCondition(refused, v1.PodResizeInProgress)
	if !strings.Contains(condition.Message, `attempting to set container "a" memory limit (33554432) below current usage (`) || condition.ObservedGeneration != 2 {
		t.Errorf("got condition %+v", condition)
	}
	h.awaitEvent("holder", "ResizeError", "cannot decrease memory limits")
	h.wantCgroup(refused, "a", 100, 128<<20)
	h.resizePod("holder", map[string]size{"a": {"100m", "160Mi"}})
	if p := h.awaitResized("holder", map[string]size{"a": {"100m", "160Mi"}}); containerStatus(p, "a").RestartCount > 0 {
		t.Error("the container was restarted")
	}
}

func (h *harness) usesMemory(p *v1.Pod, least int64) error {
	for _, pattern := range []string{"memory" + h.config.CgroupRoot + "/kubepods/pod%s/memory.usage_in_bytes", h.config.CgroupRoot[1:] + "/kubepods/pod%s/memory.current"} {
		content, err := os.ReadFile(filepath.Join(host.Mount, fmt.Sprintf(pattern, p.UID)))
		var used int64
		if _, scanErr := fmt.Sscan(string(content), &used); err == nil && scanErr == nil && used >= least {
			return nil
		}
	}
	return fmt.Errorf("pod %s does not use %d bytes yet", p.Name, least)
}

// A container that the kernel kills for its memory runs once it gets more: the pod's cgroup follows although no container runs.
func TestBUG121_OutOfMemoryLoop(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	h.createPod(newPod("hungry", size{"100m", "32Mi"}.container("a", "hold", "64")))
	h.Await("hungry", "killed repeatedly", func(p *v1.Pod) bool {
		waiting := containerStatus(p, "a").State.Waiting
		return containerStatus(p, "a").RestartCount >= 1 && waiting != nil && waiting.Reason == "CrashLoopBackOff"
	})
	h.resizePod("hungry", map[string]size{"a": {"100m", "128Mi"}})
	h.awaitResized("hungry", map[string]size{"a": {"100m", "128Mi"}})
}

// A resize that does not fit waits until another pod goes. An agent that is killed while it resizes goes on where it was; a container
// that must restart for it restarts once.
func TestRSZ9_DeferredAndKilledAgent(t *testing.T) {
	h := newOwnNode(t, "resizing")
	small := size{"100m", "64Mi"}
	h.createPod(newPod("other", small.container("a", "pause")))
	restarting := small.container("a", "pause")
	restarting.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
	h.createPod(newPod("deferred", restarting))
	h.awaitResized("other", map[string]size{"a": small})
	h.awaitResized("deferred", map[string]size{"a": small})
	node, err := h.Admin.CoreV1().Nodes().Get(t.Context(), h.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	allocatable := node.Status.Allocatable.Cpu().MilliValue()
	large := size{fmt.Sprintf("%dm", allocatable-50), "64Mi"}
	h.resizePod("deferred", map[string]size{"a": large})
	p := h.Await("deferred", "deferred", func(p *v1.Pod) bool { return resizeCondition(p, v1.PodResizePending).Reason == v1.PodReasonDeferred })
	want := fmt.Sprintf("Node didn't have enough resource: cpu, requested: %d, used: 100, capacity: %d", allocatable-50, allocatable)
	if condition := resizeCondition(p, v1.PodResizePending); condition.Message != want || condition.ObservedGeneration != 2 {
		t.Errorf("got condition %+v, want message %q", condition, want)
	}
	h.awaitEvent("deferred", "ResizeDeferred", want)
	h.wantCgroup(p, "a", 100, 64<<20)
	explained, _ := h.heraldCommand(t.Context(), "explain", "deferred").CombinedOutput() // it fails: something is wrong
	if !strings.Contains(string(explained), want) {
		t.Errorf("herald explain does not say why the resize waits:\n%s", explained)
	}
	if err := h.stopAgent(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := h.startAgent(); err != nil {
		t.Fatal(err)
	}
	h.kubectl("delete", "pod", "other")
	p = h.awaitResized("deferred", map[string]size{"a": large})
	if restarts := containerStatus(p, "a").RestartCount; restarts != 1 {
		t.Errorf("got %d restarts, want 1", restarts)
	}
	random := newRandom(t)
	for i := range 2 { // a container that ended while no agent looked waits for its back-off, which doubles
		next := size{fmt.Sprintf("%dm", 110+i), "64Mi"}
		h.resizePod("deferred", map[string]size{"a": next})
		sleepRandom(random, 300*time.Millisecond)
		if err := h.stopAgent(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := h.startAgent(); err != nil {
			t.Fatal(err)
		}
		p := h.awaitResized("deferred", map[string]size{"a": next})
		if restarts := containerStatus(p, "a").RestartCount; restarts != int32(i+2) {
			t.Errorf("got %d restarts after resize %d, want %d (BUG-127)", restarts, i, i+2)
		}
	}
}
