package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/internal/table"
)

// lines prints one line for each change, for files and pipes.
type lines struct{ output }

func newLines(out io.Writer, header []string) *lines {
	l := &lines{output: output{writer: out}}
	l.print(strings.Join(header, "\n") + "\n")
	return l
}

func (l *lines) tell(text string, age time.Duration) {
	l.print(fmt.Sprintf("%5.1fs  %s\n", age.Seconds(), text))
}

func (l *lines) begin(shown *scene, age time.Duration) { l.print(stepLine(shown, age)) }

func (l *lines) explain(shown *scene) {
	for _, text := range shown.evidence {
		l.print("        " + table.Printable(text) + "\n")
	}
}

func (*lines) draw(*scene, time.Time)    {}
func (*lines) resized() <-chan os.Signal { return nil }
func (*lines) close()                    {}

// stepLine returns the line about the begin of a step.
func stepLine(shown *scene, age time.Duration) string {
	return fmt.Sprintf("%5.1fs  %d/%d %s\n", age.Seconds(), shown.number, shown.total, shown.text)
}

// podLine returns the line about a change of a pod.
func podLine(event watch.Event, now time.Time) (name, text string) {
	row := table.NewRow(event.Object.(*v1.Pod), now)
	if event.Type == watch.Deleted {
		return row.Name, fmt.Sprintf("%-12s gone", row.Name)
	}
	restarts, _, _ := strings.Cut(row.Restarts, " ")
	return row.Name, fmt.Sprintf("%-12s %-5s %-18s restarts %s", row.Name, row.Ready, row.Status, restarts)
}

// recordLine returns the line about a change of an alert or a manifest, or about an action. It is empty if there is nothing to say.
func recordLine(record *history.Record) string {
	name, change := describeRecord(record)
	switch {
	case name == "":
		return ""
	case record.Alert != nil:
		return strings.TrimRight(fmt.Sprintf("alert %s %s  %s", name, change, table.Printable(record.Alert.Summary)), " ")
	case record.Source != nil:
		return fmt.Sprintf("manifest %s %s", table.Printable(name), change)
	default:
		return fmt.Sprintf("alert %s %s", name, change)
	}
}
