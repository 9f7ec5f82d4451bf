package stats

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/heraldnode/herald/load"
)

// ownInterfaces returns the interfaces that carry traffic of the machine, by name: neither loopback nor the ends of the pods' networks
// (RES-25).
func ownInterfaces(devices procfs.NetDev) []load.Interface {
	var interfaces []load.Interface
	for name, device := range devices {
		if name != "lo" && !strings.HasPrefix(name, "veth") && !strings.HasPrefix(name, "docker") {
			interfaces = append(interfaces, load.Interface{Name: name, Network: networkCounters(device)})
		}
	}
	slices.SortFunc(interfaces, func(a, b load.Interface) int { return strings.Compare(a.Name, b.Name) })
	return interfaces
}

func networkCounters(device procfs.NetDevLine) load.Network {
	return load.Network{
		RxBytes: load.Known(float64(device.RxBytes)), TxBytes: load.Known(float64(device.TxBytes)),
		RxErrors: load.Known(float64(device.RxErrors)), TxErrors: load.Known(float64(device.TxErrors)),
	}
}

// stallTimes converts a line of /proc/pressure, whose total is in microseconds. A line that is missing is zero.
func stallTimes(line *procfs.PSILine) load.StallTimes {
	if line == nil {
		return load.StallTimes{}
	}
	return load.StallTimes{
		Avg10: line.Avg10, Avg60: line.Avg60, Avg300: line.Avg300,
		Total: time.Duration(line.Total) * time.Microsecond, //nolint:gosec // thousands of years
	}
}
