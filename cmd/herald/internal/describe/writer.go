// Package describe formats a pod and a node in the layout of kubectl describe. All texts are safe for a terminal.
package describe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/heraldnode/herald/internal/table"
)

// writer writes indented lines, whose tabs become columns.
type writer struct {
	text    strings.Builder
	columns *tabwriter.Writer
}

func newWriter() *writer {
	w := &writer{}
	w.columns = tabwriter.NewWriter(&w.text, 0, 8, 2, ' ', 0)
	return w
}

func (w *writer) String() string {
	_ = w.columns.Flush() // a strings.Builder never fails
	return w.text.String()
}

// line writes cells, separated by tabs, at a level of indentation.
func (w *writer) line(level int, cells ...any) {
	texts := make([]string, 0, len(cells))
	for _, cell := range cells {
		texts = append(texts, table.Printable(fmt.Sprint(cell)))
	}
	fmt.Fprintln(w.columns, strings.Repeat("  ", level)+strings.Join(texts, "\t"))
}

// field writes "Name:  value".
func (w *writer) field(level int, name string, value any) { w.line(level, name+":", value) }

// fieldIf writes a field unless its value is empty.
func (w *writer) fieldIf(level int, name, value string) {
	if value != "" {
		w.field(level, name, value)
	}
}

// list writes the first value beside the name and the others below it.
func (w *writer) list(name string, values []string) {
	if len(values) == 0 {
		values = []string{none}
	}
	for i, value := range values {
		if i == 0 {
			w.field(0, name, value)
		} else {
			w.line(0, "", value)
		}
	}
}

// lines writes a text of several lines.
func (w *writer) lines(level int, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		w.line(level, line)
	}
}

const none = "<none>"

func orNone(text string) string {
	if text == "" {
		return none
	}
	return text
}

func (w *writer) labels(name string, labels map[string]string) {
	var values []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		values = append(values, key+"="+labels[key])
	}
	w.list(name, values)
}

// maxAnnotation is the width beyond which an annotation is shortened.
const maxAnnotation = 140

func (w *writer) annotations(annotations map[string]string) {
	var values []string
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		value := strings.TrimSuffix(annotations[key], "\n")
		switch {
		case key == v1.LastAppliedConfigAnnotation:
		case len(key)+len(value)+2 <= maxAnnotation && !strings.Contains(value, "\n"):
			values = append(values, key+": "+value)
		default:
			values = append(values, key+":")
			for line := range strings.SplitSeq(value, "\n") {
				if len(line) > maxAnnotation-2 {
					line = line[:maxAnnotation-2] + "..."
				}
				values = append(values, "  "+line)
			}
		}
	}
	w.list("Annotations", values)
}

func (w *writer) resources(level int, resources *v1.ResourceRequirements) {
	for _, group := range []struct {
		name string
		list v1.ResourceList
	}{{"Limits", resources.Limits}, {"Requests", resources.Requests}} {
		if len(group.list) > 0 {
			w.line(level, group.name+":")
		}
		w.resourceList(level+1, group.list)
	}
}

func (w *writer) resourceList(level int, list v1.ResourceList) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		w.field(level, string(name), quantity.String())
	}
}

func formatTime(t time.Time) string { return t.Local().Format(time.RFC1123Z) }

// since returns how long ago a time was, as kubectl does.
func since(t, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t))
}

// Event is an event about the object.
type Event struct {
	Type, Reason, Message string
	// FieldPath is the part of the object, such as spec.containers{web}.
	FieldPath string
	// From is the component that reported it.
	From        string
	Count       int
	First, Last time.Time
}

// events writes the events, oldest first. Nil means that they are not known.
func (w *writer) events(events []Event, now time.Time) {
	if events == nil {
		return
	}
	if len(events) == 0 {
		w.field(0, "Events", none)
		return
	}
	_ = w.columns.Flush() // the columns of the events are their own
	w.line(0, "Events:")
	w.line(1, "Type", "Reason", "Age", "From", "Message")
	w.line(1, "----", "------", "----", "----", "-------")
	for _, event := range events {
		age := since(event.First, now)
		if event.Count > 1 {
			age = fmt.Sprintf("%s (x%d over %s)", since(event.Last, now), event.Count, since(event.First, now))
		}
		message := strings.TrimSpace(event.Message)
		if event.FieldPath != "" {
			message = event.FieldPath + ": " + message
		}
		w.line(1, event.Type, event.Reason, age, event.From, message)
	}
}
