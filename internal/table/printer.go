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
	// Extra has the headers of further columns, whose cells are in Row.Extra.
	Extra []string
}

// Printer writes pods as tables aligned like kubectl's.
type Printer struct {
	grid    *Grid
	options Options
	started bool
}

// NewPrinter returns a printer that writes the header before the first rows.
func NewPrinter(out io.Writer, options Options) *Printer {
	return &Printer{grid: NewGrid(out), options: options}
}

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
	return p.grid.Print(lines...)
}

// Grid writes lines of cells aligned like kubectl's. It keeps the column widths, so that later lines align with earlier ones.
type Grid struct {
	out    io.Writer
	widths []int
}

// NewGrid returns a grid without lines. Its lines have at least one cell.
func NewGrid(out io.Writer) *Grid { return &Grid{out: out} }

// The minimum width of a column, and the space after its longest cell.
const minWidth, padding = 6, 3

// Print writes the lines. Empty cells at the end of a line take no space.
func (g *Grid) Print(lines ...[]string) error {
	g.widen(lines)
	var text strings.Builder
	for _, cells := range lines {
		last := len(cells) - 1
		for last > 0 && cells[last] == "" {
			last--
		}
		for column, cell := range cells[:last] {
			text.WriteString(cell + strings.Repeat(" ", g.widths[column]-utf8.RuneCountInString(cell)))
		}
		text.WriteString(cells[last] + "\n")
	}
	_, err := io.WriteString(g.out, text.String())
	return err
}

// widen widens the columns to fit the lines.
func (g *Grid) widen(lines [][]string) {
	for _, cells := range lines {
		for column, cell := range cells {
			if column == len(g.widths) {
				g.widths = append(g.widths, minWidth)
			}
			g.widths[column] = max(g.widths[column], utf8.RuneCountInString(cell)+padding)
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
	return append(cells, options.Extra...)
}

func (r Row) cells(options Options) []string {
	cells := []string{r.Name, r.Ready, r.Status, r.Restarts, r.Age}
	if options.Namespaces {
		cells = append([]string{r.Namespace}, cells...)
	}
	if options.Wide {
		cells = append(cells, r.IP, r.Node, r.NominatedNode, r.ReadinessGates)
	}
	return append(cells, r.Extra...)
}
