package cli

import (
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/cmd/herald/internal/demo"
)

func newDemoCommand() *cobra.Command {
	var duration time.Duration
	command := &cobra.Command{
		Use: "demo", Short: "Run four demo pods as host processes: no root, no containers", GroupID: groupRun, Args: noArguments,
		Long: `Run an agent without a cluster and four pods as host processes: a web server that becomes ready, fails its readiness
probe and recovers; a slow starter with a startup probe; a job that completes; and a container that crashes repeatedly.
A live table shows their statuses, and the alerts that fire and are resolved, until Ctrl-C.

The demo removes everything when it ends. If it is killed, a second process cleans up.

With --for the demo ends by itself, with exit status 0 if all pods and alerts reached their expected states and 1 otherwise.
20s is enough.`,
		Example: `  herald demo

  # Test whether Herald works on this machine.
  herald demo --for 20s && echo it works`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if duration < 0 {
				return usageErrorf("--for %v: must not be negative", duration)
			}
			signal.Ignore(syscall.SIGPIPE) // the pods must be stopped even if the output is closed
			ctx, stop := withSignals(cmd.Context())
			defer stop()
			return demo.Run(ctx, demo.Options{For: duration, Out: cmd.OutOrStdout()})
		},
	}
	command.Flags().DurationVar(&duration, "for", 0, "end after this time and check the pods, e.g. 30s")
	command.AddCommand(&cobra.Command{
		Use: "pod NAME [PORT]", Hidden: true, Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := withSignals(cmd.Context())
			defer stop()
			return demo.Program(ctx, cmd.ErrOrStderr(), args[0], append(args, "")[1])
		},
	}, &cobra.Command{
		Use: "reap DIR", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := withSignals(cmd.Context())
			defer stop()
			return demo.Reap(ctx, cmd.InOrStdin(), args[0])
		},
	})
	return command
}
