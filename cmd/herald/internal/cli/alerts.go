package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/view"
)

// alertFormats are the formats of lists of alerts.
var alertFormats = append([]string{formatWide}, objectFormats...)

// alertsOptions are the options of 'herald alerts'.
type alertsOptions struct {
	agentFlags

	namespace, output string
	all, noHeaders    bool
	format            outputFormat
}

func newAlertsCommand() *cobra.Command {
	o := &alertsOptions{}
	command := &cobra.Command{
		Use: "alerts", Short: "Display alerts, check and test their rules, and silence them", GroupID: groupAsk,
		Long: `Display the alerts that fire, worst first: what is wrong with which pod or with the node, and since when. With --all also those
that are pending, because the rule demands that it lasts, and those that were resolved recently.

The agent evaluates its rules on the node at every change, so that also a state of milliseconds fires. Rules are the default ones and
those of the files in alerting.ruleFiles; 'herald alerts rules' lists them, and docs/alerts.md describes them. A state in brackets says
that an alert is silenced or inhibited, or that the facts for it are not known at present.`,
		Example: `  # What is wrong on this node?
  herald alerts

  # Also pending and resolved ones, with values and receivers.
  herald alerts --all -o wide

  # Check a rule file before the agent reads it, and run its tests.
  herald alerts check shop.yaml
  herald alerts test shop_test.yaml

  # Be quiet about a pod for two hours.
  sudo herald alerts silence pod=cart-n1 --for 2h --comment "new disk"`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] != "list" {
				return runParentCommand(cmd, args)
			}
			if err := o.parse(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	command.SuggestionsMinimumDistance = 2
	o.bind(command)
	flags := command.Flags()
	flags.BoolVarP(&o.all, "all", "a", false, "also show pending and recently resolved alerts")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "only alerts about pods of this namespace")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "do not print headers")
	flags.StringVarP(&o.output, "output", "o", "", "output format: "+oneOf(alertFormats))
	completeFlag(command, "output", alertFormats...)
	command.AddCommand(newAlertsRulesCommand(), newAlertsCheckCommand(), newAlertsTestCommand(), newAlertsSilenceCommand())
	return command
}

func (o *alertsOptions) parse() (err error) {
	if err := o.check(); err != nil {
		return err
	}
	o.format, err = parseOutput(o.output, alertFormats)
	return err
}

func (o *alertsOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	parameters := url.Values{}
	if o.namespace != "" {
		parameters.Set("namespace", o.namespace)
	}
	list, err := o.client().Alerts(ctx, parameters)
	if err != nil {
		return err
	}
	hidden := map[alert.State]int{}
	if !o.all {
		var firing []view.Alert
		for i := range list.Items {
			if list.Items[i].IsFiring() {
				firing = append(firing, list.Items[i])
			} else {
				hidden[list.Items[i].State]++
			}
		}
		list.Items = firing
	}
	if o.format.isObject() {
		if list.Items == nil {
			list.Items = []view.Alert{}
		}
		return (&objectPrinter{out: stdout, format: o.format}).print(list)
	}
	if len(list.Items) > 0 {
		if err := o.print(stdout, list.Items, time.Now()); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(stderr, "No alerts are firing.")
	}
	if len(hidden) > 0 {
		fmt.Fprintf(stderr, "%d pending, %d resolved recently: use --all\n", hidden[alert.Pending], hidden[alert.Resolved])
	}
	return nil
}

func (o *alertsOptions) print(out io.Writer, alerts []view.Alert, now time.Time) error {
	isWide := o.format.name == formatWide
	var lines [][]string
	if !o.noHeaders {
		header := []string{"STATE", "ALERT", "OBJECT", "SINCE", "SEVERITY", "SUMMARY"}
		if isWide {
			header = []string{"STATE", "ALERT", "OBJECT", "SINCE", "SEVERITY", "VALUE", "FLAPS", "SENT", "SUMMARY"}
		}
		lines = append(lines, header)
	}
	for i := range alerts {
		a := &alerts[i]
		line := []string{
			formatAlertState(a, now), table.Printable(a.Labels[alert.LabelName]), table.Printable(alertObject(a.Labels)),
			formatAlertAge(a, now), table.Printable(cmp.Or(a.Labels[alert.LabelSeverity], "-")),
		}
		if isWide {
			line = append(line, formatAlertValue(a), strconv.Itoa(a.Flaps), table.Printable(formatDeliveries(a, now)))
		}
		lines = append(lines, append(line, table.Printable(formatAlertSummary(a, now))))
	}
	return table.NewGrid(out).Print(lines...)
}

// formatAlertState returns the state and, in brackets, why nobody is told or nothing changes.
func formatAlertState(a *view.Alert, now time.Time) string {
	var notes []string
	if len(a.Mute.SilencedBy) > 0 {
		notes = append(notes, "silenced")
	}
	if len(a.Mute.InhibitedBy) > 0 {
		notes = append(notes, "inhibited")
	}
	if a.Freeze != nil {
		notes = append(notes, "unknown "+age(a.Freeze.Since, now))
	}
	if len(notes) == 0 {
		return string(a.State)
	}
	return string(a.State) + " (" + strings.Join(notes, ", ") + ")"
}

