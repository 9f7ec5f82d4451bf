package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/view"
)

// printNodeLoad prints the screen of 'herald top node'.
func printNodeLoad(out io.Writer, node *view.NodeView, now time.Time) error {
	load := node.Load
	if load == nil {
		_, err := fmt.Fprintf(out, "%s: the agent does not measure its load\n", table.Printable(node.Metadata.Name))
		return err
	}
	cores := notKnown
	if load.CPU.Cores != nil {
		cores = formatMillicores(*load.CPU.Cores)
	}
	sections := [][][]string{
		{
			{"NODE", "LOAD", "CPU(cores)", "MEMORY(bytes)", "AVAILABLE", "OOM KILLS"},
			{
				table.Printable(node.Metadata.Name), formatLoad(load, now), cores,
				formatBytes(load.Memory.WorkingSetBytes), formatBytes(load.Memory.AvailableBytes), formatCount(load.Memory.OOMKills),
			},
		},
		signalLines(load),
		fileSystemLines(load.FileSystems),
	}
	for i, lines := range sections {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := table.NewGrid(out).Print(lines...); err != nil {
			return err
		}
	}
	return nil
}

func signalLines(load *view.NodeLoad) [][]string {
	lines := [][]string{{"SIGNAL", "1m", "5m", "15m", "MAX", "PRESSURE"}}
	share := func(n float64) string { return formatShare(&n) }
	for _, signal := range []struct {
		name     string
		windows  *view.Windows
		format   func(float64) string
		pressure *view.Pressure
	}{
		{"cpu", load.CPU.Use, share, load.CPU.Pressure},
		{"  iowait", load.CPU.IOWait, share, nil},
		{"  steal", load.CPU.Steal, share, nil},
		{"memory", load.Memory.Use, share, load.Memory.Pressure},
		{"io", nil, share, load.IO.Pressure},
		{"pids", load.PIDs, share, nil},
		{"received", load.Network.ReceivedBytesPerSecond, formatRate, nil},
		{"sent", load.Network.SentBytesPerSecond, formatRate, nil},
	} {
		line := []string{signal.name, notKnown, notKnown, notKnown, notKnown, ""}
		if w := signal.windows; w != nil {
			line = []string{
				signal.name, signal.format(w.Last1m.Mean), signal.format(w.Last5m.Mean), signal.format(w.Last15m.Mean),
				signal.format(w.Last15m.Max), "",
			}
		}
		if signal.name == "cpu" || signal.name == "memory" || signal.name == "io" {
			line[5] = formatSome(signal.pressure)
		}
		lines = append(lines, line)
	}
	return lines
}

func fileSystemLines(fileSystems []view.FileSystemLoad) [][]string {
	lines := [][]string{{"FILE SYSTEM", "USE", "INODES", "AVAILABLE", "FULL IN"}}
	for _, fileSystem := range mergeFileSystems(fileSystems) {
		line := []string{
			table.Printable(fileSystem.Name), formatShare(fileSystem.Use), formatShare(fileSystem.InodeUse),
			formatBytes(fileSystem.AvailableBytes), formatHours(fileSystem.HoursToFull),
		}
		if fileSystem.ReadOnly {
			line = append(line, "read-only")
		}
		lines = append(lines, line)
	}
	if len(lines) == 1 {
		lines = append(lines, []string{noSample})
	}
	return lines
}

func formatCount(n *int64) string {
	if n == nil {
		return notKnown
	}
	return fmt.Sprint(*n)
}

// sortByLoad sorts pods by namespace and name, or by what they use, largest first; pods that were not measured come last.
func sortByLoad(pods []view.PodView, key string) {
	value := func(pod *view.PodView) float64 {
		switch {
		case pod.Load == nil || key == "":
			return -1
		case key == "cpu":
			return usedMean(pod.Load.CPU.Cores)
		default:
			return usedMean(pod.Load.Memory.WorkingSetBytes)
		}
	}
	slices.SortStableFunc(pods, func(a, b view.PodView) int {
		return cmp.Or(cmp.Compare(value(&b), value(&a)), cmp.Compare(a.Metadata.Namespace, b.Metadata.Namespace),
			cmp.Compare(a.Metadata.Name, b.Metadata.Name))
	})
}

// usedMean returns the mean of the last minute, or -1 if it is not known.
func usedMean(windows *view.Windows) float64 {
	if windows == nil {
		return -1
	}
	return windows.Last1m.Mean
}

// printPods prints a line for each pod, or for each of its containers.
func (o *topPodsOptions) printPods(out io.Writer, pods []view.PodView) error {
	header := []string{"NAME"}
	if o.containers {
		header = []string{"POD", "NAME"}
	}
	header = append(header, "CPU(cores)", "MEMORY(bytes)", "CPU/LIMIT", "MEMORY/LIMIT", "THROTTLED")
	if o.allNamespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	var lines [][]string
	if !o.noHeaders {
		lines = append(lines, header)
	}
	for i := range pods {
		lines = append(lines, o.podLines(&pods[i])...)
	}
	return table.NewGrid(out).Print(lines...)
}

func (o *topPodsOptions) podLines(pod *view.PodView) (lines [][]string) {
	missing := notRunning
	if hasRunning(&pod.Local.Status) {
		missing = noSample
	}
	var prefix []string
	if o.allNamespaces {
		prefix = append(prefix, table.Printable(pod.Metadata.Namespace))
	}
	prefix = append(prefix, table.Printable(pod.Metadata.Name))
	line := func(usage *view.UsageLoad, names ...string) {
		lines = append(lines, slices.Concat(prefix, names, usageCells(usage, missing)))
	}
	switch {
	case o.containers && (pod.Load == nil || len(pod.Load.Containers) == 0):
		line(nil, "")
	case pod.Load == nil:
		line(nil)
	case !o.containers:
		line(&pod.Load.UsageLoad)
	default:
		for i := range pod.Load.Containers {
			line(&pod.Load.Containers[i].UsageLoad, table.Printable(pod.Load.Containers[i].Name))
		}
	}
	return lines
}

func hasRunning(status *v1.PodStatus) bool {
	for _, statuses := range [...][]v1.ContainerStatus{
		status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses,
	} {
		if slices.ContainsFunc(statuses, func(s v1.ContainerStatus) bool { return s.State.Running != nil }) {
			return true
		}
	}
	return false
}

// usageCells returns the columns from CPU on. Nil means that there is no sample; missing says so.
func usageCells(usage *view.UsageLoad, missing string) []string {
	if usage == nil {
		usage = &view.UsageLoad{}
	}
	cells := []string{missing, missing, formatShare(usage.CPU.OfLimit), formatShare(usage.Memory.OfLimit), notKnown}
	if usage.CPU.Cores != nil {
		cells[0] = formatMillicores(usage.CPU.Cores.Last1m.Mean)
	}
	if usage.Memory.WorkingSetBytes != nil {
		cells[1] = formatMebibytes(usage.Memory.WorkingSetBytes.Last1m.Mean)
	}
	if usage.CPU.Throttled != nil {
		cells[4] = formatShare(&usage.CPU.Throttled.Last1m.Mean)
	}
	return cells
}
