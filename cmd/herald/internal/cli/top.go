package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/view"
)

func newTopCommand() *cobra.Command {
	top := &cobra.Command{
		Use: "top", Short: "Display what the node and its pods use of the machine", GroupID: groupAsk,
		Long: `Display what this node or its pods use of the machine, as the agent measures it: without metrics-server and without
an API server.`,
		Example: `  herald top node
  herald top pods -A --sort-by memory`,
		Args: cobra.ArbitraryArgs, RunE: runParentCommand,
	}
	top.AddCommand(newTopNodeCommand(), newTopPodsCommand())
	return top
}

// watchFlags repeat a command.
type watchFlags struct {
	watch    bool
	interval time.Duration
}

func (f *watchFlags) bindWatch(command *cobra.Command, interval time.Duration) {
	command.Flags().BoolVarP(&f.watch, "watch", "w", false, "repeat until interrupted")
	command.Flags().DurationVar(&f.interval, "interval", interval,
		"with --watch, how often; the agent does not measure more often than the default")
}

// repeat calls show once, or again and again until a signal. On a terminal each output replaces the one before.
func (f *watchFlags) repeat(cmd *cobra.Command, show func(ctx context.Context) error) error {
	if !f.watch {
		return show(cmd.Context())
	}
	if f.interval <= 0 {
		return usageErrorf("--interval %v: must be positive", f.interval)
	}
	ctx, stop := withSignals(cmd.Context())
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	for isFirst := true; ; isFirst = false {
		switch {
		case isTerminal(cmd.OutOrStdout()):
			fmt.Fprint(cmd.OutOrStdout(), "\x1b[H\x1b[2J")
		case !isFirst:
			fmt.Fprintln(cmd.OutOrStdout())
		}
		if err := show(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.interval):
		}
	}
}

