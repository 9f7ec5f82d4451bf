package describe

import (
	"fmt"
	"strings"
	"time"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/view"
)

// Section returns a titled block of lines that are indented, or "" if there are none.
func Section(title, text string) string {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return ""
	}
	w := newWriter()
	w.line(0, title+":")
	w.lines(1, text)
	return w.String()
}

// PodState describes what only the node knows about a pod.
func PodState(v *view.PodView, now time.Time) string {
	w := newWriter()
	w.field(0, "Source", v.Source)
	w.field(0, "Sync", formatSync(v))
	if v.Worker.Trouble != "" {
		w.field(0, "Trouble", v.Worker.Trouble+formatNext("tried again", v.Worker.RetryAt, now))
	}
	if len(v.Probes) == 0 {
		w.field(0, "Probes", none)
	} else {
		w.line(0, "Probes:")
	}
	for i := range v.Probes {
		probe := &v.Probes[i]
		w.line(1, probe.Container+" "+string(probe.Kind), probe.Target, formatProbeState(probe, now))
	}
	if len(v.Waiting) > 0 {
		w.line(0, "Back-off:")
	}
	for i := range v.Waiting {
		w.line(1, v.Waiting[i].Container, formatWaiting(&v.Waiting[i], now))
	}
	if len(v.Stopping) > 0 {
		w.line(0, "Stopping:")
	}
	for i := range v.Stopping {
		stopping := &v.Stopping[i]
		w.line(1, stopping.Container, stopping.Reason+formatNext("killed", stopping.KillAt, now))
	}
	return w.String()
}

func formatSync(v *view.PodView) string {
	lag := &v.Lag
	local := fmt.Sprintf("local version %d", v.Local.Version)
	switch lag.State {
	case explain.SyncNoServer, explain.SyncUnknown:
		return "no API server"
	case explain.SyncSynced:
		text := "synced, " + local
		if v.Synced != nil && v.Synced.ResourceVersion != "" {
			text += " is resource version " + v.Synced.ResourceVersion
		}
		if lag.TookMs > 0 {
			text += fmt.Sprintf(" (acknowledged after %s)", milliseconds(lag.TookMs))
		}
		return text
	}
	text := fmt.Sprintf("%s, %d versions behind since %s", lag.State, lag.Behind, milliseconds(lag.SinceMs))
	if lag.Reason != "" {
		text += ": " + lag.Reason
	}
	if lag.Failures > 0 {
		text += fmt.Sprintf(" (%d failures)", lag.Failures)
	}
	return text
}

func formatProbeState(probe *view.Probe, now time.Time) string {
	text := string(probe.Verdict)
	if probe.Streak > 0 {
		kind := map[bool]string{true: "failures", false: "successes"}[probe.StreakFailed]
		text += fmt.Sprintf(", %d %s in a row (threshold %d)", probe.Streak, kind, probe.Threshold)
	}
	if probe.Errors > 0 {
		text += fmt.Sprintf(", could not be asked %d times", probe.Errors)
	}
	if probe.Last != nil && probe.Last.At != nil {
		text += fmt.Sprintf("; last %s ago, took %s", since(probe.Last.At.Time, now), milliseconds(probe.Last.TookMs))
		if probe.Last.Message != "" {
			text += ": " + probe.Last.Message
		}
	}
	if probe.Next == nil {
		return text + "; not scheduled"
	}
	return text + formatNext("next", probe.Next, now)
}

func formatWaiting(waiting *view.Waiting, now time.Time) string {
	text := waiting.Reason
	if waiting.DelayMs > 0 {
		text += " " + milliseconds(waiting.DelayMs)
	}
	if waiting.Failures > 0 {
		text += fmt.Sprintf(" (%d in a row)", waiting.Failures)
	}
	return text + formatNext("next start", waiting.Until, now)
}

// formatNext returns when something happens, or "".
func formatNext(what string, at *view.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	text := "; " + what + " " + at.Local().Format(time.TimeOnly)
	if wait := at.Sub(now); wait > 0 {
		text += " (in " + milliseconds(wait.Milliseconds()) + ")"
	}
	return text
}

// milliseconds formats a duration with a precision that suits it.
func milliseconds(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return d.String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// NodeState describes what only the agent knows about the node.
func NodeState(v *view.NodeView, now time.Time) string {
	w := newWriter()
	if v.Agent.StartedAt != nil {
		w.field(0, "Agent", fmt.Sprintf("%s, up %s", v.Agent.Version, since(v.Agent.StartedAt.Time, now)))
	}
	runtime := strings.TrimSpace(v.Runtime.Name + " " + v.Runtime.Version)
	if v.Runtime.RelistedAt != nil {
		runtime += fmt.Sprintf(", observed %s ago", since(v.Runtime.RelistedAt.Time, now))
	}
	w.field(0, "Runtime", runtime)
	w.fieldIf(0, "Runtime Problem", v.Runtime.Problem)
	w.fieldIf(0, "Network Problem", v.Runtime.Network)
	w.field(0, "Cluster", orNone(v.Cluster))
	if v.Lag.State != explain.SyncNoServer && v.Lag.State != explain.SyncUnknown {
		text := string(v.Lag.State)
		if v.Lag.Reason != "" {
			text += ": " + v.Lag.Reason
		}
		w.field(0, "Sync", text)
	}
	if v.Lease != nil {
		text := fmt.Sprintf("of %s", milliseconds(v.Lease.DurationMs))
		if v.Lease.RenewedAt != nil {
			text += fmt.Sprintf(", renewed %s ago", since(v.Lease.RenewedAt.Time, now))
		}
		if v.Lease.Problem != "" {
			text += ": " + v.Lease.Problem
		}
		w.field(0, "Lease", text)
	}
	w.line(0, "Sources:")
	for i := range v.Sources {
		source := &v.Sources[i]
		w.line(1, source.Name, source.State, fmt.Sprintf("%d pods", source.Pods), source.Origin)
		for j := range source.Problems {
			w.line(2, source.Problems[j].Message)
		}
	}
	return w.String()
}
