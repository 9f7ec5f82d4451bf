package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/view"
)

func newActionsCommand() *cobra.Command {
	o := &objectFlags{}
	limit := history.DefaultLimit
	command := &cobra.Command{
		Use: "actions", Short: "Display what rules did, or would have done", GroupID: groupAsk,
		Long: `Display the actions that alerts asked for, newest first: what was done, what would have been done in a dry run, what was refused
and why, and whether it helped. Actions that disrupt are dry runs unless their rule says 'mode: enforce'.

When too many pods fail at once, disruptive actions are suspended: then the node is the cause, and restarts would not help. They are
resumed after a calm time, or by 'herald actions resume'.`,
		Example: `  herald actions

  # The fault is repaired: let actions happen again.
  sudo herald actions resume`,
		Args: cobra.ArbitraryArgs,
	}
	command.SuggestionsMinimumDistance = 2
	o.bindObject(command)
	command.Flags().IntVar(&limit, "limit", limit, "show at most this many of the newest, up to "+strconv.Itoa(history.MaxLimit))
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && args[0] != "list" {
			return runParentCommand(cmd, args)
		}
		if err := o.parse(); err != nil {
			return err
		}
		if limit < 1 || limit > history.MaxLimit {
			return usageErrorf("--limit %d: must be between 1 and %d", limit, history.MaxLimit)
		}
		list, err := o.client().Actions(cmd.Context(), limit)
		if err != nil {
			return err
		}
		return o.print(cmd.OutOrStdout(), list, func() error { return printActions(cmd.OutOrStdout(), cmd.ErrOrStderr(), &list, time.Now()) })
	}
	command.AddCommand(newActionsResumeCommand())
	return command
}

func newActionsResumeCommand() *cobra.Command {
	o := &objectFlags{}
	command := &cobra.Command{
		Use: "resume", Short: "Let actions happen again that were suspended", Args: noArguments,
		Long: `Let disruptive actions happen again before the calm time is over. Only the user of the agent and root may do this, and only through
the agent's unix socket. The exit status is 1 if they were not suspended.`,
	}
	o.bindObject(command)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.parse(); err != nil {
			return err
		}
		list, err := o.client().ResumeActions(cmd.Context())
		if err != nil {
			return err
		}
		return o.print(cmd.OutOrStdout(), list, func() error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "actions are resumed")
			return err
		})
	}
	return command
}

func printActions(out, notes io.Writer, list *view.ActionList, now time.Time) error {
	if list.Suspended != "" {
		until := ""
		if list.SuspendedUntil != nil {
			until = " until " + formatClock(list.SuspendedUntil.Time, now)
		}
		fmt.Fprintf(out, "suspended%s: %s\n", until, table.Printable(list.Suspended))
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(notes, "No actions were asked for.")
		return nil
	}
	lines := [][]string{{"AGE", "ACTION", "OBJECT", "ALERT", "DECISION", "OUTCOME", "REASON"}}
	for i := range list.Items {
		action := &list.Items[i]
		at := "-"
		if action.At != nil {
			at = age(action.At.Time, now)
		}
		lines = append(lines, []string{
			at, action.Type, table.Printable(action.Object), table.Printable(action.Rule), action.Decision,
			cmp.Or(action.Outcome, "-"), table.Printable(cmp.Or(action.Message, action.Reason, "-")),
		})
	}
	return table.NewGrid(out).Print(lines...)
}
