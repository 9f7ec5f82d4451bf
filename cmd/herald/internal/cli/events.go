package cli

import (
	"cmp"
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
	"github.com/heraldnode/herald/internal/table"
)

// eventOptions are the options of 'herald events'.
type eventOptions struct {
	agentFlags
	namespaceFlags

	object, since, output string
	types                 []string
	watch, noHeaders      bool
	limit                 int

	pod    string // empty: all objects
	format outputFormat
}

func newEventsCommand() *cobra.Command {
	o := &eventOptions{}
	command := &cobra.Command{
		Use: "events [--for pod/NAME]", Short: "Display the events of this node and its pods", GroupID: groupAsk, Args: noArguments,
		Long: `Display the events that the agent has reported, oldest first. They come from the agent's history, so they are there without an
API server, and after it has forgotten them. Equal events are shown once, with their number.`,
		Example: `  # The events of a pod.
  herald events --for pod/cart-n1 -n shop

  # Watch warnings of all namespaces.
  herald events -A --types=Warning -w`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.parse(cmd); err != nil {
				return err
			}
			ctx := cmd.Context()
			if o.watch { // a signal is the regular end
				var stop context.CancelFunc
				ctx, stop = withSignals(ctx)
				defer stop()
				context.AfterFunc(ctx, stop) // a second signal ends the process at once
			}
			return o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.bind(command)
	o.bindNamespace(command, &o.agentFlags)
	o.bindAll(command)
	flags := command.Flags()
	flags.StringVar(&o.object, "for", "", "only events about this pod, as pod/NAME")
	flags.StringSliceVar(&o.types, "types", nil, "only events of these types: Normal, Warning")
	flags.StringVar(&o.since, "since", "", "only events after this time: RFC 3339, or how long ago, like 10m")
	flags.IntVar(&o.limit, "limit", history.DefaultLimit, "read at most this many of the newest, up to "+strconv.Itoa(history.MaxLimit))
	flags.BoolVarP(&o.watch, "watch", "w", false, "after listing the events, watch for new ones until interrupted")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "do not print headers")
	flags.StringVarP(&o.output, "output", "o", "", "output format: "+oneOf(objectFormats))
	arguments := podArguments{agent: &o.agentFlags, namespaces: &o.namespaceFlags}
	registerCompletion(command, "for", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return arguments.complete(cmd, nil, "pod/")
	})
	completeFlag(command, "types", "Normal", "Warning")
	completeFlag(command, "output", objectFormats...)
	return command
}

func (o *eventOptions) parse(cmd *cobra.Command) (err error) {
	o.setDefault()
	if err := o.check(); err != nil {
		return err
	}
	if o.format, err = parseOutput(o.output, objectFormats); err != nil {
		return err
	}
	if o.object != "" {
		if o.pod, err = parsePodName(cmd, []string{o.object}); err != nil {
			return usageErrorf("--for %s: must be pod/NAME", o.object)
		}
	}
	switch {
	case o.limit < 1 || o.limit > history.MaxLimit:
		return usageErrorf("--limit %d: must be between 1 and %d", o.limit, history.MaxLimit)
	case o.watch && o.format.isObject() && o.format.name != formatJSON:
		return usageErrorf("--watch supports the default output and -o json")
	}
	for i, kind := range o.types {
		switch {
		case strings.EqualFold(kind, "Normal"):
			o.types[i] = "Normal"
		case strings.EqualFold(kind, "Warning"):
			o.types[i] = "Warning"
		default:
			return usageErrorf("--types %s: must be Normal or Warning", kind)
		}
	}
	return nil
}

// parameters returns the query of the server.
func (o *eventOptions) parameters() url.Values {
	values := url.Values{}
	if !o.allNamespaces || o.pod != "" {
		values.Set("namespace", o.namespace)
	}
	if o.pod != "" {
		values.Set("pod", o.pod)
	}
	if o.since != "" {
		values.Set("since", o.since)
	}
	return values
}

