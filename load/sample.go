package load

import (
	"time"

	"github.com/heraldnode/herald/podid"
)

// MachineSample is one measurement of a node. Counters rise since the boot.
type MachineSample struct {
	CPUs Value
	// CPUTotal, CPUBusy, CPUIOWait and CPUSteal are seconds of all CPUs since the boot.
	CPUTotal, CPUBusy, CPUIOWait, CPUSteal Value
	// MemoryTotal, MemoryAvailable and WorkingSet are bytes.
	MemoryTotal, MemoryAvailable, WorkingSet Value
	Pressure                                 Pressure
	OOMKills                                 Value
	PIDs, MaxPIDs                            Value
	FileSystems                              []FileSystem
	Network                                  Network
	Detail                                   MachineDetail
}

// MachineDetail has what only the summary of the node shows.
type MachineDetail struct {
	BootedAt time.Time
	// Memory is all memory in use including caches, RSS that of processes without files, Swap what is in use of swap and SwapFree what
	// is left of it, in bytes.
	Memory, RSS, Swap, SwapFree Value
	PageFaults, MajorFaults     Value
	// Interfaces has the network interfaces of the machine, without those of pods.
	Interfaces []Interface
	Stalls     Stalls
}

// Stalls has the whole pressure stall information (PSI) of each resource, nil if it was not measured.
type Stalls struct{ CPU, Memory, IO *Stall }

// Stall is the pressure stall information of one resource.
type Stall struct{ Some, Full StallTimes }

// StallTimes says how long tasks were stalled: shares of the last 10, 60 and 300 seconds in percent, and the total time.
type StallTimes struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

// Pressure has the shares of the last 60 seconds in which something waited for a resource (PSI). Full means that everything did.
type Pressure struct{ CPU, Memory, MemoryFull, IO, IOFull Value }

// FileSystem is one measurement of a file system.
type FileSystem struct {
	// Name is what the node uses it for: data, images, containers or logs. Several may be the same file system.
	Name              string
	Capacity, Used    Value // bytes
	Available         Value // bytes that may be used
	Inodes, InodeUsed Value
	ReadOnly          bool
}

// Network has the counters of a network interface since it exists.
type Network struct{ RxBytes, TxBytes, RxErrors, TxErrors Value }

// Interface is a network interface with its counters.
type Interface struct {
	Name string
	Network
}

// PodSample is one measurement of a pod.
type PodSample struct {
	UID   podid.UID
	Name  podid.FullName
	Usage Usage
	// Network has the counters of the default interface, Interfaces those of all.
	Network    Network
	Interfaces []Interface
	// PIDs counts processes and threads.
	PIDs       Value
	Containers []ContainerSample
}

// ContainerSample is one measurement of a container.
type ContainerSample struct {
	Name  string
	ID    string
	Usage Usage
	// WritableLayer is the size of the container's own layer in bytes, WritableInodes its files.
	WritableLayer, WritableInodes Value
	StartedAt                     time.Time
}

// Usage is the use of resources by a pod or a container.
type Usage struct {
	// At is when the runtime measured it. Zero if it does not say.
	At time.Time
	// CPUSeconds is the CPU time since the start. NanoCores is the present use as the runtime computed it, if it does.
	CPUSeconds, NanoCores Value
	// The following are bytes.
	WorkingSet, Memory, RSS, Available, Swap, SwapAvailable Value
	PageFaults, MajorFaults                                 Value
	Throttling                                              Throttling
	IO                                                      IO
	Pressure                                                Pressure
	Stalls                                                  Stalls
}

// Throttling says how often the CPU limit held processes back since the start: the periods of the limit, those in which it did, and
// for how long.
type Throttling struct{ Periods, Throttled, Seconds Value }

// IO has the bytes that were read from and written to disks since the start.
type IO struct{ Read, Written Value }
