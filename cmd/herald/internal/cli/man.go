package cli

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/cmd/herald/internal/manpage"
)

// newManCommand returns the hidden command that writes the manual pages, for packages.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the manual pages to a directory", Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageErrorf("exactly one DIR is required")
			}
			return writeManPages(cmd.Root(), args[0])
		},
	}
}

func writeManPages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pages := manpage.Pages(root, version(), ExitStatuses)
	for _, page := range append(pages, manpage.Page{Name: kubectlPlugin, Text: ".so man1/herald.1\n"}) {
		if err := os.WriteFile(filepath.Join(dir, page.Name+".1"), []byte(page.Text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
