package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/alert/ruletest"
	"github.com/heraldnode/herald/cmd/herald/internal/replay"
	"github.com/heraldnode/herald/expression"
	"github.com/heraldnode/herald/internal/table"
)

// alertsTestOptions are the options of 'herald alerts test'.
type alertsTestOptions struct {
	agentFlags

	replay, whatIf string
	verbose        bool
}

func newAlertsTestCommand() *cobra.Command {
	o := &alertsTestOptions{}
	command := &cobra.Command{
		Use: "test FILE...", Short: "Test rules with timelines, or with the history of this node",
		Long: `Run files of tests: timelines of what happens to pods and the node, and which alerts are expected when. Statuses are made by the
code of the agent, and time is virtual: days take milliseconds. The default rules are part of the tests, as they are of the agent.
docs/alerts.md describes the files. The exit status is 1 if an expectation is not met.

With --replay, FILE are rule files instead, and the rules run over the history that the agent has kept: how often, for how long, and for
which objects would each have fired? --for tells how often that would have been with another duration. Without FILE the default rules are
replayed. Rules that read what is not in the history, such as the load, are skipped and named.`,
		Example: `  herald alerts test shop_test.yaml

  # What would these rules have done in the last week?
  herald alerts test --replay 7d shop.yaml

  # Is 5 minutes a better duration?
  herald alerts test --replay 7d --for 5m shop.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if o.replay != "" {
				return o.runReplay(cmd.Context(), cmd.OutOrStdout(), args)
			}
			if o.whatIf != "" {
				return usageErrorf("--for needs --replay")
			}
			if err := requireFiles(cmd, args); err != nil {
				return err
			}
			return o.runTests(cmd.OutOrStdout(), args)
		},
	}
	o.bind(command)
	flags := command.Flags()
	flags.StringVar(&o.replay, "replay", "", "replay the history of this long, like 24h or 7d, instead of running tests")
	flags.StringVar(&o.whatIf, "for", "", "with --replay: also count the episodes with this duration in all rules, like 5m")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "list every test, or with --replay every episode")
	completeFlag(command, "replay", "24h", "7d", "30d")
	return command
}

func (o *alertsTestOptions) runTests(stdout io.Writer, paths []string) error {
	passed, failed := 0, 0
	for _, path := range paths {
		file, set, err := readTests(path)
		if err != nil {
			return err
		}
		for _, result := range ruletest.Run(file, set) {
			if len(result.Failures) > 0 {
				failed++
			} else if passed++; !o.verbose {
				continue
			}
			if _, err := fmt.Fprintln(stdout, printableLines(result.Summary())); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d tests failed", failed, passed+failed)
	}
	_, err := fmt.Fprintln(stdout, plural(passed, "test passed", "tests passed"))
	return err
}

// printableLines makes each line printable.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = table.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// readTests reads a file of tests and the rules that it names.
func readTests(path string) (*ruletest.File, *rule.Set, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	file, err := ruletest.Parse(data, path)
	if err != nil {
		if strings.Contains(string(data), "kind: "+rule.Kind) {
			err = fmt.Errorf("%s is a rule file: 'herald alerts check' validates it; tests are in files of their own, with rule_files", path)
		}
		return nil, nil, err
	}
	names := make([]string, len(file.RuleFiles))
	for i, name := range file.RuleFiles {
		if names[i] = name; !filepath.IsAbs(name) {
			names[i] = filepath.Join(filepath.Dir(path), name)
		}
	}
	set, err := readRules(names, file.UsesDefaults(), file.Disable)
	return file, set, err
}

// readRules reads rule files and merges them, with or without the default rules.
func readRules(paths []string, hasDefaults bool, disable []string) (*rule.Set, error) {
	var files []*rule.File
	if hasDefaults {
		files = append(files, rule.Default())
	}
	var errs []error
	for _, path := range paths {
		file, err := readRuleFile(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files = append(files, file)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return rule.Merge(disable, files...)
}

func (o *alertsTestOptions) runReplay(ctx context.Context, stdout io.Writer, args []string) error {
	length, err := expression.ParseDuration(o.replay)
	if err != nil || length <= 0 {
		return usageErrorf("--replay %s: must be a duration, like 24h or 7d", o.replay)
	}
	duration := time.Duration(0)
	if o.whatIf != "" {
		if duration, err = expression.ParseDuration(o.whatIf); err != nil {
			return usageErrorf("--for %s: must be a duration, like 5m", o.whatIf)
		}
	}
	paths, err := findRuleFiles(args)
	if err != nil {
		return err
	}
	set, err := readRules(paths, len(args) == 0, nil)
	if err != nil {
		return err
	}
	now := time.Now()
	book, err := replay.Read(ctx, o.client(), now.Add(-length), now)
	if err != nil {
		return err
	}
	report := book.Run(set)
	var other *replay.Report
	if o.whatIf != "" {
		other = book.Run(replay.WithFor(set, duration))
	}
	return o.printReplay(stdout, report, other)
}

func (o *alertsTestOptions) printReplay(out io.Writer, report, other *replay.Report) error {
	fmt.Fprintf(out, "%s and %s since %s\n", plural(report.Records, "record", "records"), plural(report.Pods, "pod", "pods"),
		formatClock(report.Since, report.Until))
	header := []string{"ALERT", "EPISODES", "OBJECTS", "LONGEST", "TOTAL", "FIRING"}
	if other != nil {
		header = append(header, "WITH FOR "+o.whatIf)
	}
	lines := [][]string{header}
	var quiet []string
	for i := range report.Rules {
		r := &report.Rules[i]
		if len(r.Episodes) == 0 && (other == nil || len(other.Rules[i].Episodes) == 0) {
			quiet = append(quiet, r.Rule.Name)
			continue
		}
		objects := map[string]bool{}
		for j := range r.Episodes {
			objects[r.Episodes[j].Labels.Key()] = true
		}
		line := []string{
			r.Rule.Name, strconv.Itoa(len(r.Episodes)), strconv.Itoa(len(objects)), formatDuration(r.Longest(report.Until)),
			formatDuration(r.Total(report.Until)), strconv.Itoa(r.Firing()),
		}
		if other != nil {
			line = append(line, strconv.Itoa(len(other.Rules[i].Episodes)))
		}
		lines = append(lines, line)
	}
	if len(lines) > 1 {
		if err := table.NewGrid(out).Print(lines...); err != nil {
			return err
		}
	}
	if o.verbose {
		if err := printEpisodes(out, report); err != nil {
			return err
		}
	}
	if len(quiet) > 0 {
		fmt.Fprintln(out, "did not fire:", strings.Join(quiet, ", "))
	}
	printReplayNotes(out, report)
	return nil
}

// printReplayNotes prints what the report cannot say.
func printReplayNotes(out io.Writer, report *replay.Report) {
	skipped := map[string][]string{}
	for _, s := range report.Skipped {
		skipped[s.Reads] = append(skipped[s.Reads], s.Rule.Name)
	}
	for _, reads := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Fprintf(out, "skipped, because the history does not have %s: %s\n", reads, strings.Join(skipped[reads], ", "))
	}
	if report.Incomplete > 0 {
		fmt.Fprintf(out, "note: the beginning of %s is not kept\n", plural(report.Incomplete, "pod", "pods"))
	}
	if report.Folded > 0 {
		fmt.Fprintf(out, "note: %s for several versions of a status each, of which only the last is known\n",
			plural(report.Folded, "record stands", "records stand"))
	}
}

func printEpisodes(out io.Writer, report *replay.Report) error {
	lines := [][]string{{"", "ALERT", "OBJECT", "FROM", "FOR", "FLAPS"}}
	for i := range report.Rules {
		for j := range report.Rules[i].Episodes {
			e := &report.Rules[i].Episodes[j]
			state := "resolved"
			if e.EndsAt.IsZero() {
				state = "firing"
			}
			lines = append(lines, []string{
				state, e.Labels[alert.LabelName], table.Printable(alertObject(e.Labels)), formatClock(e.StartsAt, report.Until),
				formatDuration(cmp.Or(e.EndsAt, report.Until).Sub(e.StartsAt)), strconv.Itoa(e.Flaps),
			})
		}
	}
	fmt.Fprintln(out)
	return table.NewGrid(out).Print(lines...)
}
