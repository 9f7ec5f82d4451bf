package view

// NodeLoad is the load of the node. What is not known, for example because the last measurement is too old, is absent, never 0.
type NodeLoad struct {
	// Saturation is how close the node is to its limits, from 0 to 1: the largest value of all resources. Culprit is the resource that
	// has it: cpu, memory, disk or pids; empty if the saturation is 0.
	Saturation *float64 `json:"saturation,omitempty"`
	Culprit    string   `json:"culprit,omitempty"`
	// Level is idle, normal, busy or saturated; unknown before the first measurement. It changes only after a hold.
	Level string `json:"level"`
	// Since is when the level was reached.
	Since  *Time          `json:"since,omitempty"`
	CPU    NodeCPULoad    `json:"cpu"`
	Memory NodeMemoryLoad `json:"memory"`
	IO     IOLoad         `json:"io"`
	// PIDs is the share of the processes and threads that the kernel allows.
	PIDs    *Windows    `json:"pids,omitempty"`
	Network NetworkLoad `json:"network"`
	// FileSystems has those that the agent, the runtime and the logs use. One that several of them use appears once for each.
	FileSystems []FileSystemLoad `json:"fileSystems,omitempty"`
}

// NodeCPULoad is the load of all CPUs. Use, IOWait and Steal are shares of them.
type NodeCPULoad struct {
	Use    *Windows `json:"use,omitempty"`
	IOWait *Windows `json:"iowait,omitempty"`
	Steal  *Windows `json:"steal,omitempty"`
	// Cores is the number of CPUs in use over the last minute.
	Cores    *float64  `json:"cores,omitempty"`
	Pressure *Pressure `json:"pressure,omitempty"`
}

// NodeMemoryLoad is the load of the memory. Use is the share of it that the working set takes.
type NodeMemoryLoad struct {
	Use             *Windows  `json:"use,omitempty"`
	WorkingSetBytes *int64    `json:"workingSetBytes,omitempty"`
	AvailableBytes  *int64    `json:"availableBytes,omitempty"`
	TotalBytes      *int64    `json:"totalBytes,omitempty"`
	Pressure        *Pressure `json:"pressure,omitempty"`
	// OOMKills counts the processes that the kernel killed since the boot because memory was short.
	OOMKills *int64 `json:"oomKills,omitempty"`
}

// IOLoad is the load of the disks.
type IOLoad struct {
	Pressure *Pressure `json:"pressure,omitempty"`
}

// NetworkLoad is the use of the network.
type NetworkLoad struct {
	ReceivedBytesPerSecond *Windows `json:"receivedBytesPerSecond,omitempty"`
	SentBytesPerSecond     *Windows `json:"sentBytesPerSecond,omitempty"`
}

// FileSystemLoad is the load of a file system.
type FileSystemLoad struct {
	// Name is what it is used for: data, logs, images or containers.
	Name           string `json:"name"`
	CapacityBytes  *int64 `json:"capacityBytes,omitempty"`
	UsedBytes      *int64 `json:"usedBytes,omitempty"`
	AvailableBytes *int64 `json:"availableBytes,omitempty"`
	// Use and InodeUse are shares, as df prints them.
	Use      *float64 `json:"use,omitempty"`
	InodeUse *float64 `json:"inodeUse,omitempty"`
	// HoursToFull is absent while it does not grow, and for the first 15 minutes.
	HoursToFull *float64 `json:"hoursToFull,omitempty"`
	ReadOnly    bool     `json:"readOnly,omitempty"`
}

// PodLoad is the load of a pod. What is not known is absent, never 0.
type PodLoad struct {
	UsageLoad
	// Network is absent for a pod that uses the node's network.
	Network *PodNetworkLoad `json:"network,omitempty"`
	// PIDs counts processes and threads.
	PIDs *int64 `json:"pids,omitempty"`
	// Restarts and ReadinessFlips count what happened to all containers in the last hour: restarts, and changes of their readiness.
	Restarts       int             `json:"restarts"`
	ReadinessFlips int             `json:"readinessFlips"`
	Containers     []ContainerLoad `json:"containers,omitempty"`
}

// PodNetworkLoad is the use of the network over the last minute.
type PodNetworkLoad struct {
	ReceivedBytesPerSecond *float64 `json:"receivedBytesPerSecond,omitempty"`
	SentBytesPerSecond     *float64 `json:"sentBytesPerSecond,omitempty"`
}

// ContainerLoad is the load of a container.
type ContainerLoad struct {
	Name string `json:"name"`
	UsageLoad
	// WritableLayerBytes is the size of the container's own layer.
	WritableLayerBytes *int64 `json:"writableLayerBytes,omitempty"`
}

// UsageLoad is the use of resources by a pod or a container.
type UsageLoad struct {
	CPU    CPULoad    `json:"cpu"`
	Memory MemoryLoad `json:"memory"`
	IO     IOLoad     `json:"io"`
}

// CPULoad is the use of the CPUs, in cores.
type CPULoad struct {
	Cores      *Windows `json:"cores,omitempty"`
	LimitCores *float64 `json:"limitCores,omitempty"`
	// OfLimit is the share of the limit over the last minute, Throttled the share of periods in which the limit held it back.
	OfLimit   *float64  `json:"ofLimit,omitempty"`
	Throttled *Windows  `json:"throttled,omitempty"`
	Pressure  *Pressure `json:"pressure,omitempty"`
}

// MemoryLoad is the use of memory: the working set, which counts for the limit.
type MemoryLoad struct {
	WorkingSetBytes *Windows `json:"workingSetBytes,omitempty"`
	LimitBytes      *int64   `json:"limitBytes,omitempty"`
	// OfLimit is the share of the limit over the last minute.
	OfLimit  *float64  `json:"ofLimit,omitempty"`
	Pressure *Pressure `json:"pressure,omitempty"`
}

// Windows has a signal over the last 1, 5 and 15 minutes.
type Windows struct {
	Last1m  Window `json:"last1m"`
	Last5m  Window `json:"last5m"`
	Last15m Window `json:"last15m"`
}

// Window has the mean and the maximum of a signal.
type Window struct {
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// Pressure has the shares of the last 60 seconds in which something, or everything, waited for a resource (PSI).
type Pressure struct {
	Some *float64 `json:"some,omitempty"`
	Full *float64 `json:"full,omitempty"`
}
