package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/view"
)

// scene is what the live view shows.
type scene struct {
	page   string
	pods   []podRow
	alerts []view.Alert
	// number and text are of the current step, and of how many.
	number, total int
	text          string
	evidence      []string
	try           []string
}

// podRow is the row of a pod.
type podRow struct {
	table.Row
	class explain.Class
	why   string
}

// sortRows sorts pods as the page does: what is wrong first, what has ended last.
func sortRows(rows []podRow) {
	ranks := map[explain.Class]int{explain.Problem: 0, explain.Progress: 1, explain.Healthy: 2, explain.Ended: 3}
	slices.SortFunc(rows, func(a, b podRow) int {
		return cmp.Or(cmp.Compare(ranks[a.class], ranks[b.class]), strings.Compare(a.Name, b.Name))
	})
}

func styleOf(class explain.Class) style {
	switch class {
	case explain.Healthy:
		return good
	case explain.Ended:
		return ended
	case explain.Progress:
		return starting
	default:
		return bad
	}
}

// terminalSize is the size of a terminal. Zero values mean that it is unknown and everything is shown.
type terminalSize struct{ columns, rows int }

// frame returns the lines of the live view.
func (s *scene) frame(size terminalSize, now time.Time) []line {
	sections := [...][]line{
		sectionHeader: s.header(size.columns), sectionPods: podLines(s.pods, size.columns), sectionAlerts: alertLines(s.alerts, now),
		sectionStory: s.story(size.columns), sectionEvidence: evidenceLines(s.evidence, size.columns), sectionTry: tryLines(s.try, size.columns),
	}
	lines := fit(sections[:], size.rows)
	for i := range lines {
		lines[i] = lines[i].cut(size.columns)
	}
	return lines
}

// The sections of the live view, in the order of the screen.
const (
	sectionHeader = iota
	sectionPods
	sectionAlerts
	sectionStory
	sectionEvidence
	sectionTry
)

// Sections are shortened in this order, from the end, if the terminal is too low.
var leastImportant = []int{sectionEvidence, sectionTry, sectionAlerts, sectionHeader, sectionStory, sectionPods}

// fit joins the sections to at most that many lines, with empty lines between them if there is room. Zero means that there is.
func fit(sections [][]line, rows int) []line {
	total := 0
	for _, section := range sections {
		total += len(section)
	}
	for _, section := range leastImportant {
		if rows > 0 && total > rows {
			lines := sections[section]
			sections[section] = lines[:max(0, len(lines)-(total-rows))]
			total -= len(lines) - len(sections[section])
		}
	}
	room := rows - total
	var lines []line
	for i, section := range sections {
		if len(section) == 0 {
			continue
		}
		// What is said about the step stays next to it.
		if len(lines) > 0 && i != sectionEvidence && (rows == 0 || room > 0) {
			lines = append(lines, nil)
			room--
		}
		lines = append(lines, section...)
	}
	return lines
}

func (s *scene) header(columns int) []line {
	var lines []line
	for _, text := range wrap("Herald runs four pods as processes of this machine: no root, no cluster.", columns, "") {
		lines = append(lines, line{{text, strong}})
	}
	for _, text := range wrap("In a browser: "+s.page, columns, "") {
		lines = append(lines, line{{text, plain}})
	}
	return lines
}

// story returns the lines about what happens now.
func (s *scene) story(columns int) []line {
	label := fmt.Sprintf("%d/%d ", s.number, s.total)
	indent := strings.Repeat(" ", len(label))
	var lines []line
	for i, text := range wrap(label+s.text, columns, indent) {
		if i == 0 {
			lines = append(lines, line{{label, dim}, {strings.TrimPrefix(text, label), strong}})
			continue
		}
		lines = append(lines, line{{text, strong}})
	}
	return lines
}

// evidenceLines returns what the agent says about the step. The first character of a line says what it is, as that of 'herald explain'.
func evidenceLines(texts []string, columns int) []line {
	const margin = "  "
	styles := map[byte]style{'$': dim, '!': bad, '-': bad, '+': good, '=': good}
	var lines []line
	for _, text := range texts {
		if text == "" {
			continue
		}
		for _, part := range wrap(margin+table.Printable(text), columns, margin+"  ") {
			lines = append(lines, line{{part, styles[text[0]]}})
		}
	}
	return lines
}

