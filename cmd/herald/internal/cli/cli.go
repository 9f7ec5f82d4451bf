// Package cli implements the herald command: its subcommands, flags and exit statuses.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
)

// Exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
)

// ExitStatuses documents the exit statuses.
const ExitStatuses = `0  success
1  failure: an error, an invalid manifest, a pod that was not found, a demo whose pods did not reach their
   expected states, or no container runtime; explain: something is wrong with the pod; wait: the condition
   is not met, or never will be; probe: a check failed
2  invalid command line or configuration
3  the agent is unreachable or closed the connection
exec: the exit status of the command, if it ran
`

// usageError marks an error of the command line or the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// errNo is the answer no of a command that has printed why. Nothing more is printed.
var errNo = errors.New("no")

func usageErrorf(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Main runs the command and returns its exit status. The first of args is the name of the program, which the usage repeats. Commands
// that must clean up handle signals themselves; all others end by the default action of the signal.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	if len(args) > 0 {
		root.SetArgs(args[1:])
		nameAfter(root, args[0])
	}
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	addCompletionCommand(root)
	err := root.ExecuteContext(context.Background())
	if _, hasExited := client.ExitCode(err); hasExited {
		fmt.Fprintln(stderr, err) // as kubectl does
	} else if err != nil && !errors.Is(err, errNo) {
		fmt.Fprintln(stderr, "herald:", err)
	}
	return exitStatus(err)
}

func exitStatus(err error) int {
	if code, hasExited := client.ExitCode(err); hasExited {
		return code
	}
	var usage usageError
	var unreachable *client.UnreachableError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &unreachable):
		return exitUnreachable
	default:
		return exitFailed
	}
}

// withSignals returns a context that ends on SIGINT, SIGTERM or SIGHUP. None of them ends the process until stop is called.
func withSignals(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // ignored under nohup
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(parent, signals...)
}

// Groups of commands in the help.
const (
	groupAsk   = "ask"
	groupRun   = "run"
	groupCheck = "check"
)

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "herald",
		Short: "Run the pods of one machine and report their status",
		Long: `Herald is a node agent. It runs pods from a manifest directory, a URL or an API server and reports their status.
It does not need a cluster.`,
		Example: `  # Try it: no root, no containers, nothing is left behind.
  herald demo

  # Validate a manifest.
  herald check web.yaml

  # Run the pods of a manifest directory in containerd.
  sudo herald run --manifests /etc/kubernetes/manifests

  # How is this node, and what is wrong with a pod?
  sudo herald status
  sudo herald explain web-n1

  # Watch all pods of this node.
  sudo herald get pods -A -w`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          runParentCommand,
		Version:       version(),
	}
	root.SetVersionTemplate(readBuildInfo().String() + "\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageErrorf("%w\nSee '%s --help' for usage", err, cmd.CommandPath())
	})
	root.SuggestionsMinimumDistance = 2
	root.AddGroup(
		&cobra.Group{ID: groupAsk, Title: "Ask a running agent:"},
		&cobra.Group{ID: groupRun, Title: "Run pods:"},
		&cobra.Group{ID: groupCheck, Title: "Check and configure:"},
	)
	root.AddCommand(newStatusCommand(), newGetCommand(), newDescribeCommand(), newExplainCommand(), newHistoryCommand(),
		newEventsCommand(), newTopCommand(), newAlertsCommand(), newActionsCommand(), newSourcesCommand(), newWaitCommand(),
		newRestartCommand(), newProbeCommand(), newLogsCommand(), newUICommand(), newExecCommand(), newAttachCommand(), newPortForwardCommand(),
		newRunCommand(), newDemoCommand(),
		newCheckCommand(), newConfigCommand(), newKubeconfigCommand(), newVersionCommand(), newManCommand(), newExitTopic())
	root.SetCompletionCommandGroupID(groupCheck)
	root.SetHelpCommandGroupID(groupCheck)
	root.SetHelpCommand(newHelpCommand())
	return root
}

// runParentCommand runs a command that only has subcommands: it prints the help, or rejects an unknown subcommand.
func runParentCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	name := strings.TrimPrefix(cmd.CommandPath()+" "+args[0], cmd.Root().DisplayName()+" ")
	return usageErrorf("unknown command %q%s\nSee '%s --help' for usage", name, didYouMean(cmd.SuggestionsFor(args[0])), cmd.CommandPath())
}

func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	quoted := make([]string, 0, len(names))
	for _, name := range names {
		quoted = append(quoted, strconv.Quote(name))
	}
	return "; did you mean " + strings.Join(quoted, " or ") + "?"
}

// noArguments rejects all positional arguments.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("unexpected argument %q: %s takes only flags\nSee '%[2]s --help' for usage", args[0], cmd.CommandPath())
	}
	return nil
}

// newExitTopic returns the help topic that 'herald help exit' prints.
func newExitTopic() *cobra.Command {
	return &cobra.Command{
		Use: "exit", Short: "List the exit statuses",
		Long: "Exit statuses of herald:\n\n" + strings.TrimSpace(ExitStatuses),
	}
}

// newHelpCommand returns a help command that, unlike cobra's, fails on an unknown topic.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Print help about any command",
		ValidArgsFunction: completeHelpTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil {
				return usageError{err}
			}
			if topic.HasSubCommands() && len(rest) > 0 { // arguments of other commands are ignored
				return runParentCommand(topic, rest)
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		},
	}
}

func completeHelpTopics(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	parent, _, err := cmd.Root().Find(args)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, sub := range parent.Commands() {
		if sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			names = append(names, sub.Name()+"\t"+sub.Short)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// addCompletionCommand adds cobra's completion command and makes it reject unknown shells. Call it after SetOut: cobra binds
// the output when it creates the command.
func addCompletionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = cobra.ArbitraryArgs, runParentCommand
	}
}

// completeFlag registers the values that the shell offers for a flag.
func completeFlag(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag does not exist
	}
}
