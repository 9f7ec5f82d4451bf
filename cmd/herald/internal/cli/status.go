package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/view"
)

func newStatusCommand() *cobra.Command {
	o := &objectFlags{}
	command := &cobra.Command{
		Use: "status", Short: "Display how this node and its pods are, on one screen", GroupID: groupAsk, Args: noArguments,
		Long: `Display how the node, the agent, the container runtime, the sources of pods and the connection to the API server are, how
loaded the node is and by what, how many pods are ready, the alerts that fire, and the pods that are not well, each with the reason.

The load is the largest of CPU, memory, disk and processes, from 0 to 1, with the level that it has had for a while: idle, normal (from
0.05), busy (0.50) or saturated (0.80). File systems are named if they are 80% full, will be full within a day, or are read-only.

p99 is the time that 99 of 100 operations of the last 15 minutes did not exceed: calls to the runtime, and changes of pods until the API
server had them.

The exit status is 0 if the agent answers, whatever it says; use 'herald wait' and 'herald explain' in scripts.`,
		Example: `  herald status

  # The number of pods that are not well.
  herald status -o jsonpath='{.pods.notWell}'`,
	}
	o.bindObject(command)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.parse(); err != nil {
			return err
		}
		agent := o.client()
		node, err := agent.Node(cmd.Context())
		if err != nil {
			return err
		}
		return o.print(cmd.OutOrStdout(), node, func() error {
			pods, err := agent.PodViews(cmd.Context(), url.Values{})
			if err != nil {
				return err
			}
			var alerts view.AlertList
			if node.Alerting != nil && node.Alerting.Firing > 0 {
				if alerts, err = agent.Alerts(cmd.Context(), url.Values{"state": {"firing,recovering"}}); err != nil {
					return err
				}
			}
			_, err = io.WriteString(cmd.OutOrStdout(), formatStatus(&node, pods.Items, alerts.Items, time.Now()))
			return err
		})
	}
	return command
}

// formatStatus returns the screen of 'herald status'.
func formatStatus(node *view.NodeView, pods []view.PodView, alerts []view.Alert, now time.Time) string {
	var text strings.Builder
	line := func(label string, parts ...string) {
		parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
		for i := range parts {
			parts[i] = table.Printable(parts[i])
		}
		fmt.Fprintf(&text, "%-11s %s\n", label, strings.Join(parts, "    "))
	}
	line("node", node.Metadata.Name+"  "+formatNodeReady(node, now), formatAgent(&node.Agent, now))
	for _, condition := range badConditions(node) {
		line("", condition.Type+": "+condition.Message)
	}
	if node.Load != nil {
		line("load", formatLoad(node.Load, now), formatFileSystems(node.Load))
	}
	line("pods", formatCounts(node.Pods), formatRuntime(&node.Runtime, &node.Agent.Latencies), formatNetwork(&node.Runtime))
	line("cluster", formatCluster(node, pods), formatHistory(&node.History, now))
	if node.CertificateProblem != "" {
		line("certificate", node.CertificateProblem)
	}
	line("sources", formatSources(node.Sources))
	if node.Alerting != nil {
		line("alerts", formatAlerting(node.Alerting))
		writeRows(&text, "firing", alertLines(alerts, now))
	}
	writeRows(&text, "not well", notWellLines(pods, now))
	return text.String()
}

// writeRows writes lines of cells, the first with a label.
func writeRows(text *strings.Builder, label string, lines [][]string) {
	var grid strings.Builder
	_ = table.NewGrid(&grid).Print(lines...) // a strings.Builder never fails
	for row := range strings.Lines(grid.String()) {
		fmt.Fprintf(text, "%-11s %s", label, row)
		label = ""
	}
}

// formatAlerting counts alerts and says what is wrong with the rules.
func formatAlerting(a *view.Alerting) string {
	parts := []string{fmt.Sprintf("%d firing", a.Firing)}
	for _, count := range []struct {
		n    int
		what string
	}{
		{a.Pending, "%d pending"}, {a.Suppressed, "%d suppressed"}, {a.RulesBroken, "%d rules fail"}, {a.RulesUnknown, "%d rules without facts"},
		{a.SinksFailing, "%d receivers fail"}, {a.FilesBroken, "%d rule files cannot be used"}, {a.RemediesExhausted, "%d actions do not help"},
	} {
		if count.n > 0 {
			parts = append(parts, fmt.Sprintf(count.what, count.n))
		}
	}
	if a.ActionsSuspended {
		parts = append(parts, "actions are suspended")
	}
	return strings.Join(parts, ", ")
}

// maxStatusAlerts is how many alerts are shown.
const maxStatusAlerts = 10

// alertLines returns a line for each alert that fires, worst first.
func alertLines(alerts []view.Alert, now time.Time) (lines [][]string) {
	for i := range alerts[:min(len(alerts), maxStatusAlerts)] {
		a := &alerts[i]
		lines = append(lines, []string{
			table.Printable(a.Labels[alert.LabelName]), table.Printable(alertObject(a.Labels)), table.Printable(formatAlertSummary(a, now)),
			"since " + formatClock(a.StartsAt, now),
		})
	}
	if more := len(alerts) - maxStatusAlerts; more > 0 {
		lines = append(lines, []string{fmt.Sprintf("and %d more: herald alerts", more)})
	}
	return lines
}

func formatNodeReady(node *view.NodeView, now time.Time) string {
	for i := range node.Local.Status.Conditions {
		condition := &node.Local.Status.Conditions[i]
		if condition.Type != v1.NodeReady {
			continue
		}
		if condition.Status == v1.ConditionTrue {
			return "Ready " + age(condition.LastTransitionTime.Time, now)
		}
		return "not Ready " + age(condition.LastTransitionTime.Time, now) + ": " + cmp.Or(condition.Message, condition.Reason)
	}
	return "not known yet"
}

