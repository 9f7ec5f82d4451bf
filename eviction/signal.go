package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/load"
)

// Signal names a figure that a threshold is about. The names are the kubelet's, apart from those of logs.
type Signal string

// Signals (EVI-2). Those of container file systems and logs cannot be configured, see Policy.
const (
	MemoryAvailable            Signal = "memory.available"
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	NodeFSAvailable            Signal = "nodefs.available"
	NodeFSInodesFree           Signal = "nodefs.inodesFree"
	ImageFSAvailable           Signal = "imagefs.available"
	ImageFSInodesFree          Signal = "imagefs.inodesFree"
	ContainerFSAvailable       Signal = "containerfs.available"
	ContainerFSInodesFree      Signal = "containerfs.inodesFree"
	LogFSAvailable             Signal = "logfs.available"
	LogFSInodesFree            Signal = "logfs.inodesFree"
	PIDAvailable               Signal = "pid.available"
)

// Resources that Kubernetes does not define.
const (
	resourceInodes v1.ResourceName = "inodes"
	resourcePIDs   v1.ResourceName = "pids"
)

// signalInfo is what a signal stands for.
type signalInfo struct {
	signal    Signal
	condition v1.NodeConditionType
	resource  v1.ResourceName
	// derivedFrom is set if the signal cannot be configured.
	derivedFrom string
}

// signals is in the order in which thresholds are acted on: memory first (EVI-13). The kubelet has no order among the rest.
var signals = []signalInfo{
	{MemoryAvailable, v1.NodeMemoryPressure, v1.ResourceMemory, ""},
	{AllocatableMemoryAvailable, v1.NodeMemoryPressure, v1.ResourceMemory, ""},
	{NodeFSAvailable, v1.NodeDiskPressure, v1.ResourceEphemeralStorage, ""},
	{ImageFSAvailable, v1.NodeDiskPressure, v1.ResourceEphemeralStorage, ""},
	{ContainerFSAvailable, v1.NodeDiskPressure, v1.ResourceEphemeralStorage, "nodefs.available or imagefs.available"},
	{NodeFSInodesFree, v1.NodeDiskPressure, resourceInodes, ""},
	{ImageFSInodesFree, v1.NodeDiskPressure, resourceInodes, ""},
	{ContainerFSInodesFree, v1.NodeDiskPressure, resourceInodes, "nodefs.inodesFree or imagefs.inodesFree"},
	{PIDAvailable, v1.NodePIDPressure, resourcePIDs, ""},
	{LogFSAvailable, v1.NodeDiskPressure, v1.ResourceEphemeralStorage, "nodefs.available"},
	{LogFSInodesFree, v1.NodeDiskPressure, resourceInodes, "nodefs.inodesFree"},
}

// info returns what the signal stands for, and its place in the order.
func (s Signal) info() (info signalInfo, order int, found bool) {
	for i := range signals {
		if signals[i].signal == s {
			return signals[i], i, true
		}
	}
	return signalInfo{}, len(signals), false
}

// conditionTypes are the conditions of pressure in the order in which they are reported.
var conditionTypes = []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure}

// Observation is one measurement of a signal.
type Observation struct {
	Available, Capacity int64
	// At is when it was measured. Zero if it is not known.
	At time.Time
}

// available returns the available amount in the kubelet's format.
func (o Observation) available(signal Signal) *resource.Quantity {
	format := resource.BinarySI
	if info, _, _ := signal.info(); info.resource == resourceInodes || info.resource == resourcePIDs {
		format = resource.DecimalSI
	}
	return resource.NewQuantity(o.Available, format)
}

// Observations has the signals that were measured.
type Observations map[Signal]Observation

// Sample is what was measured of the node.
type Sample struct {
	Machine load.MachineSample
	// At is when the machine was measured.
	At time.Time
	// AllPods is what the cgroup of all pods uses. Zero if there is none.
	AllPods load.Usage
	// Data, Images, Containers and Logs are the names of the file systems in Machine. Logs is empty if they are with the data.
	Data, Images, Containers, Logs string
}

// Observe returns the signals of a sample. What was not measured has none (EVI-9). The available memory is the kernel's estimate: the
// kubelet counts the active page cache as used, and forgets what the kernel keeps for itself (BUG-141).
func Observe(sample *Sample) Observations {
	all := Observations{}
	all.add(MemoryAvailable, sample.Machine.MemoryAvailable, sample.Machine.MemoryTotal, sample.At)
	// What is left below a limit is never negative (BUG-145).
	available := sample.AllPods.Available
	allPodsAt := sample.AllPods.At
	if allPodsAt.IsZero() {
		allPodsAt = sample.At
	}
	all.add(AllocatableMemoryAvailable, available, available.Plus(sample.AllPods.WorkingSet), allPodsAt)
	for _, part := range []struct {
		name          string
		space, inodes Signal
	}{
		{sample.Data, NodeFSAvailable, NodeFSInodesFree},
		{sample.Images, ImageFSAvailable, ImageFSInodesFree},
		{sample.Containers, ContainerFSAvailable, ContainerFSInodesFree},
		{sample.Logs, LogFSAvailable, LogFSInodesFree},
	} {
		for i := range sample.Machine.FileSystems {
			if fileSystem := &sample.Machine.FileSystems[i]; part.name != "" && fileSystem.Name == part.name {
				all.add(part.space, fileSystem.Available, fileSystem.Capacity, sample.At)
				all.add(part.inodes, minus(fileSystem.Inodes, fileSystem.InodeUsed), fileSystem.Inodes, sample.At)
			}
		}
	}
	all.add(PIDAvailable, minus(sample.Machine.MaxPIDs, sample.Machine.PIDs), sample.Machine.MaxPIDs, sample.At)
	return all
}

// add adds a signal if it was measured. A capacity of zero means that it is not known: file systems without a fixed number of inodes
// say so.
func (o Observations) add(signal Signal, available, capacity load.Value, at time.Time) {
	free, known := available.Get()
	total, totalKnown := capacity.Get()
	if known && totalKnown && total > 0 {
		o[signal] = Observation{Available: int64(max(free, 0)), Capacity: int64(total), At: at}
	}
}

func minus(a, b load.Value) load.Value {
	x, known := a.Get()
	y, otherKnown := b.Get()
	if !known || !otherKnown {
		return load.Value{}
	}
	return load.Known(max(x-y, 0))
}
