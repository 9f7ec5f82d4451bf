package bench

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is all that one run measured. Workers and Curve may be empty.
type Report struct {
	Rows    []Row
	Workers []WorkersResult
	Curve   []Point
}

// Print writes the report for people, and then a line `RATIO <name> <value>` for each row for machines.
func (r Report) Print(out io.Writer) error {
	for _, table := range []table{rowTable(r.Rows), workersTable(r.Workers)} {
		if err := table.print(out); err != nil {
			return fmt.Errorf("print the results: %w", err)
		}
	}
	for _, row := range r.Rows {
		fmt.Fprintf(out, "RATIO %s %.2f\n", row.Name, row.Value)
	}
	return nil
}

// table is cells, the headings first.
type table [][]string

func rowTable(rows []Row) table {
	t := table{{"name", "kubelet", "Herald", "ratio", "goal", "what"}}
	for _, r := range rows {
		t = append(t, []string{r.Name, r.Kubelet, r.Herald, number(r.Value), r.verdict(), r.What})
	}
	return t
}

func workersTable(results []WorkersResult) table {
	t := table{{"Workers", "burst, 0ms added", "5ms", "20ms", "readiness behind others, median", "95th percentile"}}
	for _, r := range results {
		t = append(t, []string{
			fmt.Sprint(r.Workers), seconds(r.Bursts[0]), seconds(r.Bursts[1]), seconds(r.Bursts[2]),
			seconds(r.ReadinessMedian), seconds(r.Readiness95),
		})
	}
	return t
}

// print writes aligned columns. A table without rows is left out.
func (t table) print(out io.Writer) error {
	if len(t) < 2 {
		return nil
	}
	columns := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range t {
		fmt.Fprintln(columns, strings.Join(row, "\t"))
	}
	fmt.Fprintln(columns)
	return columns.Flush()
}

// markdown writes the table for a page.
func (t table) markdown() string {
	var out strings.Builder
	for i, row := range t {
		fmt.Fprintf(&out, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&out, "|%s\n", strings.Repeat(" --- |", len(row)))
		}
	}
	return out.String()
}

// number writes large values without a fraction.
func number(value float64) string {
	if value >= 1000 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.2f", value)
}

// Write makes benchmarks.md and benchmarks.svg in the folder. command is what a reader types to get numbers of their own.
func (r Report) Write(folder, command string) error {
	page := filepath.Join(folder, "benchmarks.md")
	if err := os.WriteFile(page, []byte(r.page(command)), 0o644); err != nil {
		return fmt.Errorf("write the benchmarks: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "benchmarks.svg"), []byte(plot(r.Curve)), 0o644); err != nil {
		return fmt.Errorf("draw the benchmarks: %w", err)
	}
	return nil
}

func (r Report) page(command string) string {
	var out strings.Builder
	fmt.Fprintf(&out, `# Beside the kubelet

Written by %[1]s on %[2]s; every number is from that one run. Both sides ran in one process, in turns, with the same pods,
the same statuses, the same client settings and the same API server (kube-apiserver and etcd, on the same machine); numbers
are medians. Where nothing else is said, the ratio is the kubelet's time divided by Herald's: above 1, Herald is faster.
Absolute times are this machine's. For the rows agent_*, each side was the whole program in a process of its own, with a
containerd of its own and the limits that its API client has by default, 50 requests a second and 100 at once.

Machine: %[3]s.

![Pods that turn Running at once, and the time until all are visible](benchmarks.svg)

%[4]s
`, "`"+command+"`", time.Now().UTC().Format(time.DateOnly), machine(), rowTable(r.Rows).markdown())
	if len(r.Workers) > 0 {
		fmt.Fprintf(&out, `## Requests in flight

What Herald's setting %s does: to the time until a burst is visible, by what is added to each request, and to the time until
a readiness change behind many others is visible.

%s`, "`status.Config.Workers`", workersTable(r.Workers).markdown())
	}
	return out.String()
}

// machine says where the numbers come from, as far as Linux tells.
func machine() string {
	return fmt.Sprintf("%s, %d cores, Linux %s, %s", processor(), runtime.NumCPU(), kernel(), runtime.Version())
}

func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(info)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "of unknown version"
	}
	return strings.TrimSpace(string(release))
}