// tryLines returns what a user can type in a second terminal.
func tryLines(commands []string, columns int) []line {
	label, indent := "Try  ", "     "
	var lines []line
	for i, command := range commands {
		first := indent
		if i == 0 {
			first = label
		}
		for n, text := range wrap(first+command, columns, indent) {
			if i == 0 && n == 0 {
				lines = append(lines, line{{label, dim}, {strings.TrimPrefix(text, label), plain}})
				continue
			}
			lines = append(lines, line{{text, plain}})
		}
	}
	return append(lines, line{{"Ctrl-C stops the pods and removes everything.", dim}})
}

// Widths of the terminal below which the column WHY has its own line, and that of the columns RESTARTS and AGE.
const (
	narrowColumns = 64
	wideColumns   = 100
)

// podLines returns the table of the pods, as 'herald get pods -o why' without the columns that do not fit.
func podLines(rows []podRow, columns int) []line {
	isNarrow, isWide := columns > 0 && columns < narrowColumns, columns == 0 || columns >= wideColumns
	cells := [][]string{{"NAME", "READY", "STATUS", "RESTARTS", "AGE", "WHY"}}
	for i := range rows {
		row := &rows[i]
		restarts, _, _ := strings.Cut(row.Restarts, " ")
		cells = append(cells, []string{row.Name, row.Ready, row.Status, restarts, row.Age, row.why})
	}
	for i, row := range cells {
		switch {
		case isNarrow:
			cells[i] = row[:3]
		case !isWide:
			cells[i] = slices.Delete(row, 3, 5)
		}
	}
	var lines []line
	for i, texts := range align(cells) {
		if i == 0 {
			lines = append(lines, line{{strings.Join(texts, ""), dim}})
			continue
		}
		row := &rows[i-1]
		lines = append(lines, line{{texts[0], plain}, {texts[1] + texts[2], styleOf(row.class)}, {strings.Join(texts[3:], ""), plain}})
		if isNarrow {
			lines = append(lines, line{{"  " + row.why, plain}})
		}
	}
	return lines
}

// maxAlerts is the maximum number of alerts shown.
const maxAlerts = 3

// alertLines returns the table of alerts, worst first. Those that are not certain yet are left out.
func alertLines(shown []view.Alert, now time.Time) []line {
	shown = slices.DeleteFunc(slices.Clone(shown), func(a view.Alert) bool { return a.State == alert.Pending })
	if len(shown) == 0 {
		return []line{{{"No alerts.", dim}}}
	}
	view.SortAlerts(shown)
	shown = shown[:min(len(shown), maxAlerts)]
	cells := [][]string{{"ALERT", "STATE", "OBJECT", "SINCE", "SUMMARY"}}
	for i := range shown {
		a := &shown[i]
		since := a.StartsAt
		if a.State == alert.Resolved {
			since = a.EndsAt
		}
		cells = append(cells, []string{
			table.Printable(a.Labels[alert.LabelName]), string(a.State), table.Printable(a.Labels[alert.LabelPod]),
			duration.HumanDuration(max(0, now.Sub(since))), table.Printable(a.Annotations[alert.AnnotationSummary]),
		})
	}
	var lines []line
	for i, texts := range align(cells) {
		if i == 0 {
			lines = append(lines, line{{strings.Join(texts, ""), dim}})
			continue
		}
		state := bad
		if shown[i-1].State == alert.Resolved {
			state = good
		}
		lines = append(lines, line{{texts[0], plain}, {texts[1], state}, {strings.Join(texts[2:], ""), plain}})
	}
	return lines
}

// align pads all cells but the last ones of each row to the width of their column, with two spaces between columns.
func align(rows [][]string) [][]string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		for i := range row[:len(row)-1] {
			row[i] += strings.Repeat(" ", widths[i]-utf8.RuneCountInString(row[i])+2)
		}
	}
	return rows
}
