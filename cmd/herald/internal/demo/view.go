package demo

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/heraldnode/herald/internal/table"
)

// view is how much a terminal shows. Zero: nobody knows, all is shown.
type view struct{ columns, rows int }

// fit makes one picture. Lines of the head are continued on the next, for they are there to be copied; others are cut off. In a
// low terminal the pods come first, then the head, then the events if there is room for all. The last line stays free, for the
// cursor.
func (v view) fit(head, pods, events []string) []string {
	head = v.wrap(head)
	room := v.rows - 1
	if v.rows == 0 {
		room = len(head) + len(pods) + 1 + len(events)
	}
	var lines []string
	if len(head)+len(pods) <= room {
		lines = append(lines, head...)
	}
	lines = append(lines, pods[:max(0, min(len(pods), room-len(lines)))]...)
	if len(lines)+1+len(events) <= room {
		lines = append(append(lines, ""), events...)
	}
	for i := range lines {
		lines[i] = v.cut(lines[i])
	}
	return lines
}

func (v view) wrap(lines []string) []string {
	var wrapped []string
	for _, line := range lines {
		rest := []rune(line)
		for v.columns > 0 && len(rest) > v.columns {
			wrapped = append(wrapped, string(rest[:v.columns]))
			rest = rest[v.columns:]
		}
		wrapped = append(wrapped, string(rest))
	}
	return wrapped
}

func (v view) cut(line string) string {
	if runes := []rune(line); v.columns > 0 && len(runes) > v.columns {
		return string(runes[:v.columns])
	}
	return line
}

// podLines are the table of the pods.
func podLines(pods []*v1.Pod, now time.Time) []string {
	rows := make([]table.Row, 0, len(pods))
	for _, p := range pods {
		rows = append(rows, table.NewRow(p, now))
	}
	var text strings.Builder
	_ = table.NewPrinter(&text, table.Options{}).Print(rows...) // a builder takes everything
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}

// maxEvents is how many of the last events are shown at most.
const maxEvents = 6

// eventLines say what went wrong last, and with whom; what went well is in the table.
func eventLines(events []v1.Event, now time.Time) []string {
	events = slices.DeleteFunc(slices.Clone(events), func(e v1.Event) bool { return e.Type != v1.EventTypeWarning })
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintln(columns, "SEEN\tOBJECT\tREASON\tMESSAGE")
	for _, e := range events[max(0, len(events)-maxEvents):] {
		times := ""
		if e.Count > 1 {
			times = fmt.Sprintf(" (%d times)", e.Count)
		}
		fmt.Fprintf(columns, "%s\t%s\t%s\t%s%s\n", duration.HumanDuration(now.Sub(e.LastTimestamp.Time)),
			table.Printable(e.InvolvedObject.Name), table.Printable(e.Reason), table.Printable(e.Message), times)
	}
	_ = columns.Flush() // a builder takes everything
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}
