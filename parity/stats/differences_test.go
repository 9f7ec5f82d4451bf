package stats_test

import "regexp"

// fieldDifferences, valueDifferences and seriesDifferences are what Herald serves differently on purpose, as docs/stats.md says.
var (
	fieldDifferences = []difference{
		{
			reason:  "cgroups of version 1 have no pressure stall information: Herald leaves it out, the kubelet has zeros",
			kubelet: regexp.MustCompile(`^(pods|node\.systemContainers)\[.*(\.psi\..*|\.io\.time)$`),
		},
		{
			reason:  "the kubelet reports the limit of memory and swap together as swap that is available, also on machines without swap",
			kubelet: regexp.MustCompile(`^pods\[.*\.swap\.swapAvailableBytes$`),
		},
		{
			reason:  "a pod in the network of the node has no network of its own (RES-22)",
			kubelet: regexp.MustCompile(`^pods\[host\]\.network\.`),
		},
		{
			reason:  "interfaces of other tests that come and go",
			kubelet: regexp.MustCompile(`^node\.network\.interfaces\[`),
			herald:  regexp.MustCompile(`^node\.network\.interfaces\[`),
		},
	}
	valueDifferences = []difference{
		{
			reason:  "Herald counts tasks, which the limit of PIDs is about, also those of the sandbox; the kubelet counts processes of containers",
			kubelet: regexp.MustCompile(`process_count$`),
		},
	}
	seriesDifferences = []difference{
		{
			reason:  "the limit of swap, see above",
			kubelet: regexp.MustCompile(`^container_swap_limit_bytes\{`),
		},
	}
)
