// Package cli is the herald command: its subcommands, flags, configuration file and exit statuses.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1 // it did not work, or is not as it should be
	exitUsage       = 2 // the command line or the configuration is wrong
	exitUnreachable = 3 // no agent answers
	exitNotFound    = 4 // there is no such pod
)

// failure is an error with an exit status of its own.
type failure struct {
	error
	status int
}

func (f failure) Unwrap() error { return f.error }

func usage(format string, args ...any) error { return failure{fmt.Errorf(format, args...), exitUsage} }

// Main runs the command and returns its exit status. SIGINT and SIGTERM end what it does.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(stderr, "herald:", err)
	var f failure
	if errors.As(err, &f) {
		return f.status
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "herald",
		Short: "Runs the pods of one machine, and tells how they are",
		Long: `Herald is a node's agent: it runs pods from a folder of manifests, a URL or an API server, and reports truthfully and
quickly how they are. It needs no cluster.

  herald demo                                   see it work: no root, no containers, nothing is left behind
  herald check pod.yaml                         would this manifest be accepted?
  herald run --manifests /etc/kubernetes/manifests
  herald get pods -A -w                         what kubectl get pods would say, from the node itself

Exit status: 0 all is well, 1 it failed or is not as it should be, 2 wrong usage or configuration, 3 no agent answers,
4 no such pod.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w\nSee '%s --help'.", err, cmd.CommandPath())
	})
	root.AddCommand(newDemo(), newRun(), newGet(), newCheck(), newVersion())
	return root
}
