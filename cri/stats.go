package cri

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
)

// ListPodStats returns what the runtime measured of the pods that run. A runtime that does not measure pods measures containers, of
// which the pods have the sums (RES-16, RES-21).
func (r *Runtime) ListPodStats(ctx context.Context) ([]load.PodSample, error) {
	r.mu.Lock()
	unsupported := r.unsupported.podStats
	r.mu.Unlock()
	if !unsupported {
		response, err := r.runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
		switch {
		case isUnimplemented(err):
			r.mu.Lock()
			r.unsupported.podStats = true
			r.mu.Unlock()
		case err != nil:
			return nil, fmt.Errorf("cri: list pod sandbox stats: %w", err)
		default:
			return podSamples(response.GetStats()), nil
		}
	}
	response, err := r.runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		return nil, fmt.Errorf("cri: list container stats: %w", err)
	}
	return sumOfContainers(response.GetStats()), nil
}

// podSamples skips sandboxes that do not belong to a pod.
func podSamples(all []*runtimeapi.PodSandboxStats) []load.PodSample {
	samples := make([]load.PodSample, 0, len(all))
	for _, stats := range all {
		uid, name, ok := criconfig.Owner(stats.GetAttributes().GetLabels())
		linux := stats.GetLinux()
		if !ok || linux == nil {
			continue
		}
		sample := load.PodSample{
			UID: uid, Name: name, Usage: usage(linux.GetCpu(), linux.GetMemory(), nil, linux.GetIo()),
			PIDs:    uintValue(linux.GetProcess().GetProcessCount()),
			Network: networkCounters(linux.GetNetwork().GetDefaultInterface()),
		}
		if network := linux.GetNetwork(); network.GetDefaultInterface() != nil {
			for _, usage := range append([]*runtimeapi.NetworkInterfaceUsage{network.GetDefaultInterface()}, network.GetInterfaces()...) {
				sample.Interfaces = append(sample.Interfaces, load.Interface{Name: usage.GetName(), Network: networkCounters(usage)})
			}
		}
		for _, container := range linux.GetContainers() {
			sample.Containers = append(sample.Containers, containerSample(container))
		}
		if total := sum(sample.Containers); !sample.Usage.Swap.IsKnown() { // runtimes do not measure the swap of pods
			sample.Usage.Swap, sample.Usage.SwapAvailable = total.Swap, total.SwapAvailable
		}
		samples = append(samples, sample)
	}
	return samples
}

func networkCounters(usage *runtimeapi.NetworkInterfaceUsage) load.Network {
	return load.Network{
		RxBytes: uintValue(usage.GetRxBytes()), TxBytes: uintValue(usage.GetTxBytes()),
		RxErrors: uintValue(usage.GetRxErrors()), TxErrors: uintValue(usage.GetTxErrors()),
	}
}

func containerSample(stats *runtimeapi.ContainerStats) load.ContainerSample {
	return load.ContainerSample{
		Name: stats.GetAttributes().GetMetadata().GetName(), ID: stats.GetAttributes().GetId(),
		Usage:         usage(stats.GetCpu(), stats.GetMemory(), stats.GetSwap(), stats.GetIo()),
		WritableLayer: uintValue(stats.GetWritableLayer().GetUsedBytes()), WritableInodes: uintValue(stats.GetWritableLayer().GetInodesUsed()),
	}
}

