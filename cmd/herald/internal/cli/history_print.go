package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/transition"
)

// historyPrinter prints records.
type historyPrinter struct {
	out        io.Writer
	options    *historyOptions
	now        time.Time
	hasPrinted bool
	last       time.Time // of the last printed record
}

// selectPod leaves the records of the newest pod of the name, unless all are wanted, and returns the number of others.
func (p *historyPrinter) selectPod(list *server.HistoryList) (others int) {
	if p.options.pod == "" || p.options.all || len(list.Items) == 0 {
		return 0
	}
	newest, uids := "", map[string]bool{}
	list.Items = slices.DeleteFunc(list.Items, func(record history.Record) bool {
		if record.UID == "" { // alerts belong to the name
			return false
		}
		if newest == "" {
			newest = record.UID
		}
		uids[record.UID] = true
		return record.UID != newest
	})
	return max(0, len(uids)-1)
}

func (p *historyPrinter) printJSON(list server.HistoryList) error {
	text, err := json.MarshalIndent(list, "", "    ")
	if err == nil {
		_, err = p.out.Write(append(text, '\n'))
	}
	return err
}

func (p *historyPrinter) printRecord(record history.Record) error {
	text, err := json.Marshal(record)
	if err == nil {
		_, err = p.out.Write(append(text, '\n'))
	}
	return err
}

// print prints records, oldest first.
func (p *historyPrinter) print(records ...history.Record) error {
	var text strings.Builder
	if !p.hasPrinted && len(records) > 0 {
		text.WriteString(p.row("TIME", "AFTER", "OBJECT", "WHAT", "CAUSE") + "SYNCED\n")
	}
	p.hasPrinted = p.hasPrinted || len(records) > 0
	for i := range records {
		p.format(&text, &records[i])
	}
	_, err := io.WriteString(p.out, text.String())
	return err
}

// row returns the cells of a line in columns.
func (p *historyPrinter) row(at, after, object, what, cause string) string {
	if p.options.pod != "" || p.options.isNode {
		return fmt.Sprintf("%-14s%-8s%-60s%-9s", at, after, what, cause)
	}
	return fmt.Sprintf("%-14s%-8s%-24s%-60s%-9s", at, after, object, what, cause)
}

func (p *historyPrinter) format(text *strings.Builder, record *history.Record) {
	lines := describeRecord(record, p.options.logs)
	if len(lines) == 0 {
		return
	}
	at := record.Time.Local()
	clock := at.Format("15:04:05.000")
	if p.now.Sub(at) > 24*time.Hour {
		clock = at.Format("01-02 15:04:05")
	}
	after := ""
	if !p.last.IsZero() && at.After(p.last) {
		after = formatDuration(at.Sub(p.last))
	}
	p.last = at
	synced := ""
	if record.SyncedMs != nil {
		synced = "+" + formatDuration(time.Duration(*record.SyncedMs)*time.Millisecond)
	}
	object := string(record.Kind)
	if record.Name != "" {
		object = record.Namespace + "/" + record.Name
	}
	for i, line := range lines {
		row := p.row("", "", "", table.Printable(line), "")
		if i == 0 && record.Kind != history.KindLog {
			row = p.row(clock, after, table.Printable(object), table.Printable(line), string(record.Cause)) + synced
		}
		text.WriteString(strings.TrimRight(row, " ") + "\n")
	}
}

// printFooter says what is not shown.
func (p *historyPrinter) printFooter(list server.HistoryList, others int) error {
	var parts []string
	if list.Continue != "" {
		parts = append(parts, fmt.Sprintf("Only the newest %d records are shown: --cursor %s shows older ones.", p.options.limit, list.Continue))
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("Earlier pods of this name: %d (--all).", others))
	}
	if len(parts) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(p.out, strings.Join(parts, " "))
	return err
}

func formatDuration(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return strings.Replace(d.Round(time.Second).String(), "m0s", "m", 1)
	}
}

