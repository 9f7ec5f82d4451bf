package cri_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/load"
)

func number(value uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: value} }

// ListPodSandboxStats implements the CRI.
func (f *fake) ListPodSandboxStats(
	_ context.Context, _ *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: f.podStats}, nil
}

func requireNumber(h *harness, what string, got load.Value, want float64) {
	h.Helper()
	if value, known := got.Get(); !known || value != want {
		h.Errorf("%s: got %v (known %v), want %v", what, value, known, want)
	}
}

func TestRES16_ListPodStats(t *testing.T) {
	inBubble(t, func(h *harness) {
		labels := podLabels("uid-1")
		at := time.Date(2026, 11, 15, 14, 0, 0, 0, time.UTC)
		h.fake.podStats = []*runtimeapi.PodSandboxStats{
			{Attributes: &runtimeapi.PodSandboxAttributes{Id: "of somebody else"}, Linux: &runtimeapi.LinuxPodSandboxStats{}},
			{
				Attributes: &runtimeapi.PodSandboxAttributes{Id: "s", Labels: labels},
				Linux: &runtimeapi.LinuxPodSandboxStats{
					Cpu: &runtimeapi.CpuUsage{
						Timestamp: at.UnixNano(), UsageCoreNanoSeconds: number(2_500_000_000),
						Psi: &runtimeapi.PsiStats{Some: &runtimeapi.PsiData{Avg60: 12}},
					},
					Memory:  &runtimeapi.MemoryUsage{Timestamp: at.UnixNano(), WorkingSetBytes: number(0)},
					Network: &runtimeapi.NetworkUsage{DefaultInterface: &runtimeapi.NetworkInterfaceUsage{RxBytes: number(7)}},
					Process: &runtimeapi.ProcessUsage{ProcessCount: number(3)},
					Containers: []*runtimeapi.ContainerStats{{
						Attributes:    &runtimeapi.ContainerAttributes{Id: "c", Metadata: &runtimeapi.ContainerMetadata{Name: "web"}},
						WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: number(11)},
					}},
				},
			},
		}
		samples, err := h.ListPodStats(h.Context())
		if err != nil || len(samples) != 1 || samples[0].UID != "uid-1" || samples[0].Name.Name != "shop" {
			h.Fatalf("got %+v, error %v; want the pod shop", samples, err)
		}
		pod := samples[0]
		requireNumber(h, "cpu", pod.Usage.CPUSeconds, 2.5)
		requireNumber(h, "working set", pod.Usage.WorkingSet, 0)
		requireNumber(h, "pressure", pod.Usage.Pressure.CPU, .12)
		requireNumber(h, "received", pod.Network.RxBytes, 7)
		requireNumber(h, "processes", pod.PIDs, 3)
		requireNumber(h, "layer", pod.Containers[0].WritableLayer, 11)
		if !pod.Usage.At.Equal(at) || pod.Usage.RSS.IsKnown() || pod.Containers[0].Usage.WorkingSet.IsKnown() || pod.Containers[0].ID != "c" {
			h.Errorf("got %+v; want what was not measured unknown", pod)
		}
	})
}

func TestRES16_RuntimeWithoutPodStats(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.startPod(newPod())
		h.startPod(newPod(withUID("uid-2")))
		h.fake.layer = 5
		h.fake.inject("ListPodSandboxStats", fails(codes.Unimplemented, "unknown method"))
		for range 2 { // the second time, the runtime is not asked for what it does not have
			samples, err := h.ListPodStats(h.Context())
			if err != nil || len(samples) != 2 || len(samples[0].Containers) != 1 {
				h.Fatalf("got %+v, error %v; want two pods", samples, err)
			}
			requireNumber(h, "layer", samples[0].Containers[0].WritableLayer, 5)
		}
		if asked := len(requests[*runtimeapi.ListPodSandboxStatsRequest](h.fake)); asked != 1 {
			h.Errorf("asked %d times for the stats of pods, want once", asked)
		}
	})
}

