package table

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Options say which columns a table has.
type Options struct {
	Namespaces bool // begins with the namespace
	Wide       bool
	NoHeader   bool
}

// Printer writes tables as kubectl aligns them. It remembers how wide its columns are, so that rows which come later stand
// below those before them.
type Printer struct {
	out     io.Writer
	options Options
	widths  []int
	begun   bool
}

// NewPrinter makes a printer whose first rows come below the names of the columns.
func NewPrinter(out io.Writer, options Options) *Printer { return &Printer{out: out, options: options} }

// The least width of a column, and the space after what is in it.
const minWidth, padding = 6, 3

// Print writes the rows.
func (p *Printer) Print(rows ...Row) error {
	var lines [][]string
	if !p.begun && !p.options.NoHeader {
		lines = append(lines, headers(p.options))
	}
	p.begun = true
	for _, row := range rows {
		lines = append(lines, row.cells(p.options))
	}
	p.fit(lines)
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

// fit widens the columns for what is to be written.
func (p *Printer) fit(lines [][]string) {
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