func (o *eventOptions) matches(record *history.Record) bool {
	return record.Event != nil && (len(o.types) == 0 || slices.Contains(o.types, record.Event.Type))
}

func (o *eventOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	agent := o.client()
	parameters := o.parameters()
	parameters.Set("limit", strconv.Itoa(o.limit))
	list, err := agent.Events(ctx, parameters)
	if err != nil {
		return whereError(err)
	}
	last := uint64(0)
	for i := range list.Items {
		last = max(last, list.Items[i].Seq)
	}
	list.Items = slices.DeleteFunc(list.Items, func(record history.Record) bool { return !o.matches(&record) })
	if o.format.isObject() && !o.watch {
		return (&objectPrinter{out: stdout, format: o.format}).print(list)
	}
	printer := &eventPrinter{out: stdout, grid: table.NewGrid(stdout), options: o}
	events := countEvents(list.Items)
	if len(events) == 0 && !o.watch {
		fmt.Fprintln(stderr, "No events found")
		return nil
	}
	if err := printer.print(events...); err != nil || !o.watch {
		return err
	}
	return o.follow(ctx, agent, printer, last)
}

func (o *eventOptions) follow(ctx context.Context, agent *client.Client, printer *eventPrinter, last uint64) error {
	parameters := o.parameters()
	parameters.Del("since")
	parameters.Set("kind", string(history.KindEvent))
	parameters.Set("after", strconv.FormatUint(last, 10))
	return agent.FollowHistory(ctx, parameters, func(record history.Record) error {
		if !o.matches(&record) {
			return nil
		}
		return printer.print(countedEvent{newest: record, first: record.Time, count: max(1, record.Event.Count)})
	})
}

// countedEvent is an event with all its occurrences.
type countedEvent struct {
	newest history.Record
	first  time.Time
	count  int
}

// countEvents joins the records of equal events, oldest first. The records are sorted from new to old.
func countEvents(records []history.Record) []countedEvent {
	type key struct {
		pod   history.PodRef
		event history.Event
	}
	index := map[key]int{}
	var events []countedEvent
	for i := range records {
		id := key{records[i].PodRef, *records[i].Event}
		id.event.Count = 0
		at, found := index[id]
		if !found {
			at = len(events)
			index[id] = at
			events = append(events, countedEvent{newest: records[i]})
		}
		events[at].count += max(1, records[i].Event.Count)
		events[at].first = records[i].Time
	}
	slices.Reverse(events)
	return events
}

// eventPrinter prints events, as rows or as JSON.
type eventPrinter struct {
	out        io.Writer
	grid       *table.Grid
	options    *eventOptions
	hasPrinted bool
}

func (p *eventPrinter) print(events ...countedEvent) error {
	var lines [][]string
	if !p.hasPrinted && !p.options.noHeaders {
		lines = append(lines, p.row("NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE", "COUNT"))
	}
	p.hasPrinted = true
	now := time.Now()
	for i := range events {
		if p.options.format.isObject() {
			if err := (&historyPrinter{out: p.out}).printRecord(events[i].newest); err != nil {
				return err
			}
			continue
		}
		record, event := &events[i].newest, events[i].newest.Event
		object := cmp.Or(event.Object, "pod/"+record.Name)
		if event.Container != "" {
			object += " " + event.Container
		}
		lines = append(lines, p.row(table.Printable(record.Namespace), age(record.Time, now), table.Printable(event.Type),
			table.Printable(event.Reason), table.Printable(object), table.Printable(event.Message), strconv.Itoa(events[i].count)))
	}
	if p.options.format.isObject() {
		return nil
	}
	return p.grid.Print(lines...)
}

// row returns the cells, the first of which is shown for all namespaces only.
func (p *eventPrinter) row(cells ...string) []string {
	if p.options.allNamespaces {
		return cells
	}
	return cells[1:]
}
