package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
	"github.com/heraldnode/herald/history"
)

// historyOptions are the options of 'herald history'.
type historyOptions struct {
	agentFlags
	namespaceFlags

	output            string
	since, until      string
	limit             int
	cursor            uint64
	logs, all, follow bool

	pod    string // empty: all
	isNode bool
}

func newHistoryCommand() *cobra.Command {
	o := &historyOptions{}
	command := &cobra.Command{
		Use: "history [pod/NAME | node]", Short: "Display what happened to the pods of this node", GroupID: groupAsk,
		Long: `Display how the statuses of this node's pods changed, and why: starts and ends of containers with exit code and last log
line, probe results, back-offs, conditions, and when the API server acknowledged each change. The agent keeps this history
over restarts and after a pod is deleted; see docs/history.md.

Without arguments it shows the pods of the namespace, the node and the agent.`,
		Example: `  # What happened to a pod in the last ten minutes?
  herald history pod/cart-n1 -n shop --since 10m

  # With the last lines of each failed container.
  herald history pod/cart-n1 -n shop --logs

  # Follow everything on this node.
  herald history -A -f

  # As JSON, newest first.
  herald history pod/cart-n1 -n shop -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(cmd, args); err != nil {
				return err
			}
			ctx := cmd.Context()
			if o.follow { // a signal is the regular end
				var stop context.CancelFunc
				ctx, stop = withSignals(ctx)
				defer stop()
				context.AfterFunc(ctx, stop) // a second signal ends the process at once
			}
			return o.run(ctx, cmd.OutOrStdout())
		},
	}
	o.addFlags(command)
	return command
}

func (o *historyOptions) addFlags(command *cobra.Command) {
	flags := command.Flags()
	o.bind(command)
	o.bindNamespace(command, &o.agentFlags)
	o.bindAll(command)
	flags.StringVar(&o.since, "since", "", "show only records after this time: RFC 3339, or how long ago, like 10m")
	flags.StringVar(&o.until, "until", "", "show only records before this time")
	flags.IntVar(&o.limit, "limit", history.DefaultLimit,
		"show at most this many of the newest records, up to "+strconv.Itoa(history.MaxLimit))
	flags.Uint64Var(&o.cursor, "cursor", 0, "show only records older than the one with this sequence number")
	flags.BoolVar(&o.logs, "logs", false, "show all attached lines of failed containers, not only the last")
	flags.BoolVar(&o.all, "all", false, "show all pods that had this name, not only the last")
	flags.BoolVarP(&o.follow, "follow", "f", false, "show new records until interrupted")
	flags.StringVarP(&o.output, "output", "o", "", "output format: json")
	command.ValidArgsFunction = podArguments{agent: &o.agentFlags, namespaces: &o.namespaceFlags, needsResource: true, one: true}.complete
	completeFlag(command, "output", formatJSON)
}

func (o *historyOptions) parse(cmd *cobra.Command, args []string) error {
	o.setDefault()
	if err := o.check(); err != nil {
		return err
	}
	switch {
	case o.output != "" && o.output != "json":
		return usageErrorf("--output %s: must be json", o.output)
	case o.limit < 1 || o.limit > history.MaxLimit:
		return usageErrorf("--limit %d: must be between 1 and %d", o.limit, history.MaxLimit)
	case o.cursor != 0 && o.follow:
		return usageErrorf("--cursor and --follow exclude each other")
	case len(args) == 0:
		return nil
	case len(args) == 1 && isNodeResource(args[0]):
		o.isNode = true
		return nil
	}
	names, err := parsePodNames(cmd, args)
	if err != nil || len(names) > 1 {
		return usageErrorf("unknown object %q: use 'herald history [pod/NAME | node]'", strings.Join(args, " "))
	}
	if len(names) == 1 {
		o.pod = names[0]
	}
	return nil
}

// parameters returns the query of the server.
func (o *historyOptions) parameters() url.Values {
	values := url.Values{}
	set := func(name, value string) {
		if value != "" {
			values.Set(name, value)
		}
	}
	switch {
	case o.isNode:
		set("kind", "node,agent,source")
	case o.pod != "":
		set("namespace", o.namespace)
		set("pod", o.pod)
	case !o.allNamespaces:
		set("namespace", o.namespace)
	}
	set("since", o.since)
	set("until", o.until)
	if o.logs || o.output == "json" {
		set("logs", "true")
	}
	return values
}

func (o *historyOptions) run(ctx context.Context, stdout io.Writer) error {
	agent := o.client()
	parameters := o.parameters()
	parameters.Set("limit", strconv.Itoa(o.limit))
	if o.cursor != 0 {
		parameters.Set("cursor", strconv.FormatUint(o.cursor, 10))
	}
	list, err := agent.History(ctx, parameters)
	if err != nil {
		return err
	}
	if len(list.Items) == 0 && o.pod != "" && !o.follow {
		return fmt.Errorf("no history of pod %s/%s%s", o.namespace, o.pod, o.sinceText())
	}
	printer := &historyPrinter{out: stdout, options: o, now: time.Now()}
	others := printer.selectPod(&list)
	if o.output == "json" {
		err = printer.printJSON(list)
	} else {
		slices.Reverse(list.Items)
		err = printer.print(list.Items...)
	}
	if err != nil {
		return err
	}
	if o.follow {
		return o.followRecords(ctx, agent, printer, list.Items)
	}
	if o.output == "" {
		return printer.printFooter(list, others)
	}
	return nil
}

func (o *historyOptions) sinceText() string {
	if o.since == "" {
		return ""
	}
	return " since " + o.since
}

func (o *historyOptions) followRecords(
	ctx context.Context, agent *client.Client, printer *historyPrinter, shown []history.Record,
) error {
	parameters := o.parameters()
	parameters.Del("since")
	var last uint64
	for i := range shown {
		last = max(last, shown[i].Seq)
	}
	if last > 0 {
		parameters.Set("after", strconv.FormatUint(last, 10))
	}
	return agent.FollowHistory(ctx, parameters, func(record history.Record) error {
		if o.output == "json" {
			return printer.printRecord(record)
		}
		return printer.print(record)
	})
}
