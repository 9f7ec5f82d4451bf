package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
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
