package cri_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
		labels := map[string]string{
			"io.kubernetes.pod.uid": "uid-1", "io.kubernetes.pod.name": "shop", "io.kubernetes.pod.namespace": "prod",
		}
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
		h.fake.inject("ListContainerStats", fails(codes.Internal, "broken"))
		if _, err := h.ListPodStats(h.Context()); err == nil {
			h.Error("broken runtime: got no error")
		}
	})
}
