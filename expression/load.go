package expression

import (
	"math"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/view"
)

// unknown is the value of what was not measured. Comparisons with it are unknown too; && and || decide without it if they can.
var unknown = types.NewUnknown(0, nil)

// usage is the load of a pod or a container. All is unknown if load is nil, and 0 if it is idle.
type usage struct {
	object
	load   *view.UsageLoad
	pids   *int64
	at     *moment
	isIdle bool
}

func (u *usage) moment() *moment { return u.at }

// nodeLoad is the load of the node and its agent. What is not of the agent is unknown if load is nil.
type nodeLoad struct {
	object
	load  *view.NodeLoad
	agent *view.Agent
	at    *moment
}

func (n *nodeLoad) moment() *moment { return n.at }

// usageFields are means of the last minute. The fields that end in _limit are shares of the limits.
var usageFields = []field[*usage]{
	{"cpu", cel.DoubleType, ofUsage(func(u *view.UsageLoad) ref.Val { return mean(u.CPU.Cores) })},
	{"cpu_limit", cel.DoubleType, (*usage).ofCPULimit},
	{"memory", cel.DoubleType, ofUsage(func(u *view.UsageLoad) ref.Val { return mean(u.Memory.WorkingSetBytes) })},
	{"memory_limit", cel.DoubleType, (*usage).ofMemoryLimit},
	{"throttled", cel.DoubleType, (*usage).throttled},
	{"psi_cpu", cel.DoubleType, ofUsage(func(u *view.UsageLoad) ref.Val { return some(u.CPU.Pressure) })},
	{"psi_memory", cel.DoubleType, ofUsage(func(u *view.UsageLoad) ref.Val { return some(u.Memory.Pressure) })},
	{"psi_io", cel.DoubleType, ofUsage(func(u *view.UsageLoad) ref.Val { return some(u.IO.Pressure) })},
	{"pids", cel.IntType, func(u *usage) ref.Val {
		switch {
		case u.isIdle:
			return types.Int(0)
		case u.pids == nil:
			return unknown
		default:
			return types.Int(*u.pids)
		}
	}},
}

func ofUsage(get func(*view.UsageLoad) ref.Val) func(*usage) ref.Val {
	return func(u *usage) ref.Val {
		switch {
		case u.isIdle:
			return types.Double(0)
		case u.load == nil:
			return unknown
		default:
			return get(u.load)
		}
	}
}

// hasNoCPULimit reports whether the CPU was measured and has no limit. Only rules ask.
func (u *usage) hasNoCPULimit() bool {
	return u.at.isRule && u.load != nil && u.load.CPU.Cores != nil && u.load.CPU.LimitCores == nil
}

// ofCPULimit returns the share of the CPU limit. For rules it is 0 without a limit.
func (u *usage) ofCPULimit() ref.Val {
	if u.isIdle || u.hasNoCPULimit() {
		return types.Double(0)
	}
	return ofUsage(func(u *view.UsageLoad) ref.Val { return known(u.CPU.OfLimit) })(u)
}

// throttled returns the share of periods in which the CPU limit held it back. For rules it is 0 without a limit, if it was not measured.
func (u *usage) throttled() ref.Val {
	if u.isIdle || u.hasNoCPULimit() && u.load.CPU.Throttled == nil {
		return types.Double(0)
	}
	return ofUsage(func(u *view.UsageLoad) ref.Val { return mean(u.CPU.Throttled) })(u)
}

// ofMemoryLimit returns the share of the memory limit. For rules it is 0 without a limit.
func (u *usage) ofMemoryLimit() ref.Val {
	isUnlimited := u.load != nil && u.load.Memory.WorkingSetBytes != nil && u.load.Memory.LimitBytes == nil
	if u.isIdle || u.at.isRule && isUnlimited {
		return types.Double(0)
	}
	return ofUsage(func(u *view.UsageLoad) ref.Val { return known(u.Memory.OfLimit) })(u)
}

