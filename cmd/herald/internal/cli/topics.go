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
