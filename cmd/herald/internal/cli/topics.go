package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// newExitTopic is a text that 'herald help exit' shows.
func newExitTopic() *cobra.Command {
	return &cobra.Command{
		Use: "exit", Short: "What the exit statuses mean",
		Long: "The exit statuses of herald:\n\n" + strings.TrimSpace(ExitStatuses),
	}
}

// newHelp is 'herald help', which says so when there is nothing that it is asked about.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			about, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range about.Commands() {
				if sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
					names = append(names, sub.Name()+"\t"+sub.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return usageError{err}
			}
			if about.HasSubCommands() && len(rest) > 0 { // others take arguments, which help passes over
				return helpOrNoSuchCommand(about, rest)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}