// The call for the stats of pods crashes containerd before 1.6.22 now and then (containerd#8130), so these are asked for containers only.
func TestRES16_ContainerdThatCrashes(t *testing.T) {
	for version, want := range map[string]int{
		"1.6.20~ds1": 0, "v1.6.0": 0, "1.6.21": 0, "1.6.22": 2, "1.5.9~ds1": 2, "1.7.0-beta.1": 2, "v2.1.4": 2, "unknown": 2,
	} {
		t.Run(version, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				h.fake.name, h.fake.version = "containerd", version
				h.startPod(newPod())
				h.fake.layer = 5
				h.fake.podStats = []*runtimeapi.PodSandboxStats{{
					Attributes: &runtimeapi.PodSandboxAttributes{Id: "s", Labels: podLabels("uid-1")}, Linux: &runtimeapi.LinuxPodSandboxStats{},
				}}
				for range 2 {
					samples, err := h.ListPodStats(h.Context())
					if err != nil || len(samples) != 1 {
						h.Fatalf("got %+v, error %v; want one pod", samples, err)
					}
					if want == 0 {
						requireNumber(h, "layer", samples[0].Containers[0].WritableLayer, 5)
					}
				}
				if got := len(requests[*runtimeapi.ListPodSandboxStatsRequest](h.fake)); got != want {
					h.Errorf("asked %d times for the stats of pods, want %d", got, want)
				}
			})
		})
	}
}

// Which calls a runtime implements is asked again on a new connection: it may be another version.
func TestRES16_RuntimeUpgraded(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.inject("ListPodSandboxStats", fails(codes.Unimplemented, "unknown method"))
		h.fake.inject("ListContainerStats", fails(codes.Unimplemented, "unknown method"))
		for range 2 {
			if _, err := h.ListPodStats(h.Context()); err != nil {
				h.Fatal(err)
			}
		}
		h.down()
		h.up()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		h.fake.podStats = []*runtimeapi.PodSandboxStats{{
			Attributes: &runtimeapi.PodSandboxAttributes{Id: "s", Labels: podLabels("uid-1")}, Linux: &runtimeapi.LinuxPodSandboxStats{},
		}}
		samples, err := h.ListPodStats(h.Context())
		if err != nil || len(samples) != 1 {
			h.Errorf("got %v, error %v; want the pod that the new runtime measures", samples, err)
		}
	})
}

// A call that fails is replaced by the next source, which has all pods. The error is reported nevertheless.
func TestRES16_CallFails(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.startPod(newPod())
		h.fake.layer = 5
		h.fake.inject("ListPodSandboxStats", fails(codes.Internal, "cgroup deleted"), fails(codes.Internal, "cgroup deleted"))
		samples, err := h.ListPodStats(h.Context())
		if err == nil || len(samples) != 1 {
			h.Fatalf("got %v, error %v; want one pod and the error", samples, err)
		}
		requireNumber(h, "layer", samples[0].Containers[0].WritableLayer, 5)
		h.fake.inject("ListContainerStats", fails(codes.Internal, "broken"))
		samples, err = h.ListPodStats(h.Context())
		if err == nil || len(samples) != 1 || samples[0].Containers[0].WritableLayer.IsKnown() {
			h.Errorf("got %v, error %v; want one pod without numbers and the error", samples, err)
		}
		if usage := samples[0].Usage; usage.CPUSeconds.IsKnown() || usage.WorkingSet.IsKnown() {
			h.Errorf("got %+v without a measurement", usage)
		}
	})
}

func TestRES16_RuntimeHangs(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.startPod(newPod())
		h.fake.inject("ListPodSandboxStats", hangs)
		ctx, cancel := context.WithTimeout(h.Context(), 5*time.Second)
		defer cancel()
		if samples, err := h.ListPodStats(ctx); err == nil || samples != nil {
			h.Errorf("got %v, error %v; want an error", samples, err)
		}
	})
}

