package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/view"
)

// historyFlags show the past as sparklines.
type historyFlags struct {
	duration time.Duration // 0: the present
}

// maxHistory is how far back the agent remembers, minHistory the time of which sparklines make sense.
const maxHistory, minHistory = 24 * time.Hour, time.Hour

func (f *historyFlags) bindHistory(command *cobra.Command) {
	command.Flags().DurationVar(&f.duration, "history", 0, "draw the last hours, at most the last 24; --history=6h draws 6")
	command.Flags().Lookup("history").NoOptDefVal = maxHistory.String()
}

func (f *historyFlags) checkHistory() error {
	if f.duration != 0 && (f.duration < minHistory || f.duration > maxHistory) {
		return usageErrorf("--history %v: must be between %v and %v", f.duration, minHistory, maxHistory)
	}
	return nil
}

func (f *historyFlags) parameters() url.Values { return url.Values{"since": {f.duration.String()}} }

// Columns of sparklines.
const (
	nodeColumns = 48
	podColumns  = 24
)

func (o *topNodeOptions) showHistory(ctx context.Context, stdout io.Writer) error {
	history, err := o.client().LoadHistory(ctx, o.parameters())
	if err != nil {
		return err
	}
	return o.print(stdout, history, func() error { return printNodeHistory(stdout, &history, newChart(time.Now(), o.duration, nodeColumns)) })
}

// printNodeHistory prints a line for each signal. All of them are shares.
func printNodeHistory(out io.Writer, history *view.LoadHistory, c chart) error {
	lines := [][]string{{"SIGNAL", c.title(), "LAST", "MEAN", "MAX"}}
	for _, signal := range []struct{ label, name string }{
		{"saturation", "saturation"}, {"cpu", "cpu"}, {"memory", "memory"}, {"disk", "disk"},
		{"memory pressure", "memoryPressure"}, {"io pressure", "ioPressure"},
	} {
		line, largest, mean, last := c.sparkline(history, valuesOf(history, signal.name), 1)
		lines = append(lines, []string{signal.label, line, formatKnownShare(last), formatKnownShare(mean), formatKnownShare(largest)})
	}
	return table.NewGrid(out).Print(lines...)
}

// title says what the columns are.
func (c chart) title() string {
	return fmt.Sprintf("SINCE %s, %s EACH", formatClock(c.from, time.Now())[:len("15:04")], formatDuration(c.width))
}

func formatKnownShare(share float64) string {
	if math.IsNaN(share) {
		return notKnown
	}
	return formatShare(&share)
}

// showHistory prints a line for each pod. An object is printed for each pod.
func (o *topPodsOptions) showHistory(ctx context.Context, stdout io.Writer, pods []view.PodView) error {
	agent, c := o.client(), newChart(time.Now(), o.duration, podColumns)
	objects := &objectPrinter{out: stdout, format: o.format}
	lines := [][]string{{"NAME", "CPU " + c.title(), "MAX", "MEMORY " + c.title(), "MAX"}}
	if o.noHeaders {
		lines = nil
	}
	for i := range pods {
		metadata := &pods[i].Metadata
		parameters := o.parameters()
		parameters.Set("namespace", metadata.Namespace)
		parameters.Set("pod", metadata.Name)
		history, err := agent.LoadHistory(ctx, parameters)
		if err != nil {
			return err
		}
		if o.format.isObject() {
			if err := objects.print(history); err != nil {
				return err
			}
			continue
		}
		cpu, cpuMax, _, _ := c.sparkline(&history, valuesOf(&history, "cpuMax"), 0)
		memory, memoryMax, _, _ := c.sparkline(&history, valuesOf(&history, "memoryMax"), 0)
		line := []string{table.Printable(metadata.Name), cpu, notKnown, memory, notKnown}
		if !math.IsNaN(cpuMax) {
			line[2] = formatMillicores(cpuMax)
		}
		if !math.IsNaN(memoryMax) {
			line[4] = formatMebibytes(memoryMax)
		}
		lines = append(lines, line)
	}
	if o.format.isObject() {
		return nil
	}
	if o.allNamespaces {
		lines = o.addNamespaces(lines, pods)
	}
	return table.NewGrid(stdout).Print(lines...)
}

// addNamespaces adds the first column.
func (o *topPodsOptions) addNamespaces(lines [][]string, pods []view.PodView) [][]string {
	offset := len(lines) - len(pods) // the header
	for i := range lines {
		namespace := "NAMESPACE"
		if i >= offset {
			namespace = table.Printable(pods[i-offset].Metadata.Namespace)
		}
		lines[i] = slices.Insert(lines[i], 0, namespace)
	}
	return lines
}
