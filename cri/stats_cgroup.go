package cri

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/prometheus/procfs"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cgroup/usage"
	"github.com/heraldnode/herald/load"
)

// fillFromCgroups reads what the runtime did not measure from the cgroups of the pods, and the network of a pod from one of its
// processes. Pods have cgroups of their own if the agent chooses their parent.
func (r *Runtime) fillFromCgroups(ctx context.Context, samples []load.PodSample) {
	driver := ""
	if r.config.CgroupParent != "" {
		driver, _ = r.CgroupDriver(ctx) // unknown: the runtime's numbers have to do
	}
	for i := range samples {
		if driver != "" {
			r.fillPod(driver, &samples[i])
		}
		if !isMeasured(samples[i].Usage) {
			samples[i].Usage = sum(samples[i].Containers) // the last resort (RES-21)
		}
		if swap := &samples[i].Usage; !swap.Swap.IsKnown() { // runtimes do not measure the swap of pods
			total := sum(samples[i].Containers)
			swap.Swap, swap.SwapAvailable = total.Swap, total.SwapAvailable
		}
	}
}

func (r *Runtime) fillPod(driver string, pod *load.PodSample) {
	group := r.podGroup(driver, pod)
	if !group.Exists() {
		return
	}
	sample := usage.Sample{Usage: pod.Usage}
	group.Fill(&sample)
	pod.Usage = sample.Usage
	if sample.PIDs.IsKnown() { // containerd counts those of the sandbox only
		pod.PIDs = sample.PIDs
	}
	children := group.Children()
	for i := range pod.Containers {
		container := &pod.Containers[i]
		for _, name := range children {
			if cgroup.IsContainer(name, container.ID) {
				sample := usage.Sample{Usage: container.Usage}
				group.Child(name).Fill(&sample)
				container.Usage = sample.Usage
			}
		}
	}
	if !pod.Network.RxBytes.IsKnown() {
		pod.Network, pod.Interfaces = podNetwork(group, children)
	}
}

// AllPodsUsage returns what all pods use together, from the cgroup above those of the pods, and false if they have none (RES-28).
func (r *Runtime) AllPodsUsage(ctx context.Context) (load.Usage, bool) {
	if r.config.CgroupParent == "" {
		return load.Usage{}, false
	}
	driver, err := r.CgroupDriver(ctx)
	if err != nil {
		return load.Usage{}, false
	}
	reader := usage.Reader{Mount: r.config.cgroupMount, V2: r.config.CgroupHost.V2}
	group := reader.Group(cgroup.ParseName(r.config.CgroupParent).Path(driver))
	return group.Read().Usage, group.Exists()
}

// podGroup returns the cgroup of the pod. Its QoS class is not known here.
func (r *Runtime) podGroup(driver string, pod *load.PodSample) usage.Group {
	reader := usage.Reader{Mount: r.config.cgroupMount, V2: r.config.CgroupHost.V2}
	for _, name := range cgroup.PodNames(cgroup.ParseName(r.config.CgroupParent), pod.UID) {
		if group := reader.Group(name.Path(driver)); group.Exists() {
			return group
		}
	}
	return usage.Group{}
}

// podNetwork reads the counters of the pod's interface from one of its processes, which all have the same network (RES-22). It is
// unknown for a pod in the network of the node.
func podNetwork(pod usage.Group, children []string) (load.Network, []load.Interface) {
	for _, name := range children {
		for _, pid := range pod.Child(name).Processes() {
			if devices, found := readDevices(pid); found {
				return deviceCounters(devices)
			}
		}
	}
	return load.Network{}, nil
}

// readDevices returns the network interfaces that a process sees, and false if it has exited or uses the network of the node.
func readDevices(pid int) (procfs.NetDev, bool) {
	namespace, err := networkNamespace(strconv.Itoa(pid))
	if err != nil {
		return nil, false
	}
	for _, process := range []string{"self", "1"} {
		if other, err := networkNamespace(process); err == nil && other == namespace {
			return nil, false
		}
	}
	process, err := procfs.NewProc(pid)
	if err != nil {
		return nil, false
	}
	devices, err := process.NetDev()
	return devices, err == nil
}

func networkNamespace(process string) (string, error) {
	return os.Readlink(filepath.Join("/proc", process, "ns/net"))
}

// deviceCounters returns the counters of all interfaces other than lo. The first is the default one: eth0 if there is one.
func deviceCounters(devices procfs.NetDev) (load.Network, []load.Interface) {
	const preferred, loopback = "eth0", "lo"
	var interfaces []load.Interface
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		line := devices[name]
		counters := load.Interface{Name: name, Network: load.Network{
			RxBytes: load.Known(float64(line.RxBytes)), TxBytes: load.Known(float64(line.TxBytes)),
			RxErrors: load.Known(float64(line.RxErrors)), TxErrors: load.Known(float64(line.TxErrors)),
		}}
		switch name {
		case loopback:
		case preferred:
			interfaces = slices.Insert(interfaces, 0, counters)
		default:
			interfaces = append(interfaces, counters)
		}
	}
	if len(interfaces) == 0 {
		return load.Network{}, nil
	}
	return interfaces[0].Network, interfaces
}