// An instance that has exited is listed without numbers. It hides neither its successor nor the sum.
func TestRES17_ExitedInstances(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.inject("ListPodSandboxStats", fails(codes.Unimplemented, "unknown method"))
		stats := func(name, id string, attempt uint32, cpu *runtimeapi.CpuUsage) *runtimeapi.ContainerStats {
			return &runtimeapi.ContainerStats{Cpu: cpu, Attributes: &runtimeapi.ContainerAttributes{
				Id: id, Labels: podLabels("uid-1"), Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
			}}
		}
		h.fake.containerStats = []*runtimeapi.ContainerStats{
			stats("init", "init-1", 1, nil),
			stats("init", "init-0", 0, nil),
			stats("web", "web-1", 1, &runtimeapi.CpuUsage{Timestamp: 1, UsageCoreNanoSeconds: number(2_000_000_000)}),
			stats("web", "web-2", 2, nil), // created, but not started
			stats("log", "log-0", 0, &runtimeapi.CpuUsage{Timestamp: 1, UsageCoreNanoSeconds: number(1_000_000_000)}),
		}
		samples, err := h.ListPodStats(h.Context())
		if err != nil || len(samples) != 1 {
			h.Fatalf("got %v, error %v; want one pod", samples, err)
		}
		requireNumber(h, "CPU of the pod", samples[0].Usage.CPUSeconds, 3)
		ids := map[string]string{}
		for _, container := range samples[0].Containers {
			ids[container.Name] = container.ID
		}
		if want := map[string]string{"init": "init-1", "web": "web-1", "log": "log-0"}; !maps.Equal(ids, want) {
			h.Errorf("got containers %v, want %v", ids, want)
		}
	})
}

func podLabels(uid string) map[string]string {
	return map[string]string{
		"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": "shop", "io.kubernetes.pod.namespace": "prod",
	}
}

// What the runtime does not measure is in the files of the cgroups: of both versions, with the names of both drivers.
func TestRES21_CgroupFiles(t *testing.T) {
	for name, test := range map[string]struct {
		driver      string
		v2          bool
		pod, scope  string // of the container
		controllers []string
	}{
		"cgroupfs, version 1": {
			cgroup.DriverCgroupfs, false, "/kubepods/burstable/poduid-1", "ID", []string{"cpu", "cpuacct", "memory", "pids", "blkio"},
		},
		"systemd, version 2": {
			cgroup.DriverSystemd, true, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poduid_1.slice",
			"cri-containerd-ID.scope", []string{""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			for _, controller := range test.controllers {
				recorded := filepath.Join("../cgroup/usage/testdata", map[bool]string{true: "v2", false: "v1"}[test.v2], controller, "pod")
				dir := filepath.Join(mount, controller, test.pod)
				if err := os.CopyFS(dir, os.DirFS(recorded)); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(filepath.Join(dir, "c1"), filepath.Join(dir, test.scope)); err != nil {
					t.Fatal(err)
				}
			}
			inBubble(t, func(h *harness) { requireCgroupNumbers(h, test.v2) }, func(config *cri.Config) {
				config.CgroupParent, config.CgroupDriver, config.CgroupHost = "/kubepods", test.driver, &cgroup.Host{V2: test.v2}
				config.CgroupMount(mount)
			})
		})
	}
}

