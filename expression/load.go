package expression

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/view"
)

// unknown is the value of what was not measured. Comparisons with it are unknown too; && and || decide without it if they can.
var unknown = types.NewUnknown(0, nil)

// usage is the load of a pod or a container. All is unknown if load is nil.
type usage struct {
	load *view.UsageLoad
	pids *int64
}

// nodeLoad is the load of the node and its agent. What is not of the agent is unknown if load is nil.
type nodeLoad struct {
	load      *view.NodeLoad
	latencies *view.Latencies
}

func newPodUsage(load *view.PodLoad) usage {
	if load == nil {
		return usage{}
	}
	return usage{load: &load.UsageLoad, pids: load.PIDs}
}

func newContainerUsage(load *view.PodLoad, name string) usage {
	if load != nil {
		for i := range load.Containers {
			if load.Containers[i].Name == name {
				return usage{load: &load.Containers[i].UsageLoad}
			}
		}
	}
	return usage{}
}

func newNodeLoad(n *view.NodeView) nodeLoad { return nodeLoad{n.Load, &n.Agent.Latencies} }

// usageFields are means of the last minute. The fields that end in _limit are shares of the limits.
var usageFields = []field[usage]{
	{"cpu", cel.DoubleType, ofUsage(func(u *view.UsageLoad) any { return mean(u.CPU.Cores) })},
	{"cpu_limit", cel.DoubleType, ofUsage(func(u *view.UsageLoad) any { return known(u.CPU.OfLimit) })},
	{"memory", cel.DoubleType, ofUsage(func(u *view.UsageLoad) any { return mean(u.Memory.WorkingSetBytes) })},
	{"memory_limit", cel.DoubleType, ofUsage(func(u *view.UsageLoad) any { return known(u.Memory.OfLimit) })},
	{"throttled", cel.DoubleType, ofUsage(func(u *view.UsageLoad) any { return mean(u.CPU.Throttled) })},
	{"psi_cpu", cel.DoubleType, ofUsage(func(u *view.UsageLoad) any { return some(u.CPU.Pressure) })},
	{"psi_memory", cel.DoubleType, ofUsage(func(u *view.UsageLoad) any { return some(u.Memory.Pressure) })},
	{"psi_io", cel.DoubleType, ofUsage(func(u *view.UsageLoad) any { return some(u.IO.Pressure) })},
	{"pids", cel.IntType, func(u usage) any { return known(u.pids) }},
}

func ofUsage(get func(*view.UsageLoad) any) func(usage) any {
	return func(u usage) any {
		if u.load == nil {
			return unknown
		}
		return get(u.load)
	}
}

// nodeLoadFields are means of the last minute, as shares. Those of disks are of the file system that is worst off.
var nodeLoadFields = []field[nodeLoad]{
	{"level", cel.StringType, ofNode(func(n *view.NodeLoad) any { return n.Level })},
	{"saturation", cel.DoubleType, ofNode(func(n *view.NodeLoad) any { return known(n.Saturation) })},
	{"culprit", cel.StringType, ofNode(func(n *view.NodeLoad) any {
		if n.Saturation == nil {
			return unknown
		}
		return n.Culprit
	})},
	{"cpu", cel.DoubleType, ofNode(func(n *view.NodeLoad) any { return mean(n.CPU.Use) })},
	{"memory", cel.DoubleType, ofNode(func(n *view.NodeLoad) any { return mean(n.Memory.Use) })},
	{"pids", cel.DoubleType, ofNode(func(n *view.NodeLoad) any { return mean(n.PIDs) })},
	{"disk", cel.DoubleType, ofNode(func(n *view.NodeLoad) any {
		return worst(n, func(f *view.FileSystemLoad) *float64 { return f.Use }, isLarger)
	})},
	{"inodes", cel.DoubleType, ofNode(func(n *view.NodeLoad) any {
		return worst(n, func(f *view.FileSystemLoad) *float64 { return f.InodeUse }, isLarger)
	})},
	{"hours_to_full", cel.DoubleType, ofNode(func(n *view.NodeLoad) any {
		return worst(n, func(f *view.FileSystemLoad) *float64 { return f.HoursToFull }, func(a, b float64) bool { return a < b })
	})},
	{"read_only", cel.BoolType, ofNode(func(n *view.NodeLoad) any {
		for i := range n.FileSystems {
			if n.FileSystems[i].ReadOnly {
				return true
			}
		}
		if len(n.FileSystems) == 0 {
			return unknown
		}
		return false
	})},
	{"psi_cpu", cel.DoubleType, ofNode(func(n *view.NodeLoad) any { return some(n.CPU.Pressure) })},
	{"psi_memory", cel.DoubleType, ofNode(func(n *view.NodeLoad) any { return some(n.Memory.Pressure) })},
	{"psi_io", cel.DoubleType, ofNode(func(n *view.NodeLoad) any { return some(n.IO.Pressure) })},
	{"lag_p99", cel.DoubleType, func(n nodeLoad) any { return seconds(n.latencies.StatusLagP99Ms) }},
	{"oldest_unsent", cel.DoubleType, func(n nodeLoad) any { return seconds(n.latencies.OldestUnsentMs) }},
	{"api_p99", cel.DoubleType, func(n nodeLoad) any { return seconds(n.latencies.APIP99Ms) }},
	{"cri_p99", cel.DoubleType, func(n nodeLoad) any { return seconds(n.latencies.RuntimeP99Ms) }},
	{"relist_p99", cel.DoubleType, func(n nodeLoad) any { return seconds(n.latencies.RelistP99Ms) }},
}

func seconds(milliseconds *int64) any {
	if milliseconds == nil {
		return unknown
	}
	return float64(*milliseconds) / 1000
}

func ofNode(get func(*view.NodeLoad) any) func(nodeLoad) any {
	return func(n nodeLoad) any {
		if n.load == nil {
			return unknown
		}
		return get(n.load)
	}
}

func known[T any](value *T) any {
	if value == nil {
		return unknown
	}
	return *value
}

func mean(windows *view.Windows) any {
	if windows == nil {
		return unknown
	}
	return windows.Last1m.Mean
}

func some(pressure *view.Pressure) any {
	if pressure == nil {
		return unknown
	}
	return known(pressure.Some)
}

func isLarger(a, b float64) bool { return a > b }

// worst returns the value of the file system that is worst off.
func worst(n *view.NodeLoad, get func(*view.FileSystemLoad) *float64, isWorse func(a, b float64) bool) any {
	var found *float64
	for i := range n.FileSystems {
		if value := get(&n.FileSystems[i]); value != nil && (found == nil || isWorse(*value, *found)) {
			found = value
		}
	}
	return known(found)
}

// parseQuantity returns a quantity of Kubernetes, like 500Mi or 250m, as a number.
func parseQuantity(value ref.Val) ref.Val {
	text, isText := value.Value().(string)
	if !isText {
		return types.MaybeNoSuchOverloadErr(value)
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return types.NewErr("quantity %q: %v", text, err)
	}
	return types.Double(quantity.AsApproximateFloat64())
}
