package summary

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/heraldnode/herald/load"
)

// Input is what is known about a node.
type Input struct {
	NodeName string
	Machine  load.MachineSample
	// MachineAt is when the machine was measured. Zero leaves out everything of the machine.
	MachineAt time.Time
	// Cores is the number of CPUs that the node uses.
	Cores       load.Value
	FileSystems FileSystems
	Pods        []Pod
	// AllPods is what the cgroup of all pods uses. Nil if they have none (RES-28).
	AllPods *load.Usage
	// OnlyCPUAndMemory leaves out everything but CPU, memory and swap (RES-30).
	OnlyCPUAndMemory bool
}

// FileSystems has the names under which MachineSample has the file systems, and what the runtime says about its images and layers.
type FileSystems struct {
	Data, Logs, Images, Containers string
	// ImageUsage and ContainerUsage are what images and writable layers take. Nil if the runtime does not say.
	ImageUsage, ContainerUsage *Usage
}

// Usage is how much space something takes.
type Usage struct {
	At            time.Time
	Bytes, Inodes load.Value
}

// Pod is what is known about a pod.
type Pod struct {
	Sample load.PodSample
	// SampledAt is when the runtime was asked.
	SampledAt time.Time
	// Load has the use of CPU over the last minute, for runtimes that do not say how much is used at present.
	Load load.Pod
	// CreatedAt is when the pod's sandbox was created, ContainersCreatedAt when its containers were, by ID.
	CreatedAt           time.Time
	ContainersCreatedAt map[string]time.Time
	// Disk is nil if it was not measured.
	Disk *Disk
}

// Disk is what a pod uses of the node's disk, besides the writable layers.
type Disk struct {
	Volumes []Volume
	// Logs has the logs of containers by name.
	Logs map[string]Usage
	// Files has the pod's other files on the node: the hosts file, termination messages.
	Files Usage
}

// Volume is what a volume takes.
type Volume struct {
	Usage
	Name       string
	FileSystem load.FileSystem
	// IsLocal reports whether the volume counts as ephemeral storage of the pod: it is on the node's disk and belongs to the pod.
	IsLocal bool
}

// Build returns the summary of a node. Pods are sorted by namespace and name.
func Build(in Input) *statsapi.Summary {
	result := &statsapi.Summary{Node: node(&in), Pods: make([]statsapi.PodStats, 0, len(in.Pods))}
	for i := range in.Pods {
		result.Pods = append(result.Pods, pod(&in, &in.Pods[i]))
	}
	slices.SortFunc(result.Pods, func(a, b statsapi.PodStats) int {
		return cmp.Or(cmp.Compare(a.PodRef.Namespace, b.PodRef.Namespace), cmp.Compare(a.PodRef.Name, b.PodRef.Name),
			cmp.Compare(a.PodRef.UID, b.PodRef.UID))
	})
	return result
}

// node returns the numbers of the machine (RES-25 to RES-27).
func node(in *Input) statsapi.NodeStats {
	machine, detail, at := in.Machine, in.Machine.Detail, in.MachineAt
	stats := statsapi.NodeStats{NodeName: in.NodeName, StartTime: metav1.NewTime(detail.BootedAt)}
	if at.IsZero() {
		return stats
	}
	stats.CPU = cpu(at, nanoseconds(minus(machine.CPUBusy, machine.CPUSteal)), nanocores(in.Cores), detail.Stalls.CPU)
	stats.Memory = memory(at, load.Usage{
		Available: minus(machine.MemoryTotal, machine.WorkingSet), Memory: detail.Memory, WorkingSet: machine.WorkingSet, RSS: detail.RSS,
		PageFaults: detail.PageFaults, MajorFaults: detail.MajorFaults, Stalls: detail.Stalls,
	})
	stats.Swap = swap(at, detail.Swap, detail.SwapFree)
	if in.AllPods != nil {
		stats.SystemContainers = []statsapi.ContainerStats{allPods(in)}
	}
	if in.OnlyCPUAndMemory {
		return stats
	}
	stats.IO = io(at, detail.Stalls.IO)
	stats.Network = network(at, machine.Network, detail.Interfaces)
	stats.Fs = wholeFileSystem(at, in.fileSystem(in.FileSystems.Data))
	stats.Runtime = runtime(in)
	if machine.PIDs.IsKnown() || machine.MaxPIDs.IsKnown() {
		stats.Rlimit = &statsapi.RlimitStats{
			Time: metav1.NewTime(at), MaxPID: signed(machine.MaxPIDs), NumOfRunningProcesses: signed(machine.PIDs),
		}
	}
	return stats
}

// allPods returns the numbers of the cgroup of all pods. Their present use of CPU is the sum of theirs.
func allPods(in *Input) statsapi.ContainerStats {
	at, cores := measuredAt(*in.AllPods, in.MachineAt), load.Known(0)
	for i := range in.Pods {
		cores = cores.Plus(presentUse(in.Pods[i].Sample.Usage, in.Pods[i].Load.UsageLoad))
	}
	stats := statsapi.ContainerStats{
		Name:   statsapi.SystemContainerPods,
		CPU:    cpu(at, nanoseconds(in.AllPods.CPUSeconds), cores, in.AllPods.Stalls.CPU),
		Memory: memory(at, *in.AllPods),
		Swap:   swap(at, in.AllPods.Swap, in.AllPods.SwapAvailable),
	}
	if !in.OnlyCPUAndMemory {
		stats.IO = io(at, in.AllPods.Stalls.IO)
	}
	return stats
}

