package table

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Options say which columns a table has.
type Options struct {
	Namespaces bool // begins with the namespace
	Wide       bool
	NoHeader   bool
}

// Print writes the rows as kubectl aligns them: three spaces between columns.
func Print(out io.Writer, rows []Row, options Options) error {
	lines := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	if !options.NoHeader {
		fmt.Fprintln(lines, strings.Join(headers(options), "\t"))
	}
	for _, row := range rows {
		fmt.Fprintln(lines, strings.Join(row.cells(options), "\t"))
	}
	return lines.Flush()
}

func headers(options Options) []string {
	cells := []string{"NAME", "READY", "STATUS", "RESTARTS", "AGE"}
	if options.Namespaces {
		cells = append([]string{"NAMESPACE"}, cells...)
	}
	if options.Wide {
		cells = append(cells, "IP", "NODE", "NOMINATED NODE", "READINESS GATES")
	}
	return cells
}

func (r Row) cells(options Options) []string {
	cells := []string{r.Name, r.Ready, r.Status, r.Restarts, r.Age}
	if options.Namespaces {
		cells = append([]string{r.Namespace}, cells...)
	}
	if options.Wide {
		cells = append(cells, r.IP, r.Node, r.NominatedNode, r.ReadinessGates)
	}
	return cells
}