// describeRecord returns the record in words, one line for each change that matters.
func describeRecord(record *history.Record, allLines bool) []string {
	switch {
	case record.Agent != nil:
		return []string{describeAgent(record.Agent)}
	case record.Attachment != nil:
		return describeAttachment(record.Attachment, allLines)
	case record.Event != nil:
		return []string{describeEvent(record.Event)}
	case record.Source != nil:
		return []string{describeProblem(record.Source)}
	case record.Alert != nil:
		return []string{describeAlert(record)}
	case record.Action != nil:
		return []string{describeAction(record.Action)}
	}
	var lines []string
	if record.Gap {
		lines = append(lines, "(records before this one are missing)")
	}
	if record.Count > 1 {
		lines = append(lines, fmt.Sprintf("changed %d times: %s -> %s", record.Count, record.Before, record.After))
	}
	for i := range record.Changes {
		line := describeChange(&record.Changes[i], record.Changes)
		if record.Changes[i].Field == transition.FieldRemoved && record.After != "" {
			line += " (last: " + record.After + ")"
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 && record.Cause == transition.CauseRestart && record.Before != record.After {
		lines = append(lines, fmt.Sprintf("found by the restarted agent: %s -> %s", record.Before, record.After))
	}
	return lines
}

func describeAgent(event *history.AgentEvent) string {
	switch event.Event {
	case history.EventStarted:
		text := strings.TrimSpace("agent started " + event.Version)
		if event.Unclean {
			text += " (the previous one did not stop properly)"
		}
		return text
	case history.EventStopped:
		return "agent stopped"
	case history.EventTornTail:
		return fmt.Sprintf("%d bytes at the end of the history were incomplete", event.Count)
	case history.EventCorrupt:
		return fmt.Sprintf("%d damaged lines of the history were skipped", event.Count)
	case history.EventDropped:
		return fmt.Sprintf("%d records could not be written and are lost", event.Count)
	case history.EventUnsynced:
		return fmt.Sprintf("%d records could not be synced; a power failure may take them", event.Count)
	default:
		return event.Event
	}
}

func describeEvent(event *history.Event) string {
	text := fmt.Sprintf("event %s: %s", event.Reason, event.Message)
	if event.Container != "" {
		text = fmt.Sprintf("event %s: %s: %s", event.Reason, event.Container, event.Message)
	}
	if event.Count > 1 {
		text += fmt.Sprintf(" (%d times)", event.Count)
	}
	return text
}

func describeAlert(record *history.Record) string {
	change := record.Alert
	text := fmt.Sprintf("alert %s %s", change.Labels[alert.LabelName], change.State)
	if container := change.Labels[alert.LabelContainer]; container != "" {
		text = fmt.Sprintf("%s: alert %s %s", container, change.Labels[alert.LabelName], change.State)
	}
	if change.State == alert.Resolved && !change.StartsAt.IsZero() {
		text += " after " + formatDuration(record.Time.Sub(change.StartsAt))
	}
	switch {
	case change.State == alert.Resolved && change.Reason != "":
		text += ": " + change.Reason
	case change.State == alert.Firing && change.Summary != "":
		text += ": " + change.Summary
	}
	if change.Muted {
		text += " (muted)"
	}
	return text
}

// describeAction describes an action: "action 17 restart-container done (alert PodStuck): ...".
func describeAction(action *history.ActionRecord) string {
	text := "action "
	if action.ID != 0 {
		text += strconv.FormatUint(action.ID, 10) + " "
	}
	text += action.Type
	if action.Target != "" {
		text += " " + action.Target
	}
	switch action.Decision {
	case "refuse":
		text += " refused"
	case "dry-run":
		text += " (dry-run)"
	default:
		text += " " + action.Outcome
	}
	if action.Container != "" {
		text = action.Container + ": " + text
	}
	if action.Rule != "" {
		text += ", alert " + action.Rule
	}
	if action.Message != "" {
		text += ": " + action.Message
	}
	return text
}

func describeProblem(problem *history.SourceProblem) string {
	text := problem.Location
	if problem.Line > 0 {
		text += fmt.Sprintf(":%d", problem.Line)
	}
	for _, part := range []string{problem.Field, problem.Message} {
		if part != "" {
			text += ": " + part
		}
	}
	text = strings.TrimPrefix(text, ": ")
	if problem.Resolved {
		return problem.Source + " problem resolved: " + text
	}
	return problem.Source + " problem: " + text
}

func describeAttachment(attachment *history.Attachment, allLines bool) []string {
	if attachment.Lines == "" {
		return nil
	}
	lines := strings.Split(attachment.Lines, "\n")
	if allLines {
		for i := range lines {
			lines[i] = "| " + lines[i]
		}
		return lines
	}
	last := "| " + lines[len(lines)-1]
	if attachment.LineCount > 1 {
		last += fmt.Sprintf(" (%d lines: --logs)", attachment.LineCount)
	}
	return []string{last}
}

// quietConditions follow from others, or matter only to programs.
var quietConditions = []transition.Field{"ContainersReady", "Initialized", "PodReadyToStartContainers", "PodScheduled"}

// describeChange returns a change in words, or "" if another change of the record says the same.
func describeChange(change *transition.Change, all []transition.Change) string {
	name := change.Container
	switch change.Field {
	case transition.FieldState, transition.FieldLastState:
		return describeState(change, all)
	case transition.FieldDeletion:
		return "deletion requested"
	case transition.FieldRemoved:
		return "left the node"
	case transition.FieldClock:
		return "the clock was set by " + change.To + ", or the machine was suspended"
	case transition.FieldBootID:
		return "the machine was booted (boot " + change.To + ")"
	case transition.FieldLease:
		return strings.TrimSuffix("lease "+change.To+": "+change.Message, ": ")
	case transition.FieldLoad:
		text := fmt.Sprintf("load %s -> %s", change.From, change.To)
		if change.Reason != "" {
			text += ": " + change.Reason + " " + change.Message
		}
		return text
	case transition.FieldReady:
		return name + map[bool]string{true: " is ready", false: " is not ready"}[change.To == "true"]
	case transition.FieldStarted, transition.FieldRestartCount, transition.FieldGeneration, transition.FieldStartTime:
		return ""
	}
	if slices.Contains(quietConditions, change.Field) {
		return ""
	}
	text := string(change.Field)
	if name != "" {
		text = name + " " + text
	}
	isCondition := unicode.IsUpper(rune(change.Field[0]))
	switch {
	case change.From != "" && change.From != change.To:
		text += fmt.Sprintf(" %s -> %s", change.From, change.To)
	case change.To != "":
		text += " " + change.To
	case !isCondition:
		text += " changed"
	}
	if change.Reason != "" {
		text += " (" + change.Reason + ")"
	}
	return text
}

func describeState(change *transition.Change, all []transition.Change) string {
	name := change.Container
	switch {
	case change.Exit != nil:
		text := fmt.Sprintf("%s ended: exit %d %s", name, change.Exit.Code, change.Reason)
		if change.Exit.RanMs > 0 {
			text += ", ran " + formatDuration(time.Duration(change.Exit.RanMs)*time.Millisecond)
		}
		if change.Exit.StoppedBy != "" {
			text += ", stopped: " + change.Exit.StoppedBy
		}
		return text
	case change.To == transition.StateRunning:
		for i := range all {
			if all[i].Container == name && all[i].Field == transition.FieldRestartCount {
				return name + " started (restart " + all[i].To + ")"
			}
		}
		return name + " started"
	case change.To == transition.StateWaiting && change.Message != "":
		return name + " waits: " + change.Reason + ": " + change.Message
	case change.To == transition.StateWaiting:
		return name + " waits: " + change.Reason
	case change.To == "":
		return name + " is gone"
	default:
		return name + " " + change.To
	}
}