func TestRES28_AllPodsUsage(t *testing.T) {
	mount := t.TempDir()
	if err := os.CopyFS(filepath.Join(mount, "kubepods"), os.DirFS("../cgroup/usage/testdata/v2/pod")); err != nil {
		t.Fatal(err)
	}
	inBubble(t, func(h *harness) {
		usage, exists := h.AllPodsUsage(h.Context())
		if !exists {
			h.Fatal("the cgroup of all pods was not found")
		}
		requireNumber(h, "cpu", usage.CPUSeconds, 81.234567)
	}, func(config *cri.Config) {
		config.CgroupParent, config.CgroupDriver, config.CgroupHost = "/kubepods", cgroup.DriverCgroupfs, &cgroup.Host{V2: true}
		config.CgroupMount(mount)
	})
	inBubble(t, func(h *harness) {
		if usage, exists := h.AllPodsUsage(h.Context()); exists {
			h.Errorf("without cgroups of pods: got %+v", usage)
		}
	})
}

// containerd reports memory without a limit as zero bytes that are available.
func TestRES19_NoMemoryLimit(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.podStats = []*runtimeapi.PodSandboxStats{{
			Attributes: &runtimeapi.PodSandboxAttributes{Id: "s", Labels: podLabels("uid-1")},
			Linux: &runtimeapi.LinuxPodSandboxStats{
				Memory: &runtimeapi.MemoryUsage{Timestamp: 1, WorkingSetBytes: number(5), AvailableBytes: number(0)},
			},
		}}
		samples, err := h.ListPodStats(h.Context())
		if err != nil || len(samples) != 1 || samples[0].Usage.Available.IsKnown() {
			h.Errorf("got %+v, error %v; want unknown available memory", samples, err)
		}
	})
}

func requireCgroupNumbers(h *harness, v2 bool) {
	seconds, share := .461368731, 21.0/25
	if v2 {
		seconds, share = 81.234567, 100.0/400
	}
	requirePod := func(wantSeconds float64) {
		h.Helper()
		samples, err := h.ListPodStats(h.Context())
		if err != nil || len(samples) != 1 || len(samples[0].Containers) != 1 {
			h.Fatalf("got %+v, error %v; want one pod", samples, err)
		}
		requireNumber(h, "CPU of the pod", samples[0].Usage.CPUSeconds, wantSeconds)
		throttled := samples[0].Containers[0].Usage
		requireNumber(h, "throttled share", throttled.Throttling.Throttled.Share(throttled.Throttling.Periods), share)
		if samples[0].Usage.Pressure.IO.IsKnown() != v2 || !samples[0].PIDs.IsKnown() || !samples[0].Usage.Swap.IsKnown() {
			h.Errorf("got %+v", samples[0])
		}
		if samples[0].Network != (load.Network{}) {
			h.Errorf("got network %+v of a pod without processes", samples[0].Network)
		}
	}
	attributes := &runtimeapi.ContainerAttributes{
		Id: "ID", Labels: podLabels("uid-1"), Metadata: &runtimeapi.ContainerMetadata{Name: "web"},
	}
	h.fake.podStats = []*runtimeapi.PodSandboxStats{{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: "s", Labels: podLabels("uid-1")},
		Linux: &runtimeapi.LinuxPodSandboxStats{
			Cpu:        &runtimeapi.CpuUsage{UsageCoreNanoSeconds: number(7_000_000_000)},
			Containers: []*runtimeapi.ContainerStats{{Attributes: attributes}},
		},
	}}
	requirePod(7) // the runtime's own number counts
	h.fake.containerStats = []*runtimeapi.ContainerStats{{
		Attributes: attributes, Cpu: &runtimeapi.CpuUsage{UsageCoreNanoSeconds: number(1_000_000_000)},
	}}
	h.fake.inject("ListPodSandboxStats", fails(codes.Unimplemented, "unknown method"))
	requirePod(seconds) // and not the sum of the containers
	h.fake.inject("ListContainerStats", fails(codes.Unimplemented, "unknown method"))
	h.fake.containers["ID"] = &fakeContainer{ContainerStatus: &runtimeapi.ContainerStatus{
		Id: "ID", Metadata: attributes.GetMetadata(), Labels: attributes.GetLabels(), State: runtimeapi.ContainerState_CONTAINER_RUNNING,
	}}
	requirePod(seconds)
}