// statusCondition is a condition of the node that is not as it should be.
type statusCondition struct{ Type, Message string }

// badConditions returns the conditions other than Ready that report a problem.
func badConditions(node *view.NodeView) []statusCondition {
	var bad []statusCondition
	for i := range node.Local.Status.Conditions {
		condition := &node.Local.Status.Conditions[i]
		if condition.Type != v1.NodeReady && condition.Status != v1.ConditionFalse {
			bad = append(bad, statusCondition{string(condition.Type), cmp.Or(condition.Message, condition.Reason, string(condition.Status))})
		}
	}
	return bad
}

func formatAgent(agent *view.Agent, now time.Time) string {
	parts := []string{"agent " + cmp.Or(agent.Version, "of unknown version")}
	if agent.StartedAt != nil {
		parts[0] += " up " + age(agent.StartedAt.Time, now)
	}
	if agent.RSSBytes > 0 {
		parts = append(parts, fmt.Sprintf("%d MB", agent.RSSBytes/1_000_000))
	}
	if agent.CPU > 0 {
		parts = append(parts, fmt.Sprintf("%.1f %% cpu", agent.CPU*100))
	}
	return strings.Join(parts, ", ")
}

func formatCounts(pods view.PodCounts) string {
	text := fmt.Sprint(pods.Total)
	if pods.Max > 0 {
		text += fmt.Sprintf(" of %d", pods.Max)
	}
	var parts []string
	for _, count := range []struct {
		n    int
		what string
	}{{pods.Ready, "ready"}, {pods.Starting, "starting"}, {pods.Ended, "ended"}, {pods.NotWell, "not well"}} {
		if count.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count.n, count.what))
		}
	}
	if len(parts) == 0 {
		return text
	}
	return text + ": " + strings.Join(parts, ", ")
}

func formatRuntime(runtime *view.Runtime, latencies *view.Latencies) string {
	text := strings.TrimSpace("runtime " + strings.TrimSpace(runtime.Name+" "+runtime.Version))
	if runtime.Problem != "" {
		return text + ": " + runtime.Problem
	}
	if p99 := latencies.RuntimeP99Ms; p99 != nil {
		return text + " ok, p99 " + formatDuration(time.Duration(*p99)*time.Millisecond)
	}
	return text + " ok"
}

func formatNetwork(runtime *view.Runtime) string {
	if runtime.Network != "" {
		return "network: " + runtime.Network
	}
	return "network ok"
}

// formatCluster says whether the API server has what the node knows: the worst of the Node object and the statuses of all pods.
func formatCluster(node *view.NodeView, pods []view.PodView) string {
	if node.Cluster == "" {
		return "none"
	}
	unsent, oldest, reason := 0, int64(0), ""
	lags := []*view.Lag{&node.Lag}
	for i := range pods {
		lags = append(lags, &pods[i].Lag)
	}
	for _, lag := range lags {
		if lag.State == explain.SyncSynced || lag.Behind == 0 {
			continue
		}
		unsent++
		if lag.SinceMs >= oldest {
			oldest, reason = lag.SinceMs, cmp.Or(lag.Reason, reason)
		}
	}
	if unsent == 0 {
		return node.Cluster + "  synced" + formatLagP99(&node.Agent.Latencies)
	}
	text := fmt.Sprintf("%s  %d unsent, oldest %s", node.Cluster, unsent, formatDuration(time.Duration(oldest)*time.Millisecond))
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// formatLagP99 says how long it takes until the API server has a change, if there were some recently.
func formatLagP99(latencies *view.Latencies) string {
	if latencies.StatusLagP99Ms == nil {
		return ""
	}
	return ", p99 " + formatDuration(time.Duration(*latencies.StatusLagP99Ms)*time.Millisecond)
}

func formatHistory(history *view.History, now time.Time) string {
	text := fmt.Sprintf("history %.1f MiB", float64(history.Bytes)/(1<<20))
	if history.Oldest != nil {
		text += ", " + age(history.Oldest.Time, now)
	}
	if history.Problem != "" {
		text += ": " + history.Problem
	}
	return text
}

func formatSources(sources []view.Source) string {
	var parts []string
	for i := range sources {
		source := &sources[i]
		state := source.State
		if len(source.Problems) > 0 {
			state = "error"
		}
		text := fmt.Sprintf("%s %s (%d)", source.Name, state, source.Pods)
		if len(source.Problems) > 0 {
			text += ": " + source.Problems[0].Message
		}
		parts = append(parts, text)
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// notWellLines returns a line for each pod that is not well, the longest first.
func notWellLines(pods []view.PodView, now time.Time) [][]string {
	var notWell []*view.PodView
	for i := range pods {
		switch explain.ClassOf(pods[i].Why.Code) {
		case explain.Healthy, explain.Ended, explain.Progress:
		default:
			notWell = append(notWell, &pods[i])
		}
	}
	since := func(pod *view.PodView) time.Time {
		if pod.Why.Since == nil {
			return now
		}
		return pod.Why.Since.Time
	}
	slices.SortStableFunc(notWell, func(a, b *view.PodView) int { return since(a).Compare(since(b)) })
	var lines [][]string
	for _, pod := range notWell {
		line := []string{table.Printable(pod.Metadata.Namespace + "/" + pod.Metadata.Name), table.Printable(pod.Why.Text), ""}
		if pod.Why.Since != nil {
			line[2] = "since " + formatClock(pod.Why.Since.Time, now)
		}
		lines = append(lines, line)
	}
	return lines
}

// age returns how long ago a time is, in kubectl's words.
func age(t, now time.Time) string { return duration.HumanDuration(max(0, now.Sub(t))) }
