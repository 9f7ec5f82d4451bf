package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/view"
)

func newSourcesCommand() *cobra.Command {
	o := &objectFlags{}
	command := &cobra.Command{
		Use: "sources", Short: "Display where the pods come from, and manifests that cannot be used", GroupID: groupAsk, Args: noArguments,
		Long: `Display the sources of pods: the manifest directory, the URL and the API server, how many pods each has, and the manifests that
cannot be used, with file, line and field. While a manifest cannot be used, the pod of its last good version keeps running.

Files with rules of alerts are listed too. While one cannot be used, the rules of its last good version are in force.`,
		Example: `  herald sources

  # Is any manifest broken?
  herald sources -o jsonpath='{.items[*].problems[*].message}'`,
	}
	o.bindObject(command)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.parse(); err != nil {
			return err
		}
		list, err := o.client().Sources(cmd.Context())
		if err != nil {
			return err
		}
		return o.print(cmd.OutOrStdout(), list, func() error { return printSources(cmd.OutOrStdout(), &list, time.Now()) })
	}
	return command
}

func printSources(out io.Writer, list *view.SourceList, now time.Time) error {
	lines := [][]string{{"SOURCE", "STATE", "PODS", "LAST CHANGE", "ORIGIN", "PROBLEM"}}
	for i := range list.Items {
		lines = append(lines, sourceLines(&list.Items[i], now)...)
	}
	for i := range list.RuleFiles {
		lines = append(lines, ruleFileLine(&list.RuleFiles[i], now))
	}
	return table.NewGrid(out).Print(lines...)
}

// sourceLines returns the line of a source, and one for each further problem and ignored file.
func sourceLines(s *view.Source, now time.Time) [][]string {
	state := s.State
	if n := len(s.Problems); n == 1 {
		state = "1 error"
	} else if n > 1 {
		state = fmt.Sprintf("%d errors", n)
	}
	changed := "-"
	if s.LastChange != nil {
		changed = formatClock(s.LastChange.Time, now)
	}
	lines := [][]string{{s.Name, state, fmt.Sprint(s.Pods), changed, table.Printable(s.Origin), ""}}
	for i := range s.Problems {
		problem := table.Printable(formatProblem(&s.Problems[i], now))
		if i == 0 {
			lines[0][5] = problem
		} else {
			lines = append(lines, []string{"", "", "", "", "", problem})
		}
	}
	for _, file := range s.Ignored {
		lines = append(lines, []string{"", "ignored", "", "", "", table.Printable(file)})
	}
	return lines
}

// ruleFileLine returns the line of a file with rules of alerts.
func ruleFileLine(file *view.RuleFile, now time.Time) []string {
	state, problem := file.State, ""
	if file.Problem != "" {
		state, problem = "1 error", formatFileProblem(file, now)
	}
	changed := "-"
	if file.LastChange != nil {
		changed = formatClock(file.LastChange.Time, now)
	}
	return []string{"rules", state, "-", changed, table.Printable(file.Path), table.Printable(problem)}
}

func formatProblem(p *view.Problem, now time.Time) string {
	text := p.Message
	if p.Pod != "" {
		text = p.Pod + ": " + text
	}
	if p.LastGood != nil {
		text += "; the last good version, of " + formatClock(p.LastGood.Time, now) + ", runs"
	}
	return text
}
