package demo

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/view"
)

// screen shows the pods: as a live table on a terminal, as one line per change otherwise.
type screen struct {
	out      io.Writer
	terminal *os.File // nil if the output is not a terminal
	resized  chan os.Signal
	header   func() []string
	printed  map[string]string // the last line of each pod
	closed   bool              // the output was closed
}

func newScreen(out io.Writer, header func() []string) *screen {
	s := &screen{out: out, header: header, printed: map[string]string{}, resized: make(chan os.Signal, 1)}
	terminalType := os.Getenv("TERM")
	if file, isFile := out.(*os.File); isFile && terminalType != "" && terminalType != "dumb" && term.IsTerminal(int(file.Fd())) {
		s.terminal = file
	}
	if s.terminal == nil {
		s.print(strings.Join(header(), "\n") + "\n")
		return s
	}
	signal.Notify(s.resized, syscall.SIGWINCH)
	s.print("\x1b[2J")
	return s
}

func (s *screen) close() { signal.Stop(s.resized) }

func (s *screen) print(text string) {
	if _, err := io.WriteString(s.out, text); err != nil {
		s.closed = true
	}
}

// draw draws all pods, the alerts and the latest events on a terminal.
func (s *screen) draw(pods []*v1.Pod, alerts []string, events []v1.Event, now time.Time) {
	if s.terminal == nil {
		return
	}
	var size terminalSize
	if columns, rows, err := term.GetSize(int(s.terminal.Fd())); err == nil {
		size = terminalSize{columns, rows}
	}
	const home, clearLine, clearBelow = "\x1b[H", "\x1b[K", "\x1b[J"
	lines := size.fit(s.header(), slices.Concat(podLines(pods, now), alerts), eventLines(events, now))
	s.print(home + strings.Join(lines, clearLine+"\n") + clearLine + "\n" + clearBelow)
}

// printEvent prints the change of a pod if the output is not a terminal.
func (s *screen) printEvent(event watch.Event, age time.Duration, now time.Time) {
	if s.terminal != nil {
		return
	}
	row := table.NewRow(event.Object.(*v1.Pod), now)
	restarts, _, _ := strings.Cut(row.Restarts, " ")
	line := fmt.Sprintf("%-12s %-5s %-18s restarts %s", row.Name, row.Ready, row.Status, restarts)
	if event.Type == watch.Deleted {
		line = fmt.Sprintf("%-12s gone", row.Name)
	}
	if s.printed[row.Name] == line {
		return
	}
	s.printed[row.Name] = line
	s.print(fmt.Sprintf("%5.1fs  %s\n", age.Seconds(), line))
}

// printRecord prints a change of an alert, or an action, if the output is not a terminal.
func (s *screen) printRecord(record *history.Record, age time.Duration) {
	if s.terminal != nil {
		return
	}
	if name, change := describeRecord(record); name != "" {
		text := ""
		if record.Alert != nil {
			text = table.Printable(record.Alert.Summary)
		}
		s.print(strings.TrimRight(fmt.Sprintf("%5.1fs  alert %s %s  %s", age.Seconds(), name, change, text), " ") + "\n")
	}
}

// maxAlerts is the maximum number of alerts shown.
const maxAlerts = 4

// alertLines returns the table of alerts, worst first, below an empty line.
func alertLines(alerts []view.Alert, now time.Time) []string {
	alerts = slices.DeleteFunc(slices.Clone(alerts), func(a view.Alert) bool { return a.State == alert.Pending })
	view.SortAlerts(alerts)
	lines := [][]string{{"ALERT", "STATE", "OBJECT", "SINCE", "SUMMARY"}}
	for i := range alerts[:min(len(alerts), maxAlerts)] {
		a := &alerts[i]
		since := a.StartsAt
		if a.State == alert.Resolved {
			since = a.EndsAt
		}
		lines = append(lines, []string{
			table.Printable(a.Labels[alert.LabelName]), string(a.State), table.Printable(a.Labels[alert.LabelPod]),
			duration.HumanDuration(max(0, now.Sub(since))), table.Printable(a.Annotations[alert.AnnotationSummary]),
		})
	}
	var text strings.Builder
	_ = table.NewGrid(&text).Print(lines...) // a strings.Builder never fails
	return append([]string{""}, strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")...)
}

// terminalSize is the size of a terminal. Zero values mean that it is unknown and everything is shown.
type terminalSize struct{ columns, rows int }

// fit returns the lines of one frame. Lines of the header are wrapped, because users copy them; others are cut. In a low
// terminal, pods take precedence over the header, and of the events only the newest are shown. The last line is for the cursor.
func (s terminalSize) fit(header, pods, events []string) []string {
	header = s.wrap(header)
	height := s.rows - 1
	if s.rows == 0 {
		height = len(header) + len(pods) + 1 + len(events)
	}
	var lines []string
	if len(header)+len(pods) <= height {
		lines = append(lines, header...)
	}
	lines = append(lines, pods[:max(0, min(len(pods), height-len(lines)))]...)
	if room := height - len(lines) - 1; room > 1 && len(events) > 0 {
		lines = append(lines, "", events[0])
		lines = append(lines, events[max(1, len(events)-room+1):]...)
	}
	for i := range lines {
		lines[i] = s.cut(lines[i])
	}
	return lines
}

func (s terminalSize) wrap(lines []string) []string {
	var wrapped []string
	for _, line := range lines {
		rest := []rune(line)
		for s.columns > 0 && len(rest) > s.columns {
			wrapped = append(wrapped, string(rest[:s.columns]))
			rest = rest[s.columns:]
		}
		wrapped = append(wrapped, string(rest))
	}
	return wrapped
}

func (s terminalSize) cut(line string) string {
	if runes := []rune(line); s.columns > 0 && len(runes) > s.columns {
		return string(runes[:s.columns])
	}
	return line
}

// podLines returns the table of the pods.
func podLines(pods []*v1.Pod, now time.Time) []string {
	rows := make([]table.Row, 0, len(pods))
	for _, p := range pods {
		rows = append(rows, table.NewRow(p, now))
	}
	var text strings.Builder
	_ = table.NewPrinter(&text, table.Options{}).Print(rows...) // a strings.Builder never fails
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}

// maxEvents is the maximum number of events shown.
const maxEvents = 6

// eventLines returns the table of the latest warnings.
func eventLines(events []v1.Event, now time.Time) []string {
	events = slices.DeleteFunc(slices.Clone(events), func(event v1.Event) bool { return event.Type != v1.EventTypeWarning })
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintln(columns, "SEEN\tOBJECT\tREASON\tMESSAGE")
	for _, event := range events[max(0, len(events)-maxEvents):] {
		times := ""
		if event.Count > 1 {
			times = fmt.Sprintf(" (%d times)", event.Count)
		}
		fmt.Fprintf(columns, "%s\t%s\t%s\t%s%s\n", duration.HumanDuration(now.Sub(event.LastTimestamp.Time)),
			table.Printable(event.InvolvedObject.Name), table.Printable(event.Reason), table.Printable(event.Message), times)
	}
	_ = columns.Flush() // a strings.Builder never fails
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}
