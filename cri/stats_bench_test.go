package cri_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/load"
)

// measuringRuntime answers only the call for the numbers of pods.
type measuringRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	response *runtimeapi.ListPodSandboxStatsResponse
}

func (r *measuringRuntime) ListPodSandboxStats(
	context.Context, *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	return r.response, nil
}

// podStats returns the numbers of pods with two containers each, as containerd 2 reports them.
func podStats(pods int) *runtimeapi.ListPodSandboxStatsResponse {
	at := time.Now().UnixNano()
	psi := &runtimeapi.PsiStats{Some: &runtimeapi.PsiData{Total: 1e9, Avg60: 1}, Full: &runtimeapi.PsiData{}}
	cpu := &runtimeapi.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: number(5e9), UsageNanoCores: number(1e8), Psi: psi}
	memory := &runtimeapi.MemoryUsage{
		Timestamp: at, WorkingSetBytes: number(1 << 26), AvailableBytes: number(1 << 27), UsageBytes: number(1 << 26), RssBytes: number(1 << 25),
		PageFaults: number(1000), MajorPageFaults: number(1), Psi: psi,
	}
	network := &runtimeapi.NetworkInterfaceUsage{
		Name: "eth0", RxBytes: number(1), RxErrors: number(0), TxBytes: number(1), TxErrors: number(0),
	}
	response := &runtimeapi.ListPodSandboxStatsResponse{}
	for i := range pods {
		labels := map[string]string{
			"io.kubernetes.pod.uid": fmt.Sprint("uid-", i), "io.kubernetes.pod.name": fmt.Sprint("pod-", i), "io.kubernetes.pod.namespace": "default",
		}
		linux := &runtimeapi.LinuxPodSandboxStats{
			Cpu: cpu, Memory: memory, Network: &runtimeapi.NetworkUsage{Timestamp: at, DefaultInterface: network},
			Process: &runtimeapi.ProcessUsage{Timestamp: at, ProcessCount: number(7)}, Io: &runtimeapi.IoUsage{Timestamp: at, Psi: psi},
		}
		for _, name := range []string{"main", "sidecar"} {
			linux.Containers = append(linux.Containers, &runtimeapi.ContainerStats{
				Attributes: &runtimeapi.ContainerAttributes{
					Id: fmt.Sprint(name, i), Metadata: &runtimeapi.ContainerMetadata{Name: name}, Labels: labels,
				},
				Cpu: cpu, Memory: memory, Io: &runtimeapi.IoUsage{Timestamp: at, Psi: psi},
				WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: at, UsedBytes: number(4096), InodesUsed: number(5)},
				Swap:          &runtimeapi.SwapUsage{Timestamp: at, SwapUsageBytes: number(0), SwapAvailableBytes: number(0)},
			})
		}
		response.Stats = append(response.Stats, &runtimeapi.PodSandboxStats{
			Attributes: &runtimeapi.PodSandboxAttributes{Id: fmt.Sprint("sandbox-", i), Labels: labels}, Linux: linux,
		})
	}
	return response
}

// BenchmarkTick110Pods is one tick of the numbers of a full node: the call over a socket, the conversion and the windows of all pods. It
// includes the server's side of the call, but not what a runtime does to measure.
func BenchmarkTick110Pods(b *testing.B) {
	dir := b.TempDir()
	socket := filepath.Join(dir, "cri.sock")
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, &measuringRuntime{response: podStats(110)})
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(server.Stop)
	runtime, err := cri.New(cri.Config{
		Endpoint: "unix://" + socket, Provisioner: fakeProvisioner{dir}, Root: dir + "/pods", LogDir: dir + "/logs",
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = runtime.Close() })
	var monitor load.PodMonitor
	at := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		samples, err := runtime.ListPodStats(b.Context())
		if err != nil || len(samples) != 110 {
			b.Fatalf("got %d pods, error %v", len(samples), err)
		}
		at += 15 * time.Second
		monitor.Add(at, samples)
	}
}
