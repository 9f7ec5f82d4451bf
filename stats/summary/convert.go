package summary

import (
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/heraldnode/herald/load"
)

// unsigned returns the number, nil if it is unknown or negative.
func unsigned(value load.Value) *uint64 {
	number, known := value.Get()
	if !known || number < 0 {
		return nil
	}
	converted := uint64(math.Round(number))
	return &converted
}

func signed(value load.Value) *int64 {
	number := unsigned(value)
	if number == nil {
		return nil
	}
	converted := int64(min(*number, math.MaxInt64)) //nolint:gosec // bounded
	return &converted
}

// minus returns a-b, at least 0, unknown if one of them is.
func minus(a, b load.Value) load.Value {
	number, known := a.Get()
	subtract, subtractKnown := b.Get()
	if !known || !subtractKnown {
		return load.Value{}
	}
	return load.Known(max(number-subtract, 0))
}

// nanoseconds and nanocores convert seconds and CPUs.
func nanoseconds(seconds load.Value) load.Value { return times(seconds, float64(time.Second)) }
func nanocores(cores load.Value) load.Value     { return times(cores, 1e9) }

func times(value load.Value, factor float64) load.Value {
	number, known := value.Get()
	if !known {
		return load.Value{}
	}
	return load.Known(number * factor)
}

// cpu returns nil if neither is known.
func cpu(at time.Time, nanoseconds, nanocores load.Value, stall *load.Stall) *statsapi.CPUStats {
	if !nanoseconds.IsKnown() && !nanocores.IsKnown() {
		return nil
	}
	return &statsapi.CPUStats{
		Time: metav1.NewTime(at), UsageCoreNanoSeconds: unsigned(nanoseconds), UsageNanoCores: unsigned(nanocores), PSI: psi(stall),
	}
}

// memory returns nil if neither the working set nor all memory is known.
func memory(at time.Time, usage load.Usage) *statsapi.MemoryStats {
	if !usage.WorkingSet.IsKnown() && !usage.Memory.IsKnown() {
		return nil
	}
	return &statsapi.MemoryStats{
		Time: metav1.NewTime(at), AvailableBytes: unsigned(usage.Available), UsageBytes: unsigned(usage.Memory),
		WorkingSetBytes: unsigned(usage.WorkingSet), RSSBytes: unsigned(usage.RSS), PageFaults: unsigned(usage.PageFaults),
		MajorPageFaults: unsigned(usage.MajorFaults), PSI: psi(usage.Stalls.Memory),
	}
}

func swap(at time.Time, used, available load.Value) *statsapi.SwapStats {
	if !used.IsKnown() && !available.IsKnown() {
		return nil
	}
	return &statsapi.SwapStats{Time: metav1.NewTime(at), SwapUsageBytes: unsigned(used), SwapAvailableBytes: unsigned(available)}
}

func io(at time.Time, stall *load.Stall) *statsapi.IOStats {
	if stall == nil {
		return nil
	}
	return &statsapi.IOStats{Time: metav1.NewTime(at), PSI: psi(stall)}
}

func psi(stall *load.Stall) *statsapi.PSIStats {
	if stall == nil {
		return nil
	}
	data := func(times load.StallTimes) statsapi.PSIData {
		return statsapi.PSIData{Total: uint64(max(times.Total, 0)), Avg10: times.Avg10, Avg60: times.Avg60, Avg300: times.Avg300}
	}
	return &statsapi.PSIStats{Some: data(stall.Some), Full: data(stall.Full)}
}

// network returns the interfaces, and the default one again at the top (RES-22). It returns nil if no interface was measured.
func network(at time.Time, defaults load.Network, interfaces []load.Interface) *statsapi.NetworkStats {
	if len(interfaces) == 0 {
		return nil
	}
	stats := &statsapi.NetworkStats{Time: metav1.NewTime(at)}
	for _, one := range interfaces {
		converted := statsapi.InterfaceStats{
			Name: one.Name, RxBytes: unsigned(one.RxBytes), RxErrors: unsigned(one.RxErrors),
			TxBytes: unsigned(one.TxBytes), TxErrors: unsigned(one.TxErrors),
		}
		if one.Network == defaults && stats.Name == "" {
			stats.InterfaceStats = converted
		}
		stats.Interfaces = append(stats.Interfaces, converted)
	}
	return stats
}
