package cli

import "github.com/spf13/cobra"

// NewCommandTree returns all commands, as Main has them.
func NewCommandTree() *cobra.Command {
	root := newRootCommand()
	addCompletionCommand(root)
	root.InitDefaultHelpCmd()
	return root
}
