// Package table prints pods like kubectl get pods: the same columns and texts. The API server computes them for kubectl in code
// that cannot be imported.
package table

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Options select the columns.
type Options struct {
	Namespaces bool // starts with the namespace
	Wide       bool
	NoHeader   bool
}

// Printer writes tables aligned like kubectl's. It keeps the column widths, so that later rows line up with earlier ones.
type Printer struct {
	out     io.Writer
	options Options
	widths  []int
	started bool
}

// NewPrinter returns a printer that writes the header before the first rows.
func NewPrinter(out io.Writer, options Options) *Printer { return &Printer{out: out, options: options} }

// The minimum width of a column, and the space after its longest cell.
const minWidth, padding = 6, 3

// Print writes the rows.
func (p *Printer) Print(rows ...Row) error {
	var lines [][]string
	if !p.started && !p.options.NoHeader {
		lines = append(lines, headers(p.options))
	}
	p.started = true
	for _, row := range rows {
		lines = append(lines, row.cells(p.options))
	}
	p.widen(lines)
	var text strings.Builder
	for _, cells := range lines {
		for column, cell := range cells[:len(cells)-1] {
			text.WriteString(cell + strings.Repeat(" ", p.widths[column]-utf8.RuneCountInString(cell)))
		}
		text.WriteString(cells[len(cells)-1] + "\n")
	}
	_, err := io.WriteString(p.out, text.String())
	return err
}

// widen widens the columns to fit the lines.
func (p *Printer) widen(lines [][]string) {
	for _, cells := range lines {
		for column, cell := range cells {
			if column == len(p.widths) {
				p.widths = append(p.widths, minWidth)
			}
			p.widths[column] = max(p.widths[column], utf8.RuneCountInString(cell)+padding)
		}
	}
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
