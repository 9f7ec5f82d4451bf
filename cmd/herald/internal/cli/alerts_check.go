package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/cmd/herald/internal/replay"
	"github.com/heraldnode/herald/expression"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/remedy"
)

// alertsCheckOptions are the options of 'herald alerts check'.
type alertsCheckOptions struct {
	agentFlags

	live bool
}

func newAlertsCheckCommand() *cobra.Command {
	o := &alertsCheckOptions{}
	command := &cobra.Command{
		Use: "check FILE...", Short: "Validate rule files",
		Long: `Validate rule files as strictly as the agent does, and report every error with file, line, column, field and remedy: syntax, types
of expressions, templates, matchers, cost, and rules with the same name and labels. For a directory, its *.yaml and *.yml files are
validated together, as the agent would use them.

For each rule it prints what the expression costs in the worst case, of ` + fmt.Sprint(expression.MaxRuleCost) + ` units that are
allowed, which part of it costs most, and the changes after which it is evaluated: of a pod's status, of a probe, sync (the API server
has acknowledged something), load, node, source, and time (an instant that the answer depends on).

With --live it asks a running agent for its pods and its history, and prints what would fire now. The exit status is 1 if a file would be
rejected.`,
		Example: `  herald alerts check shop.yaml
  herald alerts check /etc/herald/alerts.d

  # What would fire?
  herald alerts check --live shop.yaml`,
		Args: requireFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	o.bind(command)
	command.Flags().BoolVar(&o.live, "live", false, "also print what would fire now on the node of the agent")
	return command
}

func requireFiles(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageErrorf("at least one FILE is required\nSee '%s --help' for usage", cmd.CommandPath())
	}
	return nil
}

func (o *alertsCheckOptions) run(ctx context.Context, stdout io.Writer, args []string) error {
	paths, err := findRuleFiles(args)
	if err != nil {
		return err
	}
	files := []*rule.File{rule.Default()}
	failed := 0
	for _, path := range paths {
		file, err := readRuleFile(path)
		if err != nil {
			failed++
			fmt.Fprintln(stdout, printableLines(err.Error()))
			continue
		}
		files = append(files, file)
		if err := printCheckedRules(stdout, file); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d rule files failed the check", failed, len(paths))
	}
	set, err := rule.Merge(nil, files...)
	if err != nil {
		return err
	}
	if !o.live {
		return nil
	}
	own := slices.DeleteFunc(slices.Clone(set.Rules), func(r *rule.Rule) bool { return r.File == "" })
	return o.printLive(ctx, stdout, own)
}

// findRuleFiles returns the files of the arguments, of which some may be directories.
func findRuleFiles(args []string) (paths []string, err error) {
	for _, arg := range args {
		found, err := findManifests(arg)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s: no rule files in this directory: no file name ends with %s", arg, strings.Join(manifestExtensions, ", "))
		}
		for _, path := range found {
			if path == arg || !isTestFile(path) { // tests stand beside the rules
				paths = append(paths, path)
			}
		}
	}
	return paths, nil
}

// isTestFile reports whether a name is that of a file of tests.
func isTestFile(path string) bool {
	name, _, _ := strings.Cut(path, ".yaml")
	return strings.HasSuffix(name, "_test")
}

func readRuleFile(path string) (*rule.File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return rule.Parse(data, path)
}

func printCheckedRules(out io.Writer, file *rule.File) error {
	defaults := map[string]bool{}
	for _, r := range rule.Default().Rules {
		defaults[r.Name] = true
	}
	fmt.Fprintf(out, "%s: %s\n", table.Printable(file.Path), plural(len(file.Rules), "rule is valid", "rules are valid"))
	lines := [][]string{{"ALERT", "ON", "FOR", "COST", "EVALUATED AFTER", "NOTE"}}
	for _, r := range file.Rules {
		var notes []string
		if defaults[r.Name] {
			notes = append(notes, "replaces the default rule")
		}
		if part, cost := r.Costliest(); cost > 0 && cost < r.MaxCost {
			notes = append(notes, fmt.Sprintf("%d of the cost is %s", cost, part))
		}
		if couldBeProbe(r) {
			notes = append(notes, "a liveness probe could decide this")
		}
		lines = append(lines, []string{
			r.Name, string(r.Scope), formatDuration(r.For), fmt.Sprint(r.MaxCost), r.Triggers.String(), table.Printable(strings.Join(notes, "; ")),
		})
	}
	if len(file.Rules) == 0 {
		return nil
	}
	return table.NewGrid(out).Print(lines...)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// couldBeProbe reports whether a rule restarts a container because of its probes or its readiness: a liveness probe needs no rule for that.
func couldBeProbe(r *rule.Rule) bool {
	restarts := slices.ContainsFunc(r.Actions, func(a rule.Action) bool { return a.Type == remedy.RestartContainer })
	return restarts && (strings.Contains(r.Text.Expr, ".probe_") || strings.Contains(r.Text.Expr, "container.ready"))
}

// printLive prints the objects for which rules are true, or for which nobody knows.
func (o *alertsCheckOptions) printLive(ctx context.Context, out io.Writer, rules []*rule.Rule) error {
	facts, err := replay.ReadLive(ctx, o.client(), time.Now())
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	lines := [][]string{{"NOW", "ALERT", "OBJECT", "SUMMARY"}}
	for _, r := range rules {
		for _, found := range facts.Evaluate(r) {
			now := "firing"
			switch {
			case found.Result.Truth == rule.Unknown:
				now = "unknown"
			case r.For > 0:
				now = "pending for " + formatDuration(r.For)
			}
			summary := cmp.Or(found.Result.Reason, found.Annotations[alert.AnnotationSummary])
			lines = append(lines, []string{now, r.Name, table.Printable(alertObject(found.Labels)), table.Printable(summary)})
		}
	}
	if len(lines) == 1 {
		_, err := fmt.Fprintln(out, "Nothing would fire now.")
		return err
	}
	return table.NewGrid(out).Print(lines...)
}
