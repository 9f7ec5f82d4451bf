package cli

import (
	"errors"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/cmd/herald/internal/demo"
)

func newDemoCommand() *cobra.Command {
	var duration time.Duration
	command := &cobra.Command{
		Use: "demo", Short: "Show what Herald does, with four pods as host processes: no root, no containers",
		GroupID: groupRun, Args: noArguments,
		Long: `Run an agent without a cluster and four pods as host processes, and tell a story about them: pods start; one crashes
repeatedly and is explained; one waits for its startup probe; one fails its readiness probe, so that an alert fires, and recovers; a
manifest is corrected; a broken edit of another one is refused, and its pod keeps running.

In a terminal this is a live view: the pods, worst first, the alerts, what happens now, and what to try in a second terminal. NO_COLOR
switches colours off. If the output is a file or a pipe, each change is a line. The demo runs until Ctrl-C.

The demo removes everything when it ends. If it is killed, a second process cleans up.

With --for the demo ends when the story is told, which takes about 40 seconds, with exit status 0 if everything happened as expected. If it
is not told within that time, or something else happened, the exit status is 1.`,
		Example: `  herald demo

  # Test whether Herald works on this machine.
  herald demo --for 3m && echo it works`,
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
	command.Flags().DurationVar(&duration, "for", 0, "end when the story is told and check what happened; fail after this time, e.g. 3m")
	command.AddCommand(&cobra.Command{
		Use: "pod NAME [PORT]", Hidden: true, Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := withSignals(cmd.Context())
			defer stop()
			err := demo.Program(ctx, cmd.ErrOrStderr(), args[0], append(args, "")[1])
			if errors.Is(err, demo.ErrCrashed) {
				return errNo // it has printed why
			}
			return err
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