// alertObject returns the pod with the container, or the node.
func alertObject(labels alert.Labels) string {
	pod := labels[alert.LabelPod]
	if pod == "" {
		return "node/" + labels[alert.LabelNode]
	}
	object := labels[alert.LabelNamespace] + "/" + pod
	if container := labels[alert.LabelContainer]; container != "" {
		object += " " + container
	}
	return object
}

// formatAlertAge returns how long the alert has been in its state.
func formatAlertAge(a *view.Alert, now time.Time) string {
	switch a.State {
	case alert.Pending:
		return age(a.ActiveAt, now)
	case alert.Resolved:
		return age(a.EndsAt, now)
	default:
		return age(a.StartsAt, now)
	}
}

func formatAlertValue(a *view.Alert) string {
	if a.Value == nil {
		return "-"
	}
	return strconv.FormatFloat(*a.Value, 'g', 6, 64)
}

// formatAlertSummary returns the summary, and what comes next.
func formatAlertSummary(a *view.Alert, now time.Time) string {
	parts := []string{a.Annotations[alert.AnnotationSummary]}
	switch {
	case a.State == alert.Pending && a.NextAt != nil && a.Freeze == nil:
		parts = append(parts, "fires in "+formatDuration(max(0, a.NextAt.Sub(now))))
	case a.State == alert.Recovering && a.NextAt != nil && a.Freeze == nil:
		parts = append(parts, "resolved in "+formatDuration(max(0, a.NextAt.Sub(now)))+" unless it returns")
	case a.State == alert.Resolved:
		parts = append(parts, a.Reason)
	}
	if a.Freeze != nil {
		parts = append(parts, a.Freeze.Reason)
	}
	text := ""
	for _, part := range parts {
		if part != "" && text != "" {
			text += "; "
		}
		text += part
	}
	return text
}

// formatDeliveries says which receivers know the state of the alert: "webhook/ops ok; webhook/dev failing: status 500, next in 5s".
func formatDeliveries(a *view.Alert, now time.Time) string {
	var parts []string
	for i := range a.Deliveries {
		d := &a.Deliveries[i]
		part := d.Receiver + " " + d.State
		if d.State == string(alert.Delivered) {
			part = d.Receiver + " ok"
		}
		if d.Problem != "" {
			part += ": " + d.Problem
		}
		if d.NextTry != nil {
			part += ", next in " + formatDuration(max(0, d.NextTry.Sub(now)))
		}
		parts = append(parts, part)
	}
	return cmp.Or(strings.Join(parts, "; "), "-")
}

func newAlertsRulesCommand() *cobra.Command {
	o := &objectFlags{}
	command := &cobra.Command{
		Use: "rules", Short: "Display the rules of alerts with their states", Args: noArguments,
		Long: `Display all rules: the object that each is about, its state, how many alerts it has, and where it comes from. A rule of a file
replaces the default rule of the same name. PROBLEM says for how many objects the answer is not known, or why the last evaluation failed.

Rules are evaluated when something changes that they read, or at an instant that they depend on, never in intervals. Files
that cannot be used are listed first, with their error; their last good rules are in force.`,
		Example: `  herald alerts rules

  # The expressions.
  herald alerts rules -o jsonpath='{range .items[*]}{.name}{"\t"}{.expression}{"\n"}{end}'`,
	}
	o.bindObject(command)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.parse(); err != nil {
			return err
		}
		list, err := o.client().Rules(cmd.Context())
		if err != nil {
			return err
		}
		return o.print(cmd.OutOrStdout(), list, func() error { return printRules(cmd.OutOrStdout(), &list, time.Now()) })
	}
	return command
}

func printRules(out io.Writer, list *view.RuleList, now time.Time) error {
	for i := range list.Files {
		if file := &list.Files[i]; file.Problem != "" {
			fmt.Fprintln(out, table.Printable(formatFileProblem(file, now)))
		}
	}
	lines := [][]string{{"ALERT", "ON", "STATE", "FIRING", "PENDING", "FOR", "SEVERITY", "FROM", "PROBLEM"}}
	for i := range list.Items {
		r := &list.Items[i]
		problem := r.LastError
		if problem == "" && r.Unknown > 0 {
			problem = fmt.Sprintf("unknown for %d", r.Unknown)
		}
		lines = append(lines, []string{
			table.Printable(r.Name), r.Scope, r.State, strconv.Itoa(r.Firing), strconv.Itoa(r.Pending),
			formatDuration(time.Duration(r.ForMs) * time.Millisecond), table.Printable(cmp.Or(r.Labels[alert.LabelSeverity], "-")),
			table.Printable(cmp.Or(r.File, "default")), table.Printable(problem),
		})
	}
	return table.NewGrid(out).Print(lines...)
}

func formatFileProblem(file *view.RuleFile, now time.Time) string {
	text := file.Problem
	if !strings.Contains(text, file.Path) {
		text = file.Path + ": " + text
	}
	if file.LastGood != nil {
		text += fmt.Sprintf("; the %d rules of the last good version, of %s, are in force", file.Rules, formatClock(file.LastGood.Time, now))
	}
	return text
}