// usage converts the runtime's numbers. What the runtime did not measure is unknown, and so is a measurement without a time.
func usage(cpu *runtimeapi.CpuUsage, memory *runtimeapi.MemoryUsage, swap *runtimeapi.SwapUsage, io *runtimeapi.IoUsage) load.Usage {
	converted := load.Usage{
		WorkingSet: uintValue(memory.GetWorkingSetBytes()), Memory: uintValue(memory.GetUsageBytes()), RSS: uintValue(memory.GetRssBytes()),
		Available: uintValue(memory.GetAvailableBytes()), Swap: uintValue(swap.GetSwapUsageBytes()),
		SwapAvailable: uintValue(swap.GetSwapAvailableBytes()),
		PageFaults:    uintValue(memory.GetPageFaults()), MajorFaults: uintValue(memory.GetMajorPageFaults()),
		NanoCores: uintValue(cpu.GetUsageNanoCores()),
		Pressure: load.Pressure{
			CPU:    share60(cpu.GetPsi().GetSome()),
			Memory: share60(memory.GetPsi().GetSome()), MemoryFull: share60(memory.GetPsi().GetFull()),
			IO: share60(io.GetPsi().GetSome()), IOFull: share60(io.GetPsi().GetFull()),
		},
		Stalls: load.Stalls{CPU: stall(cpu.GetPsi()), Memory: stall(memory.GetPsi()), IO: stall(io.GetPsi())},
	}
	if nanoseconds, known := uintValue(cpu.GetUsageCoreNanoSeconds()).Get(); known {
		converted.CPUSeconds = load.Known(nanoseconds / float64(time.Second))
	}
	if timestamp := max(cpu.GetTimestamp(), memory.GetTimestamp()); timestamp > 0 {
		converted.At = time.Unix(0, timestamp)
	}
	return converted
}

func uintValue(value *runtimeapi.UInt64Value) load.Value {
	if value == nil {
		return load.Value{}
	}
	return load.Known(float64(value.GetValue()))
}

// share60 returns the share of the last 60 seconds. The runtime reports percent.
func share60(data *runtimeapi.PsiData) load.Value {
	if data == nil {
		return load.Value{}
	}
	return load.Known(data.GetAvg60() / 100)
}

func stall(psi *runtimeapi.PsiStats) *load.Stall {
	if psi == nil {
		return nil
	}
	return &load.Stall{Some: stallTimes(psi.GetSome()), Full: stallTimes(psi.GetFull())}
}

func stallTimes(data *runtimeapi.PsiData) load.StallTimes {
	return load.StallTimes{
		Avg10: data.GetAvg10(), Avg60: data.GetAvg60(), Avg300: data.GetAvg300(), Total: time.Duration(data.GetTotal()),
	}
}

// sumOfContainers groups the containers by pod.
func sumOfContainers(all []*runtimeapi.ContainerStats) []load.PodSample {
	var samples []load.PodSample
	index := map[podid.UID]int{}
	for _, stats := range all {
		uid, name, ok := criconfig.Owner(stats.GetAttributes().GetLabels())
		if !ok {
			continue
		}
		i, found := index[uid]
		if !found {
			i = len(samples)
			index[uid] = i
			samples = append(samples, load.PodSample{UID: uid, Name: name})
		}
		samples[i].Containers = append(samples[i].Containers, containerSample(stats))
	}
	for i := range samples {
		samples[i].Usage = sum(samples[i].Containers)
	}
	return samples
}

// sum adds the uses of containers. A sum of which a part is unknown is unknown.
func sum(containers []load.ContainerSample) load.Usage {
	if len(containers) == 0 {
		return load.Usage{}
	}
	total := containers[0].Usage
	total.Pressure, total.Stalls, total.Available = load.Pressure{}, load.Stalls{}, load.Value{}
	for _, container := range containers[1:] {
		for _, field := range []struct {
			to   *load.Value
			from load.Value
		}{
			{&total.CPUSeconds, container.Usage.CPUSeconds},
			{&total.NanoCores, container.Usage.NanoCores},
			{&total.WorkingSet, container.Usage.WorkingSet},
			{&total.Memory, container.Usage.Memory},
			{&total.RSS, container.Usage.RSS},
			{&total.Swap, container.Usage.Swap},
			{&total.SwapAvailable, container.Usage.SwapAvailable},
			{&total.PageFaults, container.Usage.PageFaults},
			{&total.MajorFaults, container.Usage.MajorFaults},
		} {
			*field.to = field.to.Plus(field.from)
		}
		if container.Usage.At.Before(total.At) {
			total.At = container.Usage.At
		}
	}
	return total
}