// nodeLoadFields are means of the last minute, as shares. Those of disks are of the file system that is worst off.
var nodeLoadFields = []field[*nodeLoad]{
	{"level", cel.StringType, (*nodeLoad).level},
	{"saturation", cel.DoubleType, ofNode(func(n *view.NodeLoad) ref.Val { return known(n.Saturation) })},
	{"culprit", cel.StringType, ofNode(func(n *view.NodeLoad) ref.Val {
		if n.Saturation == nil {
			return unknown
		}
		return types.String(n.Culprit)
	})},
	{"cpu", cel.DoubleType, ofNode(func(n *view.NodeLoad) ref.Val { return mean(n.CPU.Use) })},
	{"memory", cel.DoubleType, ofNode(func(n *view.NodeLoad) ref.Val { return mean(n.Memory.Use) })},
	{"pids", cel.DoubleType, ofNode(func(n *view.NodeLoad) ref.Val { return mean(n.PIDs) })},
	{"disk", cel.DoubleType, ofNode(func(n *view.NodeLoad) ref.Val {
		return worst(n, func(f *view.FileSystemLoad) *float64 { return f.Use }, isLarger)
	})},
	{"inodes", cel.DoubleType, ofNode(func(n *view.NodeLoad) ref.Val {
		return worst(n, func(f *view.FileSystemLoad) *float64 { return f.InodeUse }, isLarger)
	})},
	{"hours_to_full", cel.DoubleType, (*nodeLoad).hoursToFull},
	{"read_only", cel.BoolType, ofNode(func(n *view.NodeLoad) ref.Val {
		for i := range n.FileSystems {
			if n.FileSystems[i].ReadOnly {
				return types.True
			}
		}
		if len(n.FileSystems) == 0 {
			return unknown
		}
		return types.False
	})},
	{"psi_cpu", cel.DoubleType, ofNode(func(n *view.NodeLoad) ref.Val { return some(n.CPU.Pressure) })},
	{"psi_memory", cel.DoubleType, ofNode(func(n *view.NodeLoad) ref.Val { return some(n.Memory.Pressure) })},
	{"psi_io", cel.DoubleType, ofNode(func(n *view.NodeLoad) ref.Val { return some(n.IO.Pressure) })},
	{"lag_p99", cel.DoubleType, func(n *nodeLoad) ref.Val { return seconds(n.agent.Latencies.StatusLagP99Ms) }},
	{"oldest_unsent", cel.DoubleType, func(n *nodeLoad) ref.Val { return seconds(n.agent.Latencies.OldestUnsentMs) }},
	{"api_p99", cel.DoubleType, func(n *nodeLoad) ref.Val { return seconds(n.agent.Latencies.APIP99Ms) }},
	{"cri_p99", cel.DoubleType, func(n *nodeLoad) ref.Val { return seconds(n.agent.Latencies.RuntimeP99Ms) }},
	{"relist_p99", cel.DoubleType, func(n *nodeLoad) ref.Val { return seconds(n.agent.Latencies.RelistP99Ms) }},
}

// level returns the level. For rules it is unknown before the first measurement.
func (n *nodeLoad) level() ref.Val {
	if n.load == nil || n.at.isRule && (n.load.Level == "" || n.load.Level == levelUnknown) {
		return unknown
	}
	return types.String(n.load.Level)
}

const levelUnknown = "unknown"

// forecastDelay is how long after the start of the agent the growth of file systems is known at the latest.
const forecastDelay = 20 * time.Minute

// hoursToFull returns the hours until the first file system is full. For rules it is infinite if none grows.
func (n *nodeLoad) hoursToFull() ref.Val {
	if n.load == nil {
		return unknown
	}
	hours := worst(n.load, func(f *view.FileSystemLoad) *float64 { return f.HoursToFull }, func(a, b float64) bool { return a < b })
	if hours != unknown || !n.at.isRule || len(n.load.FileSystems) == 0 || n.agent.StartedAt == nil {
		return hours
	}
	knownAt := n.agent.StartedAt.Add(forecastDelay)
	n.at.changesAt(knownAt)
	if n.at.now.Before(knownAt) {
		return unknown
	}
	return types.Double(math.Inf(1))
}

func seconds(milliseconds *int64) ref.Val {
	if milliseconds == nil {
		return unknown
	}
	return types.Double(float64(*milliseconds) / 1000)
}

func ofNode(get func(*view.NodeLoad) ref.Val) func(*nodeLoad) ref.Val {
	return func(n *nodeLoad) ref.Val {
		if n.load == nil {
			return unknown
		}
		return get(n.load)
	}
}

func known(value *float64) ref.Val {
	if value == nil {
		return unknown
	}
	return types.Double(*value)
}

func mean(windows *view.Windows) ref.Val {
	if windows == nil {
		return unknown
	}
	return types.Double(windows.Last1m.Mean)
}

func some(pressure *view.Pressure) ref.Val {
	if pressure == nil {
		return unknown
	}
	return known(pressure.Some)
}

func isLarger(a, b float64) bool { return a > b }

// worst returns the value of the file system that is worst off.
func worst(n *view.NodeLoad, get func(*view.FileSystemLoad) *float64, isWorse func(a, b float64) bool) ref.Val {
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
