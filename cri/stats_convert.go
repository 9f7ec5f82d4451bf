package cri

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
)

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
			UID: uid, Name: name, Usage: convertUsage(linux.GetCpu(), linux.GetMemory(), nil, linux.GetIo()),
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
		Usage:         convertUsage(stats.GetCpu(), stats.GetMemory(), stats.GetSwap(), stats.GetIo()),
		WritableLayer: uintValue(stats.GetWritableLayer().GetUsedBytes()), WritableInodes: uintValue(stats.GetWritableLayer().GetInodesUsed()),
	}
}

// convertUsage converts the runtime's numbers. What the runtime did not measure is unknown, and so is a measurement without a time.
func convertUsage(cpu *runtimeapi.CpuUsage, memory *runtimeapi.MemoryUsage, swap *runtimeapi.SwapUsage, io *runtimeapi.IoUsage) load.Usage {
	converted := load.Usage{
		WorkingSet: uintValue(memory.GetWorkingSetBytes()), Memory: uintValue(memory.GetUsageBytes()), RSS: uintValue(memory.GetRssBytes()),
		Available: positive(memory.GetAvailableBytes()), Swap: uintValue(swap.GetSwapUsageBytes()),
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

// positive returns unknown for zero, which containerd reports for memory without a limit (RES-19).
func positive(value *runtimeapi.UInt64Value) load.Value {
	if value.GetValue() == 0 {
		return load.Value{}
	}
	return uintValue(value)
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

// podList collects samples by pod.
type podList struct {
	samples []load.PodSample
	index   map[podid.UID]int
}

// pod returns the sample of the pod with these labels, or nil if they are not those of a pod. It is valid until the next call.
func (l *podList) pod(labels map[string]string) *load.PodSample {
	uid, name, ok := criconfig.Owner(labels)
	if !ok {
		return nil
	}
	i, found := l.index[uid]
	if !found {
		if l.index == nil {
			l.index = map[podid.UID]int{}
		}
		i = len(l.samples)
		l.index[uid] = i
		l.samples = append(l.samples, load.PodSample{UID: uid, Name: name})
	}
	return &l.samples[i]
}

// groupContainers groups the containers by pod. The pods themselves have no numbers yet.
func groupContainers(all []*runtimeapi.ContainerStats) []load.PodSample {
	var pods podList
	attempts := map[string]uint32{} // by container ID
	for _, stats := range all {
		attempts[stats.GetAttributes().GetId()] = stats.GetAttributes().GetMetadata().GetAttempt()
		if pod := pods.pod(stats.GetAttributes().GetLabels()); pod != nil {
			addInstance(pod, containerSample(stats), attempts)
		}
	}
	return pods.samples
}

// addInstance adds an instance of a container, unless the pod has a better one: of several instances the one that was measured
// counts, then the newest (RES-17). Runtimes list exited containers without numbers.
func addInstance(pod *load.PodSample, sample load.ContainerSample, attempts map[string]uint32) {
	for i := range pod.Containers {
		other := &pod.Containers[i]
		if other.Name != sample.Name {
			continue
		}
		measured, otherMeasured := isMeasured(sample.Usage), isMeasured(other.Usage)
		if measured && !otherMeasured || measured == otherMeasured && attempts[sample.ID] > attempts[other.ID] {
			*other = sample
		}
		return
	}
	pod.Containers = append(pod.Containers, sample)
}

func isMeasured(usage load.Usage) bool {
	return usage.CPUSeconds.IsKnown() || usage.WorkingSet.IsKnown()
}

// sum adds the uses of the containers that were measured. A sum of which a part is unknown is unknown.
func sum(containers []load.ContainerSample) load.Usage {
	var total load.Usage
	first := true
	for _, container := range containers {
		usage := container.Usage
		switch {
		case !isMeasured(usage):
			continue
		case first:
			total, first = usage, false
			total.Pressure, total.Stalls, total.Available, total.Throttling = load.Pressure{}, load.Stalls{}, load.Value{}, load.Throttling{}
			continue
		}
		for _, field := range []struct {
			to   *load.Value
			from load.Value
		}{
			{&total.CPUSeconds, usage.CPUSeconds},
			{&total.NanoCores, usage.NanoCores},
			{&total.WorkingSet, usage.WorkingSet},
			{&total.Memory, usage.Memory},
			{&total.RSS, usage.RSS},
			{&total.Swap, usage.Swap},
			{&total.SwapAvailable, usage.SwapAvailable},
			{&total.PageFaults, usage.PageFaults},
			{&total.MajorFaults, usage.MajorFaults},
			{&total.IO.Read, usage.IO.Read},
			{&total.IO.Written, usage.IO.Written},
		} {
			*field.to = field.to.Plus(field.from)
		}
		if usage.At.Before(total.At) {
			total.At = usage.At
		}
	}
	return total
}