// runtime returns the file systems of images and containers (RES-26). A runtime that does not tell them apart has one.
func runtime(in *Input) *statsapi.RuntimeStats {
	containers := in.FileSystems.ContainerUsage
	if containers == nil {
		containers = in.FileSystems.ImageUsage
	}
	stats := &statsapi.RuntimeStats{
		ImageFs:     usedFileSystem(in.FileSystems.ImageUsage, in.fileSystem(in.FileSystems.Images)),
		ContainerFs: usedFileSystem(containers, in.fileSystem(in.FileSystems.Containers)),
	}
	if stats.ImageFs == nil && stats.ContainerFs == nil {
		return nil
	}
	return stats
}

// fileSystem returns a file system of the machine by its name, nil if it was not measured.
func (in *Input) fileSystem(name string) *load.FileSystem {
	i := slices.IndexFunc(in.Machine.FileSystems, func(f load.FileSystem) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return &in.Machine.FileSystems[i]
}

// pod returns the numbers of a pod (RES-21 to RES-24).
func pod(in *Input, p *Pod) statsapi.PodStats {
	sample, at := p.Sample, measuredAt(p.Sample.Usage, p.SampledAt)
	stats := statsapi.PodStats{
		PodRef:     statsapi.PodReference{Name: sample.Name.Name, Namespace: sample.Name.Namespace, UID: string(sample.UID)},
		StartTime:  metav1.NewTime(p.CreatedAt),
		Containers: make([]statsapi.ContainerStats, 0, len(sample.Containers)),
		CPU:        cpu(at, nanoseconds(sample.Usage.CPUSeconds), presentUse(sample.Usage, p.Load.UsageLoad), sample.Usage.Stalls.CPU),
		Memory:     memory(at, sample.Usage),
		Swap:       swap(at, sample.Usage.Swap, sample.Usage.SwapAvailable),
	}
	for i := range sample.Containers {
		stats.Containers = append(stats.Containers, container(in, p, &sample.Containers[i]))
	}
	if in.OnlyCPUAndMemory {
		return stats
	}
	stats.IO = io(at, sample.Usage.Stalls.IO)
	stats.Network = network(at, sample.Network, sample.Interfaces)
	if count := unsigned(sample.PIDs); count != nil {
		stats.ProcessStats = &statsapi.ProcessStats{ProcessCount: count}
	}
	if p.Disk != nil {
		for _, volume := range p.Disk.Volumes {
			stats.VolumeStats = append(stats.VolumeStats, volumeStats(volume))
		}
	}
	stats.EphemeralStorage = ephemeralStorage(in, p, stats.Containers)
	return stats
}

// container returns the numbers of a container (RES-18 to RES-20).
func container(in *Input, p *Pod, sample *load.ContainerSample) statsapi.ContainerStats {
	at, used := measuredAt(sample.Usage, p.SampledAt), load.UsageLoad{}
	if i := slices.IndexFunc(p.Load.Containers, func(c load.Container) bool { return c.Name == sample.Name }); i >= 0 {
		used = p.Load.Containers[i].UsageLoad
	}
	created := p.ContainersCreatedAt[sample.ID]
	if created.IsZero() {
		created = sample.StartedAt
	}
	stats := statsapi.ContainerStats{
		Name: sample.Name, StartTime: metav1.NewTime(created),
		CPU:    cpu(at, nanoseconds(sample.Usage.CPUSeconds), presentUse(sample.Usage, used), sample.Usage.Stalls.CPU),
		Memory: memory(at, sample.Usage),
		Swap:   swap(at, sample.Usage.Swap, sample.Usage.SwapAvailable),
	}
	if in.OnlyCPUAndMemory {
		return stats
	}
	stats.IO = io(at, sample.Usage.Stalls.IO)
	layer := Usage{At: at, Bytes: sample.WritableLayer, Inodes: sample.WritableInodes}
	if layer.Bytes.IsKnown() {
		stats.Rootfs = usedFileSystem(&layer, in.fileSystem(in.FileSystems.Containers))
	}
	if p.Disk != nil {
		if logs, found := p.Disk.Logs[sample.Name]; found {
			stats.Logs = usedFileSystem(&logs, in.fileSystem(in.FileSystems.Logs))
		}
	}
	return stats
}

// presentUse returns the CPUs in use as the runtime says, else over the last minute.
func presentUse(usage load.Usage, used load.UsageLoad) load.Value {
	if usage.NanoCores.IsKnown() {
		return usage.NanoCores
	}
	return nanocores(used.CPU.OneMinute.Mean)
}

// measuredAt returns when the runtime measured, or when it was asked.
func measuredAt(usage load.Usage, askedAt time.Time) time.Time {
	if usage.At.IsZero() {
		return askedAt
	}
	return usage.At
}