func isTerminal(out io.Writer) bool {
	file, isFile := out.(*os.File)
	if !isFile {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// topNodeOptions are the options of 'herald top node'.
type topNodeOptions struct {
	objectFlags
	watchFlags
	historyFlags
}

// Intervals of the agent's measurements.
const (
	nodeInterval = 10 * time.Second
	podInterval  = 15 * time.Second
)

func newTopNodeCommand() *cobra.Command {
	o := &topNodeOptions{}
	command := &cobra.Command{
		Use: "node", Aliases: []string{"nodes", "no"}, Short: "Display the load of this node", Args: noArguments,
		Long: `Display the load of this node: how close it is to its limits and by which resource, each signal over the last 1, 5 and 15 minutes
with the largest value of the last 15, and the file systems.

PRESSURE is the share of the last minute in which something had to wait for the resource (PSI). It counts for the load of memory and
disk, and for that of the CPU while the CPUs are 80% busy: otherwise it comes from a limit that a pod has. FULL IN says when a file
system is full if it grows on as in the last 15 minutes or 6 hours, whichever is slower. "-" means not known, which is not 0.

--history draws the last 24 hours, which the agent keeps over restarts: the largest value of each half hour, full height is 100%, and
"·" stands for a time without measurements.

The load is information: it changes neither the conditions of the node nor what runs on it.`,
		Example: `  herald top node

  # Again and again.
  herald top node -w

  # The last 24 hours, and the last six.
  herald top node --history
  herald top node --history=6h

  # One number for a script; empty while it is not known.
  herald top node -o jsonpath='{.load.saturation}'`,
	}
	o.bindObject(command)
	o.bindWatch(command, nodeInterval)
	o.bindHistory(command)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.parse(); err != nil {
			return err
		}
		if err := o.checkHistory(); err != nil {
			return err
		}
		return o.repeat(cmd, func(ctx context.Context) error { return o.show(ctx, cmd.OutOrStdout()) })
	}
	return command
}

func (o *topNodeOptions) show(ctx context.Context, stdout io.Writer) error {
	if o.duration != 0 {
		return o.showHistory(ctx, stdout)
	}
	node, err := o.client().Node(ctx)
	if err != nil {
		return err
	}
	return o.print(stdout, node, func() error { return printNodeLoad(stdout, &node, time.Now()) })
}

// topPodsOptions are the options of 'herald top pods'.
type topPodsOptions struct {
	objectFlags
	podSelector
	watchFlags
	historyFlags

	labelSelector, sortBy string
	containers, noHeaders bool
}

// sortKeys are the values of --sort-by.
var sortKeys = []string{"cpu", "memory"}

func newTopPodsCommand() *cobra.Command {
	o := &topPodsOptions{}
	command := &cobra.Command{
		Use: "pods [NAME...]", Aliases: []string{"pod", "po"}, Short: "Display the CPU and memory that pods use",
		Long: `Display the CPU and memory that pods or containers use, as means of the last minute, and their shares of the limits. MEMORY is the
working set, which counts for the limit. THROTTLED is the share of scheduler periods in which the CPU limit held the processes back.

Pods are measured every 60 seconds, and every 15 seconds for 2 minutes after somebody asked: the first numbers may be a minute old, and a
new pod has none yet. "-" means not known, or that there is no limit; it does not mean 0.

--history draws the last 24 hours of each pod, with full height for its largest value. It does not cause measurements.`,
		Example: `  # The pods of all namespaces, those that use most memory first.
  herald top pods -A --sort-by memory

  # The containers of one pod, again and again.
  herald top pods web-n1 -n shop --containers -w

  # The last 24 hours.
  herald top pods -A --history

  # The bytes that a pod uses, for a script.
  herald top pods web-n1 -n shop -o jsonpath='{.items[0].load.memory.workingSetBytes.last1m.mean}'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parseArguments(cmd, args); err != nil {
				return err
			}
			return o.repeat(cmd, func(ctx context.Context) error { return o.show(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr()) })
		},
	}
	o.bindObject(command)
	o.bindNamespace(command, &o.agentFlags)
	o.bindAll(command)
	o.bindWatch(command, podInterval)
	o.bindHistory(command)
	flags := command.Flags()
	flags.StringVarP(&o.labelSelector, "selector", "l", "", "label selector, like app=web,tier!=db")
	flags.StringVar(&o.sortBy, "sort-by", "", "cpu or memory, largest first; without it, by name")
	flags.BoolVar(&o.containers, "containers", false, "display the containers of each pod")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "do not print headers")
	command.ValidArgsFunction = podArguments{agent: &o.agentFlags, namespaces: &o.namespaceFlags}.complete
	completeFlag(command, "sort-by", sortKeys...)
	return command
}

func (o *topPodsOptions) parseArguments(cmd *cobra.Command, names []string) error {
	for _, name := range names {
		if name == "" || strings.Contains(name, "/") {
			return usageErrorf("%q is not the name of a pod\nSee '%s --help' for usage", name, cmd.CommandPath())
		}
	}
	o.setDefault()
	o.names = names
	if o.sortBy != "" && !slices.Contains(sortKeys, o.sortBy) {
		return usageErrorf("--sort-by %s: must be %s", o.sortBy, oneOf(sortKeys))
	}
	if err := o.parseSelectors(o.labelSelector, ""); err != nil {
		return err
	}
	if err := o.checkHistory(); err != nil {
		return err
	}
	return o.parse()
}

func (o *topPodsOptions) show(ctx context.Context, stdout, stderr io.Writer) error {
	parameters := url.Values{}
	if o.duration == 0 || o.sortBy != "" {
		parameters.Set("load", "true")
	}
	list, err := o.client().PodViews(ctx, parameters)
	if err != nil {
		return err
	}
	pods := make([]v1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = *podOfView(&list.Items[i])
	}
	missing := o.missing(pods)
	list.Items = slices.DeleteFunc(list.Items, func(pod view.PodView) bool { return !o.matches(podOfView(&pod)) })
	sortByLoad(list.Items, o.sortBy)
	if len(list.Items) == 0 && !o.format.isObject() {
		if missing == nil {
			(&getOptions{podSelector: o.podSelector}).printNone(stderr)
		}
		return missing
	}
	if o.duration != 0 {
		return errors.Join(o.showHistory(ctx, stdout, list.Items), missing)
	}
	err = o.print(stdout, list, func() error { return o.printPods(stdout, list.Items) })
	return errors.Join(err, missing)
}
