package nodeagent

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/heraldnode/herald/action"
	"github.com/heraldnode/herald/deed"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/remedy"
	"github.com/heraldnode/herald/view"
)

// newActions builds what carries out the actions of rules. It precedes the manager of alerts, which tells it what fires.
func (n *NodeAgent) newActions() error {
	config := deed.Config{
		NodeName: n.config.NodeName, Inspector: lateInspector{n}, SnapshotDir: n.path("snapshots"), History: n.History,
		Logs: n.runtime.LogTail, Details: n.runtime.ContainerDetails,
		Webhooks: n.config.Alerting.Webhooks, Programs: n.config.Alerting.Programs, Logger: n.config.Logger,
	}
	if n.clients.objects != nil {
		config.API = n.clients.objects
	}
	deeds, err := deed.New(config)
	if err != nil {
		return err
	}
	n.Actions, err = action.New(action.Config{
		State: n.state, Views: actionViews{lateInspector{n}}, Deeds: deeds, NeverEnforce: n.config.Alerting.DryRun,
		Now: newClock(), OnRecord: n.recordAction, OnChange: n.refreshAlerting, Logger: n.config.Logger, Metrics: n.config.Metrics,
	})
	return err
}

// lateInspector passes calls to the inspector, which is created after what asks it.
type lateInspector struct{ node *NodeAgent }

// Pod implements action.Views and deed.Inspector.
func (l lateInspector) Pod(ctx context.Context, name podid.FullName) (view.PodView, bool) {
	return l.node.Inspector.Pod(ctx, name)
}

// Node implements deed.Inspector.
func (l lateInspector) Node(ctx context.Context) view.NodeView { return l.node.Inspector.Node(ctx) }

// actionViews implements action.Views.
type actionViews struct{ lateInspector }

// Node returns the view of the node for rules, which does not look at each pod.
func (a actionViews) Node(context.Context) view.NodeView { return *a.node.Inspector.NodeNow() }

// Facts implements deed.Inspector.
func (l lateInspector) Facts(ctx context.Context, name podid.FullName) (explain.Facts, bool) {
	return l.node.Inspector.Facts(ctx, name)
}

// AddLoads implements deed.Inspector.
func (l lateInspector) AddLoads(views []view.PodView) { l.node.Inspector.AddLoads(views) }

// RestartByAction implements deed.Inspector.
func (l lateInspector) RestartByAction(ctx context.Context, name podid.FullName, container, reason string) (view.Restart, error) {
	return l.node.Inspector.RestartByAction(ctx, name, container, reason)
}

// CheckProbe implements deed.Inspector.
func (l lateInspector) CheckProbe(
	ctx context.Context, name podid.FullName, container string, kind explain.ProbeKind,
) ([]view.ProbeCheck, error) {
	return l.node.Inspector.CheckProbe(ctx, name, container, kind)
}

// recordAction passes a decision or an outcome to the history.
func (n *NodeAgent) recordAction(r action.Record) {
	record := history.ActionRecord{
		ID: r.ID, Type: string(r.Type), Rule: r.Rule, Alert: r.Alert, Policy: r.Policy, Target: r.Target, Container: r.Object.Container,
		Decision: string(r.Decision), Reason: string(r.Reason), Outcome: string(r.Outcome), Message: r.Message, TookMs: r.TookMs,
	}
	if r.Decision == remedy.Refuse {
		record.Message = r.Refusal
	}
	n.History.ActionRecorded(r.Object.Namespace, r.Object.Pod, record, time.Now())
}

// remedies returns the state of actions for rules about the node.
func (n *NodeAgent) remedies() (exhausted int, isSuspended bool) {
	state := n.Actions.State()
	return len(state.Exhausted), state.Suspended != ""
}

// newClock returns the clock of actions.
func newClock() func() remedy.Instant {
	boot := readBootID()
	return func() remedy.Instant {
		now := remedy.Instant{At: time.Now()}
		if uptime := readUptime(); uptime > 0 {
			now.Boot, now.UptimeMs = boot, uptime.Milliseconds()
		}
		return now
	}
}

// readUptime returns the time since the machine was booted, by a clock that nobody sets; 0 if it is not known.
func readUptime() time.Duration {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0
	}
	seconds, _, _ := strings.Cut(string(text), " ")
	uptime, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		return 0
	}
	return time.Duration(uptime * float64(time.Second))
}
