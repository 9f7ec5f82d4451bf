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
		Use: "demo", Short: "Shows the main job on this machine: no root, no containers, nothing is left behind", Args: noArguments,
		Long: `Starts an agent alone, with plain processes as containers, and four small pods that teach something: a web server whose
readiness turns true, fails and recovers; a slow starter behind a startup probe; a job that completes; and one that crashes
again and again. It shows the table of their statuses as they change, until Ctrl-C, and where to ask about them.

Nothing is left behind however it ends, also when it is killed: a second process, the guard, sees to that.

With --for it ends by itself, with exit status 0 if the pods came to what they should and 1 if not; 20s is enough.`,
		Example: `  herald demo

  # As a test of this machine.
  herald demo --for 20s && echo it works`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lasts < 0 {
				return usage("--for %v: want a time, like 30s", lasts)
			}
			signal.Ignore(syscall.SIGPIPE) // who reads along may leave, but the pods must be ended
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return demo.Run(ctx, demo.Options{For: lasts, Out: cmd.OutOrStdout()})
		},
	}
	command.Flags().DurationVar(&lasts, "for", 0, "end after this time and say whether all went well, e.g. 30s")
	command.AddCommand(&cobra.Command{
		Use: "pod NAME [PORT]", Hidden: true, Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return demo.Program(ctx, cmd.ErrOrStderr(), args[0], append(args, "")[1])
		},
	}, &cobra.Command{
		Use: "guard FOLDER", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return demo.Guard(ctx, cmd.InOrStdin(), args[0])
		},
	})
	return command
}
