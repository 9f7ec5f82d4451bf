package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/cmd/herald/internal/config"
)

// newExitTopic is a text that 'herald help exit' shows.
func newExitTopic() *cobra.Command {
	return &cobra.Command{
		Use: "exit", Short: "What the exit statuses mean",
		Long: "The exit statuses of herald:\n\n" + strings.TrimSpace(ExitStatuses),
	}
}

// newConfigTopic is a text that 'herald help config' shows.
func newConfigTopic() *cobra.Command {
	var fields strings.Builder
	for _, field := range config.Fields() {
		line := fmt.Sprintf("  %-28s %-32s", field.Path, field.Type)
		if field.Flag != "" {
			line += " --" + field.Flag
		}
		fields.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return &cobra.Command{
		Use: "config", Short: "What can be in the configuration file",
		Long: `The configuration file of 'herald run', and files *.conf in the folder that --config-dir names, begin with

  apiVersion: ` + config.APIVersion + `
  kind: ` + config.Kind + `

Later files win over earlier ones and flags over all: lists are replaced, maps are joined. The fields, and the flags that say
the same; docs/config.md explains each:

` + strings.TrimRight(fields.String(), "\n"),
	}
}
