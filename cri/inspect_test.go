package cri_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

func TestInspectPod(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod()
		c := h.startPod(pod)
		h.fake.mu.Lock()
		h.fake.containers[c.ID.ID].Resources = &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{
			CpuPeriod: 100_000, CpuQuota: 50_000, CpuShares: 256, MemoryLimitInBytes: 1 << 20,
		}}
		h.fake.containers[c.ID.ID].User = &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 5, Gid: 6, SupplementalGroups: []int64{7}}}
		h.fake.mu.Unlock()

		inspected := h.inspect(pod)
		sandbox := inspected.Sandboxes[0]
		ips := []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}
		want := &observed.Pod{
			UID: "uid-1", Name: podid.FullName{Namespace: "prod", Name: "shop"}, IPs: ips, At: time.Now(),
			Sandboxes: []observed.Sandbox{{
				ID: sandbox.ID, Ready: true, CreatedAt: sandbox.CreatedAt, Network: &observed.Network{IPs: ips},
			}},
			Containers: []observed.Container{{
				ID: c.ID, Name: "web", SandboxID: sandbox.ID, State: observed.Running, CreatedAt: c.CreatedAt, StartedAt: time.Now(),
				Image:    observed.Image{Name: "web:1", Ref: "web@sha256:web"},
				SpecHash: plan.HashContainer(&pod.Spec.Containers[0]),
				Resources: &observed.Resources{
					MilliCPURequest: new(int64(250)), MilliCPULimit: new(int64(500)), MemoryLimitBytes: new(int64(1 << 20)),
				},
				User: &observed.User{UID: 5, GID: 6, SupplementalGroups: []int64{7}},
			}},
		}
		if diff := cmp.Diff(want, inspected, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			h.Error(diff)
		}
	})
}

// TestInspectPod_PrimaryFamily checks that the environment and the inspection, which the status follows, agree on the primary
// address, whatever the runtime's order.
func TestInspectPod_PrimaryFamily(t *testing.T) {
	for name, test := range map[string]struct {
		ipv6First bool
		want      string
	}{"IPv4": {false, "[10.0.0.7 fd00::7]"}, "IPv6": {true, "[fd00::7 10.0.0.7]"}} {
		for order, addresses := range map[string][]string{"IPv4 reported first": {"10.0.0.7", "fd00::7"}, "IPv6 reported first": {"fd00::7", "10.0.0.7"}} {
			t.Run(name+", "+order, func(t *testing.T) {
				inBubble(t, func(h *harness) {
					h.fake.network = &runtimeapi.PodSandboxNetworkStatus{Ip: addresses[0], AdditionalIps: []*runtimeapi.PodIP{{Ip: addresses[1]}}}
					pod := newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].Args = []string{"$(POD_IPS)"} })
					config := h.createdConfig(pod)
					if got := fmt.Sprint(h.inspect(pod).IPs); got != test.want || config.Args[0] != test.want {
						h.Errorf("got status %s, environment %s, want %s", got, config.Args[0], test.want)
					}
				}, func(config *cri.Config) { config.IPv6First = test.ipv6First })
			})
		}
	}
}

func TestPLEG18_ObjectDisappears(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod()
		h.startPod(pod)
		h.fake.inject("ContainerStatus", fails(codes.NotFound, "gone"))
		if inspected := h.inspect(pod); len(inspected.Containers) != 0 || len(inspected.Sandboxes) != 1 {
			h.Errorf("got %+v", inspected)
		}
		h.fake.inject("PodSandboxStatus", fails(codes.NotFound, "gone"))
		if inspected := h.inspect(pod); len(inspected.Containers) != 1 || len(inspected.Sandboxes) != 0 {
			h.Errorf("got %+v", inspected)
		}
		for _, call := range []string{"ContainerStatus", "PodSandboxStatus", "ListContainers", "ListPodSandbox"} {
			h.fake.inject(call, fails(codes.Internal, "broken"))
			if inspected, err := h.InspectPod(h.Context(), podid.UID(pod.UID)); err == nil {
				h.Errorf("%s failed: got %+v, want an error", call, inspected)
			}
		}
	})
}

