// Package cli is the herald command: its subcommands, flags and exit statuses.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
)

// The exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
)

// ExitStatuses explains them.
const ExitStatuses = `0  all is well
1  it failed, or is not as it should be: a manifest that would not be accepted, a pod that is not there, a demo
   whose pods did not come to what they should, no container runtime
2  the command line or the configuration is wrong
3  no agent answers, or not any more
`

// usageError is a mistake of whoever typed the command or wrote the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Main runs the command and returns its exit status. A signal ends the program as it ends others, but for the commands that
// have something to end first.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	addCompletion(root)
	err := root.ExecuteContext(context.Background())
	if err != nil {
		fmt.Fprintln(stderr, "herald:", err)
	}
	return statusOf(err)
}

// untilSignal ends with SIGINT, SIGTERM, and when the terminal is closed; until stop is called none of them ends the program.
func untilSignal(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup wants it ignored
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(parent, signals...)
}

func statusOf(err error) int {
	var wrong usageError
	var unreachable *client.UnreachableError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &wrong):
		return exitUsage
	case errors.As(err, &unreachable):
		return exitUnreachable
	default:
		return exitFailed
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "herald",
		Short: "Runs the pods of one machine, and tells how they are",
		Long: `Herald is a node's agent: it runs pods from a folder of manifests, a URL or an API server, and reports truthfully and
quickly how they are. It needs no cluster.`,
		Example: `  # See it work: no root, no containers, nothing is left behind.
  herald demo

  # Would this manifest be accepted?
  herald check web.yaml

  # Run what a folder says, in containerd.
  sudo herald run --manifests /etc/kubernetes/manifests

  # What kubectl get pods would say, from the node itself.
  sudo herald get pods -A -w`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          helpOrNoSuchCommand,
		Version:       version(),
	}
	root.SetVersionTemplate(readBuild().String() + "\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w\nSee '%s --help'", err, cmd.CommandPath())
	})
	root.SuggestionsMinimumDistance = 2
	root.AddCommand(newDemo(), newRun(), newGet(), newCheck(), newVersion(), newConfig(), newExitTopic())
	root.SetHelpCommand(newHelp())
	return root
}

// addCompletion adds cobra's command, which remembers where root writes to, and has it refuse shells that it does not know.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = cobra.ArbitraryArgs, helpOrNoSuchCommand
	}
}

// helpOrNoSuchCommand is what a command does that has others below it, and none of which was named.
func helpOrNoSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	typed := strings.TrimPrefix(cmd.CommandPath()+" "+args[0], cmd.Root().Name()+" ")
	return usage("there is no command %q%s\nSee '%s --help'", typed, didYouMean(cmd.SuggestionsFor(args[0])), cmd.CommandPath())
}

func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(names, " or ") + "?"
}

// noArguments is for commands that have flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes flags only, not %q\nSee '%s --help'", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}
