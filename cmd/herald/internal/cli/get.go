package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
	"github.com/heraldnode/herald/cmd/herald/internal/config"
)

// getPods is what `herald get pods` was asked.
type getPods struct {
	selection

	server, output               string
	requestTimeout               time.Duration
	watch, watchOnly             bool
	noHeaders, ignoreNotFound    bool
	labelSelector, fieldSelector string
}

// defaultRequestTimeout is what an agent of this machine needs only when it is stopped.
const defaultRequestTimeout = 10 * time.Second

func newGet() *cobra.Command {
	g := &getPods{}
	get := &cobra.Command{
		Use: "get pods [NAME...]", Short: "Shows the node's pods as kubectl get pods would, from the node itself",
		Long: `Prints the pods of the node as the node itself sees them, in the columns and words of kubectl get pods. It works without an
API server, and while there is none that answers. Flags mean what kubectl's mean; -w also waits for pods that are not there
yet, and -A finds a name in all namespaces.

A static pod's name ends with the node's: the manifest of web is the pod web-n1 on the node n1.`,
		Example: `  # All pods, and every change of them.
  herald get pods -A -w

  # One pod, as an object.
  herald get pod web-n1 -n shop -o yaml

  # Those with a label, wide.
  herald get pods -l app=web -o wide

  # Of an agent with a data folder of its own; HERALD_SERVER says the same for good.
  herald get pods --server unix://$PWD/state/herald.sock`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := g.parse(args); err != nil {
				return err
			}
			ctx := cmd.Context()
			if g.watch || g.watchOnly { // which is ended by a signal, and well
				var stop context.CancelFunc
				ctx, stop = untilSignal(ctx)
				defer stop()
				context.AfterFunc(ctx, stop) // a second signal ends it at once
			}
			return g.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := get.Flags()
	flags.StringVarP(&g.server, "server", "s", client.DefaultAddress(config.DefaultListen),
		"the agent: unix:///path or 127.0.0.1:port; also $"+client.AddressVariable)
	flags.DurationVar(&g.requestTimeout, "request-timeout", defaultRequestTimeout,
		"how long the agent may take until it begins to answer; 0: as long as it likes")
	flags.StringVarP(&g.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the pods")
	flags.BoolVarP(&g.all, "all-namespaces", "A", false, "pods of all namespaces")
	flags.StringVarP(&g.labelSelector, "selector", "l", "", "only pods with these labels, like app=web,tier!=db")
	flags.StringVar(&g.fieldSelector, "field-selector", "", "only pods with these fields, like status.phase=Running")
	flags.StringVarP(&g.output, "output", "o", "", "wide, json, yaml or name")
	flags.BoolVarP(&g.watch, "watch", "w", false, "go on with every change, until interrupted")
	flags.BoolVar(&g.watchOnly, "watch-only", false, "changes only, not what is there already")
	flags.BoolVar(&g.noHeaders, "no-headers", false, "no line of headers")
	flags.BoolVar(&g.ignoreNotFound, "ignore-not-found", false, "a pod that is not there is no error")
	g.offer(get)
	return get
}

// offer makes the shell complete what is typed.
func (g *getPods) offer(get *cobra.Command) {
	get.ValidArgsFunction = g.podNames
	if err := get.RegisterFlagCompletionFunc("namespace", g.namespaces); err != nil {
		panic(err) // there is no such flag
	}
	complete(get, "output", formats...)
}

func (g *getPods) parse(args []string) (err error) {
	if !slices.Contains(formats, g.output) && g.output != "" {
		return usage("-o %s: want wide, json, yaml or name", g.output)
	}
	if err := client.CheckAddress(g.server); err != nil {
		return usage("--server: %w", err)
	}
	if g.requestTimeout < 0 {
		return usage("--request-timeout %v: want a time, like 10s, or 0", g.requestTimeout)
	}
	if g.namespace == "" { // as kubectl takes it
		g.namespace = metav1.NamespaceDefault
	}
	if g.names, err = podsNamed(args); err != nil {
		return err
	}
	return g.selectBy(g.labelSelector, g.fieldSelector)
}

func (g *getPods) run(ctx context.Context, out, notes io.Writer) error {
	agent := client.New(g.server, g.requestTimeout)
	pods, err := agent.Pods(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was asked to end before it had begun
	}
	if err != nil {
		return err
	}
	to := newPodPrinter(out, g)
	if g.watch || g.watchOnly {
		return g.follow(ctx, to, agent, pods)
	}
	chosen, missing := g.choose(pods), g.missing(pods)
	if g.ignoreNotFound {
		missing = nil
	}
	switch {
	case g.output == "json" || g.output == "yaml":
		err = g.printObjects(to, chosen)
	case len(chosen) > 0:
		err = to.print(chosen...)
	case g.output == "name" || missing != nil || g.ignoreNotFound:
	case g.all:
		fmt.Fprintln(notes, "No resources found")
	default:
		fmt.Fprintf(notes, "No resources found in %s namespace.\n", g.namespace)
	}
	return errors.Join(err, missing)
}

// printObjects prints a pod that was asked for by name as itself, and all else as a list.
func (g *getPods) printObjects(to *podPrinter, chosen []*v1.Pod) error {
	if len(g.names) == 1 && !g.all {
		return to.print(chosen...)
	}
	return to.printList(chosen)
}

// follow prints the pods that were asked for, and then every change of them. An agent begins a watch with what there is; that
// which was printed already is passed over.
func (g *getPods) follow(ctx context.Context, to *podPrinter, agent *client.Client, listed []v1.Pod) error {
	if chosen := g.choose(listed); len(chosen) > 0 && !g.watchOnly {
		if err := to.print(chosen...); err != nil {
			return err
		}
	}
	known := map[string]*v1.Pod{}
	for i := range listed {
		known[identity(&listed[i])] = &listed[i]
	}
	return agent.Watch(ctx, func(c client.Change) error {
		before, isKnown := known[identity(&c.Object)]
		delete(known, identity(&c.Object))
		c.Object.TypeMeta = metav1.TypeMeta{}
		if isKnown && c.Type == watch.Added && equality.Semantic.DeepEqual(before, &c.Object) || !g.wants(&c.Object) {
			return nil
		}
		return to.print(&c.Object)
	})
}

func identity(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name + "/" + string(pod.UID) }