func TestPLEG18_IPsOfNewestReadySandbox(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod()
		first := h.startSandbox(pod)
		if err := h.StopSandbox(h.Context(), first); err != nil {
			h.Fatal(err)
		}
		if inspected := h.inspect(pod); len(inspected.IPs) != 0 || inspected.Sandboxes[0].Ready {
			h.Errorf("got %+v", inspected)
		}
		second, err := h.StartSandbox(h.Context(), pod, 1)
		if err != nil {
			h.Fatal(err)
		}
		if inspected := h.inspect(pod); len(inspected.IPs) != 2 || inspected.Sandboxes[0].ID != second || inspected.Sandboxes[0].Attempt != 1 {
			h.Errorf("got %+v", inspected)
		}
	})
}

func TestInspectPod_Unknown(t *testing.T) {
	inBubble(t, func(h *harness) {
		inspected := h.inspect(newPod())
		if inspected.UID != "uid-1" || len(inspected.Sandboxes)+len(inspected.Containers)+len(inspected.IPs) > 0 || inspected.At.IsZero() {
			h.Errorf("got %+v", inspected)
		}
	})
}

func TestListPods_ForeignObjects(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.startPod(newPod())
		h.fake.mu.Lock()
		h.fake.sandboxes["foreign"] = &runtimeapi.PodSandboxStatus{Id: "foreign", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "x"}}
		h.fake.containers["foreign"] = &fakeContainer{ContainerStatus: &runtimeapi.ContainerStatus{Id: "foreign"}}
		h.fake.containers["nameless"] = &fakeContainer{ContainerStatus: &runtimeapi.ContainerStatus{
			Id: "nameless", Labels: map[string]string{"io.kubernetes.pod.uid": "uid-1", "io.kubernetes.pod.name": "shop"},
		}}
		h.fake.mu.Unlock()
		pods, err := h.ListPods(h.Context())
		if err != nil || len(pods) != 1 || len(pods[0].Sandboxes) != 1 || len(pods[0].Containers) != 1 {
			h.Errorf("got %+v, %v", pods, err)
		}
	})
}

func TestWatchPods_Unsupported(t *testing.T) {
	inBubble(t, func(h *harness) {
		for range 3 {
			if err := h.WatchPods(h.Context(), nil); !errors.Is(err, errors.ErrUnsupported) {
				h.Errorf("got error %v", err)
			}
			h.fake.mu.Lock()
			h.fake.events = []*runtimeapi.ContainerEventResponse{} // another call would block
			h.fake.mu.Unlock()
		}
	})
}

func TestWatchPods(t *testing.T) {
	inBubble(t, func(h *harness) {
		labels := map[string]string{"io.kubernetes.pod.uid": "uid-2", "io.kubernetes.pod.name": "b"}
		h.fake.events = []*runtimeapi.ContainerEventResponse{
			{PodSandboxStatus: &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "uid-1"}}},
			{ContainersStatuses: []*runtimeapi.ContainerStatus{{Labels: labels}}},
			{ContainerId: "foreign"},
		}
		ctx, cancel := context.WithCancel(h.Context())
		defer cancel()
		received := make(chan podid.UID, 3)
		done := make(chan error)
		go func() { done <- h.WatchPods(ctx, func(uid podid.UID) { received <- uid }) }()
		synctest.Wait()
		cancel()
		if err := <-done; err == nil {
			h.Error("cancelled watch: got no error")
		}
		close(received)
		var uids []podid.UID
		for uid := range received {
			uids = append(uids, uid)
		}
		if len(uids) != 2 || uids[0] != "uid-1" || uids[1] != "uid-2" {
			h.Errorf("got UIDs %v", uids)
		}
	})
}
