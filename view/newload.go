package view

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/heraldnode/herald/load"
)

// Digits after the decimal point.
const (
	shareDigits = 4
	coreDigits  = 6
)

// NewNodeLoad returns the view of the node's load. since is when its level was reached.
func NewNodeLoad(n load.Node, since time.Time) *NodeLoad {
	v := &NodeLoad{
		Saturation: number(n.Saturation.Value, shareDigits), Culprit: string(n.Saturation.Culprit), Level: string(n.Level),
		CPU: NodeCPULoad{
			Use: windows(n.CPU, shareDigits), IOWait: windows(n.IOWait, shareDigits), Steal: windows(n.Steal, shareDigits),
			Cores: number(n.Cores, coreDigits), Pressure: pressure(n.Pressure.CPU, load.Value{}),
		},
		Memory: NodeMemoryLoad{
			Use: windows(n.Memory, shareDigits), WorkingSetBytes: integer(n.MemoryBytes.WorkingSet),
			AvailableBytes: integer(n.MemoryBytes.Available), TotalBytes: integer(n.MemoryBytes.Total),
			Pressure: pressure(n.Pressure.Memory, n.Pressure.MemoryFull), OOMKills: integer(n.OOMKills),
		},
		IO:      IOLoad{Pressure: pressure(n.Pressure.IO, n.Pressure.IOFull)},
		PIDs:    windows(n.PIDs, shareDigits),
		Network: NetworkLoad{ReceivedBytesPerSecond: windows(n.Received, 0), SentBytesPerSecond: windows(n.Sent, 0)},
	}
	if n.Level != load.LevelUnknown {
		v.Since = NewTime(since)
	}
	for i := range n.FileSystems {
		v.FileSystems = append(v.FileSystems, newFileSystem(&n.FileSystems[i]))
	}
	return v
}

func newFileSystem(f *load.FileSystemLoad) FileSystemLoad {
	return FileSystemLoad{
		Name: f.Name, CapacityBytes: integer(f.Capacity), UsedBytes: integer(f.Used), AvailableBytes: integer(f.Available),
		Use: number(f.Use, shareDigits), InodeUse: number(f.InodeUse, shareDigits), HoursToFull: number(f.HoursToFull, 1), ReadOnly: f.ReadOnly,
	}
}

// NewPodLoad returns the view of a pod's load. Limits are those of the pod's spec.
func NewPodLoad(p load.Pod, pod *v1.Pod) *PodLoad {
	v := &PodLoad{UsageLoad: newUsage(p.UsageLoad, podLimits(pod)), PIDs: integer(p.PIDs)}
	network := PodNetworkLoad{ReceivedBytesPerSecond: number(p.Received, 0), SentBytesPerSecond: number(p.Sent, 0)}
	if network != (PodNetworkLoad{}) && !pod.Spec.HostNetwork {
		v.Network = &network
	}
	for i := range p.Containers {
		container := &p.Containers[i]
		v.Containers = append(v.Containers, ContainerLoad{
			Name: container.Name, UsageLoad: newUsage(container.UsageLoad, containerLimits(pod, container.Name)),
			WritableLayerBytes: integer(container.WritableLayer),
		})
	}
	return v
}

func newUsage(u load.UsageLoad, limits v1.ResourceList) UsageLoad {
	v := UsageLoad{
		CPU: CPULoad{
			Cores: windows(u.CPU, coreDigits), Throttled: windows(u.Throttled, shareDigits), Pressure: pressure(u.Pressure.CPU, load.Value{}),
		},
		Memory: MemoryLoad{WorkingSetBytes: windows(u.Memory, 0), Pressure: pressure(u.Pressure.Memory, u.Pressure.MemoryFull)},
		IO:     IOLoad{Pressure: pressure(u.Pressure.IO, u.Pressure.IOFull)},
	}
	if limit, found := limits[v1.ResourceCPU]; found && limit.Sign() > 0 {
		cores := load.Known(float64(limit.MilliValue()) / 1000)
		v.CPU.LimitCores, v.CPU.OfLimit = number(cores, coreDigits), number(u.CPU.OneMinute.Mean.Share(cores), shareDigits)
	}
	if limit, found := limits[v1.ResourceMemory]; found && limit.Sign() > 0 {
		bytes := load.Known(float64(limit.Value()))
		v.Memory.LimitBytes, v.Memory.OfLimit = integer(bytes), number(u.Memory.OneMinute.Mean.Share(bytes), shareDigits)
	}
	return v
}

// podLimits returns what the pod as a whole may use: its own limits, or the sums of its containers' if all that run have one.
func podLimits(pod *v1.Pod) v1.ResourceList {
	limits := v1.ResourceList{}
	var own v1.ResourceList
	if pod.Spec.Resources != nil {
		own = pod.Spec.Resources.Limits
	}
	sums := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if limit, found := own[name]; found {
			limits[name] = limit
		} else if areLimited(pod, name) {
			limits[name] = sums[name]
		}
	}
	return limits
}

// areLimited reports whether all containers that run as long as the pod have a limit.
func areLimited(pod *v1.Pod, name v1.ResourceName) bool {
	for i := range pod.Spec.Containers {
		if limit := pod.Spec.Containers[i].Resources.Limits[name]; limit.IsZero() {
			return false
		}
	}
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		isSidecar := container.RestartPolicy != nil && *container.RestartPolicy == v1.ContainerRestartPolicyAlways
		if limit := container.Resources.Limits[name]; isSidecar && limit.IsZero() {
			return false
		}
	}
	return len(pod.Spec.Containers) > 0
}

func containerLimits(pod *v1.Pod, name string) v1.ResourceList {
	for _, containers := range [...][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			if containers[i].Name == name {
				return containers[i].Resources.Limits
			}
		}
	}
	return nil
}

// number returns a value rounded to some digits, or nil if it is unknown.
func number(v load.Value, digits int) *float64 {
	n, known := v.Get()
	if !known {
		return nil
	}
	return new(round(n, digits))
}

func round(n float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(n*scale) / scale
}

func integer(v load.Value) *int64 {
	n, known := v.Get()
	if !known {
		return nil
	}
	return new(int64(n))
}

func windows(w load.Windows, digits int) *Windows {
	if !w.OneMinute.Mean.IsKnown() {
		return nil
	}
	return &Windows{Last1m: window(w.OneMinute, digits), Last5m: window(w.FiveMinutes, digits), Last15m: window(w.FifteenMinutes, digits)}
}

func window(w load.Window, digits int) Window {
	mean, _ := w.Mean.Get()
	largest, _ := w.Max.Get()
	return Window{Mean: round(mean, digits), Max: round(largest, digits)}
}

func pressure(some, full load.Value) *Pressure {
	v := Pressure{Some: number(some, shareDigits), Full: number(full, shareDigits)}
	if v == (Pressure{}) {
		return nil
	}
	return &v
}
