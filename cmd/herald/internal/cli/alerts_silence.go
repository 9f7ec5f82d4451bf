package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/cmd/herald/internal/client"
	"github.com/heraldnode/herald/internal/table"
)

// silenceOptions are the options of 'herald alerts silence'.
type silenceOptions struct {
	objectFlags

	comment  string
	duration time.Duration
}

func newAlertsSilenceCommand() *cobra.Command {
	o := &silenceOptions{}
	command := &cobra.Command{
		Use: "silence MATCHER... --for DURATION --comment TEXT", Short: "Silence alerts for a while",
		Long: `Silence the alerts whose labels all matchers match. A silenced alert fires and is recorded as before, but nobody is told and no
action is taken; what was told before is still told to be resolved. The silence survives a restart of the agent.

A matcher is a label, an operator and a value: pod=web-n1, severity!=critical, pod=~"web-.*", namespace!~"kube-.*". Labels are alertname,
namespace, pod, container, node, scope, severity, and those of the rule. Regular expressions match the whole value.

Only the user of the agent and root may do this, and only through the agent's unix socket.`,
		Example: `  # A disk is replaced.
  sudo herald alerts silence alertname=DiskFullSoon --for 2h --comment "new disk"

  # All alerts of some pods.
  sudo herald alerts silence namespace=shop 'pod=~"cart-.*"' --for 30m --comment "migration"

  # Which silences are there? End one.
  herald alerts silence list
  sudo herald alerts silence expire 5f1c`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), args)
		},
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return completeMatchers(cmd.Context(), o.server, typed)
		},
	}
	o.bindObject(command)
	command.Flags().DurationVar(&o.duration, "for", 0, "how long, like 30m or 2h; required")
	command.Flags().StringVar(&o.comment, "comment", "", "why; required")
	command.AddCommand(newSilenceListCommand(), newSilenceExpireCommand())
	return command
}

func (o *silenceOptions) run(ctx context.Context, stdout io.Writer, args []string) error {
	switch {
	case len(args) == 0:
		return usageErrorf("at least one matcher is required, like pod=web-n1\nSee 'herald alerts silence --help' for usage")
	case o.duration <= 0:
		return usageErrorf("--for is required and must be positive, like 2h")
	case o.comment == "":
		return usageErrorf("--comment is required: others must know why")
	}
	silence := alert.Silence{Comment: o.comment, CreatedBy: userName(), EndsAt: time.Now().Add(o.duration)}
	for _, arg := range args {
		matcher, err := alert.ParseMatcher(arg)
		if err != nil {
			return usageError{err}
		}
		silence.Matchers = append(silence.Matchers, matcher)
	}
	list, err := o.client().AddSilence(ctx, silence)
	if err != nil {
		return err
	}
	return o.print(stdout, list, func() error { return printSilences(stdout, list.Items, time.Now()) })
}

// userName returns the name of the user, also under sudo.
func userName() string {
	if name := os.Getenv("SUDO_USER"); name != "" {
		return name
	}
	if current, err := user.Current(); err == nil {
		return current.Username
	}
	return ""
}

func newSilenceListCommand() *cobra.Command {
	o := &objectFlags{}
	command := &cobra.Command{
		Use: "list", Short: "Display the silences", Args: noArguments,
		Long: `Display the silences that have not ended.`,
	}
	o.bindObject(command)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.parse(); err != nil {
			return err
		}
		list, err := o.client().Silences(cmd.Context())
		if err != nil {
			return err
		}
		return o.print(cmd.OutOrStdout(), list, func() error {
			if len(list.Items) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "There are no silences.")
				return nil
			}
			return printSilences(cmd.OutOrStdout(), list.Items, time.Now())
		})
	}
	return command
}

func newSilenceExpireCommand() *cobra.Command {
	o := &objectFlags{}
	command := &cobra.Command{
		Use: "expire ID...", Short: "End silences",
		Long: `End silences before their time. Alerts that fire are told again.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("the ID of a silence is required: see 'herald alerts silence list'")
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			list, _ := client.New(o.server, completionTimeout).Silences(cmd.Context()) // none if the agent is unreachable
			var ids []string
			for i := range list.Items {
				ids = append(ids, list.Items[i].ID+"\t"+list.Items[i].Comment)
			}
			return ids, cobra.ShellCompDirectiveNoFileComp
		},
	}
	o.bindObject(command)
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.parse(); err != nil {
			return err
		}
		for _, id := range args {
			list, err := o.client().ExpireSilence(cmd.Context(), id)
			if err != nil {
				return err
			}
			err = o.print(cmd.OutOrStdout(), list, func() error {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "silence %s has ended\n", table.Printable(id))
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	return command
}

func printSilences(out io.Writer, silences []alert.Silence, now time.Time) error {
	lines := [][]string{{"ID", "ENDS IN", "MATCHERS", "BY", "COMMENT"}}
	for i := range silences {
		silence := &silences[i]
		var matchers []string
		for _, matcher := range silence.Matchers {
			matchers = append(matchers, matcher.String())
		}
		ends := formatDuration(max(0, silence.EndsAt.Sub(now)).Round(time.Second))
		if silence.StartsAt.After(now) {
			ends += ", begins in " + formatDuration(silence.StartsAt.Sub(now).Round(time.Second))
		}
		lines = append(lines, []string{
			table.Printable(silence.ID), ends, table.Printable(strings.Join(matchers, " ")), table.Printable(silence.CreatedBy),
			table.Printable(silence.Comment),
		})
	}
	return table.NewGrid(out).Print(lines...)
}

// completeMatchers offers the labels of the alerts, and their values once a label was typed.
func completeMatchers(ctx context.Context, server, typed string) ([]string, cobra.ShellCompDirective) {
	list, _ := client.New(server, completionTimeout).Alerts(ctx, nil) // none if the agent is unreachable
	name, _, hasValue := strings.Cut(typed, "=")
	seen := map[string]bool{}
	var words []string
	for i := range list.Items {
		for label, value := range list.Items[i].Labels {
			word := label + "="
			if hasValue {
				word = label + "=" + value
			}
			if !seen[word] && (!hasValue || label == name) {
				seen[word] = true
				words = append(words, word)
			}
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
