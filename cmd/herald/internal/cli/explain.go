package cli

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/internal/table"
)

// objectFormats are the formats of commands that print one view.
var objectFormats = []string{formatJSON, formatYAML, formatJSONPath}

// questions are the values of --question.
var questions = map[string]explain.Question{
	"ready": explain.WhyNotReady, "running": explain.WhyNotRunning, "deleted": explain.WhyNotDeleted, "restarting": explain.WhyRestarting,
}

// explainOptions are the options of 'herald explain'.
type explainOptions struct {
	onePodFlags

	question string
}

func newExplainCommand() *cobra.Command {
	o := &explainOptions{}
	command := &cobra.Command{
		Use: "explain POD", Aliases: []string{"why"}, Short: "Say what is wrong with a pod, why, and what happens next", GroupID: groupAsk,
		Long: `Say what is wrong with a pod, why, what the agent does next and when, and what would change it. The lines begin with

  !  the answer
  <  because: the facts, nearest first, with the rule that was applied (docs/behaviour.md)
  >  the next automatic step, and who takes it
  =  what would change the answer
  |  the last lines of the container's log

The exit status is 0 if nothing is wrong and 1 otherwise. A pod that has left the node is explained from its history.

'kubectl explain' is another command: it describes the fields of API objects.`,
		Example: `  # What is wrong with the pod?
  herald explain cart-n1 -n shop

  # Why is it not Ready? Why is it still there?
  herald why cart-n1 -n shop --question ready
  herald why cart-n1 -n shop --question deleted

  # As JSON, with the code of the answer (docs/explain.md).
  herald explain cart-n1 -n shop -o jsonpath='{.verdict.code}'`,
	}
	o.bindOnePod(command, false, o.run)
	command.Flags().StringVar(&o.question, "question", "", "ready, running, deleted or restarting; without it, the worst that is wrong")
	completeFlag(command, "question", "ready", "running", "deleted", "restarting")
	return command
}

func (o *explainOptions) run(ctx context.Context, stdout io.Writer, name string) error {
	question, isQuestion := questions[strings.ToLower(o.question)]
	if !isQuestion && o.question != "" {
		return usageErrorf("--question %s: must be ready, running, deleted or restarting", o.question)
	}
	agent := o.client()
	answer, err := agent.Explain(ctx, o.namespace, name, question)
	if err != nil {
		return o.notFound(ctx, agent, name, err)
	}
	err = o.print(stdout, answer, func() error {
		_, err := io.WriteString(stdout, formatVerdict(&answer.Verdict, time.Now()))
		return err
	})
	if err == nil && !answer.Verdict.OK {
		return errNo
	}
	return err
}

// formatVerdict returns the text of a verdict. It is cleaned here too: the agent may be another version.
func formatVerdict(v *explain.Verdict, now time.Time) string {
	var text strings.Builder
	for line := range strings.Lines(v.Text(now)) {
		text.WriteString(table.Printable(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return text.String()
}

// formatClock returns the local time of day, with the date if it is not within a day.
func formatClock(t, now time.Time) string {
	if distance := now.Sub(t); distance > 24*time.Hour || distance < -24*time.Hour {
		return t.Local().Format("2006-01-02 15:04:05")
	}
	return t.Local().Format("15:04:05")
}
