package cli

import (
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/cmd/herald/internal/demo"
)

func newDemo() *cobra.Command {
	var lasts time.Duration
	command := &cobra.Command{
		Use: "demo", Short: "Shows the main job on this machine: no root, no containers, nothing is left behind", Args: cobra.NoArgs,
		Long: `Starts an agent alone, with plain processes as containers, and four small pods that teach something: a web server whose
readiness turns true, fails and recovers; a slow starter behind a startup probe; a job that completes; and one that crashes
again and again. It shows the table of their statuses as they change, until Ctrl-C.

With --for it ends by itself, with exit status 0 if the pods came to what they should and 1 if not.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(syscall.SIGPIPE) // who reads along may leave, but the pods must be ended
			return demo.Run(cmd.Context(), demo.Options{For: lasts, Out: cmd.OutOrStdout()})
		},
	}
	command.Flags().DurationVar(&lasts, "for", 0, "end after this time and say whether all went well, e.g. 30s")
	command.AddCommand(&cobra.Command{
		Use: "pod NAME [PORT]", Hidden: true, Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return demo.Program(cmd.Context(), cmd.ErrOrStderr(), args[0], append(args, "")[1])
		},
	})
	return command
}
