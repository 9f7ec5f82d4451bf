package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/table"
)

// getPods is what `herald get pods` was asked.
type getPods struct {
	server, namespace, output string
	all, watch, noHeaders     bool
	names                     []string
}

func newGet() *cobra.Command {
	get := &cobra.Command{Use: "get", Short: "Asks an agent about its node"}
	g := &getPods{}
	pods := &cobra.Command{
		Use: "pods [NAME...]", Aliases: []string{"pod", "po"}, Short: "What kubectl get pods would print, from the node itself",
		Long: `Prints the pods of the node as the node itself sees them, in the columns and words of kubectl get pods. It works without an
API server, and while there is none that answers.`,
		Example: "  herald get pods -A\n  herald get pods -n shop -o wide -w\n  herald get pods web-n1 -o yaml",
		RunE: func(cmd *cobra.Command, names []string) error {
			g.names = names
			return g.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := pods.Flags()
	flags.StringVar(&g.server, "server", defaultServer(), "address of the agent: unix:///path or 127.0.0.1:port; also "+addressVariable)
	flags.StringVarP(&g.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the pods")
	flags.BoolVarP(&g.all, "all-namespaces", "A", false, "pods of all namespaces")
	flags.StringVarP(&g.output, "output", "o", "", "wide, json, yaml or name")
	flags.BoolVarP(&g.watch, "watch", "w", false, "go on with every change, until interrupted")
	flags.BoolVar(&g.noHeaders, "no-headers", false, "no line of headers")
	get.AddCommand(pods)
	return get
}

func (g *getPods) run(ctx context.Context, out io.Writer) error {
	if !slices.Contains([]string{"", "wide", "json", "yaml", "name"}, g.output) {
		return usage("-o %s: want wide, json, yaml or name", g.output)
	}
	agent := newClient(g.server)
	if g.watch {
		return g.follow(ctx, out, agent)
	}
	pods, err := agent.pods(ctx)
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(p v1.Pod) bool { return !g.wants(&p) })
	if missing := g.missing(pods); missing != "" {
		return failure{fmt.Errorf("pods %q not found", missing), exitNotFound}
	}
	if len(pods) == 0 && g.output != "json" && g.output != "yaml" {
		if g.all {
			fmt.Fprintln(out, "No resources found")
		} else {
			fmt.Fprintf(out, "No resources found in %s namespace.\n", g.namespace)
		}
		return nil
	}
	return g.print(out, g.table(out), pods)
}

func (g *getPods) table(out io.Writer) *table.Printer {
	return table.NewPrinter(out, table.Options{Namespaces: g.all, Wide: g.output == "wide", NoHeader: g.noHeaders})
}

// wants reports whether the pod was asked for.
func (g *getPods) wants(pod *v1.Pod) bool {
	return (g.all || pod.Namespace == g.namespace) && (len(g.names) == 0 || slices.Contains(g.names, pod.Name))
}

// missing is a pod that was asked for and is not there, or "".
func (g *getPods) missing(pods []v1.Pod) string {
	for _, name := range g.names {
		if !slices.ContainsFunc(pods, func(p v1.Pod) bool { return p.Name == name }) {
			return name
		}
	}
	return ""
}

func (g *getPods) print(out io.Writer, lines *table.Printer, pods []v1.Pod) error {
	switch g.output {
	case "json", "yaml":
		return g.printObjects(out, pods)
	case "name":
		for i := range pods {
			fmt.Fprintln(out, "pod/"+pods[i].Name)
		}
		return nil
	}
	rows := make([]table.Row, 0, len(pods))
	for i := range pods {
		rows = append(rows, table.Of(&pods[i], time.Now()))
	}
	return lines.Print(rows...)
}

// printObjects prints one pod as itself when it was asked for by name, and a list otherwise.
func (g *getPods) printObjects(out io.Writer, pods []v1.Pod) error {
	var object any = v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: typed(pods)}
	if len(g.names) == 1 {
		object = typed(pods)[0]
	}
	if g.output == "yaml" {
		text, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	lines := json.NewEncoder(out)
	lines.SetIndent("", "    ")
	return lines.Encode(object)
}

func typed(pods []v1.Pod) []v1.Pod {
	for i := range pods {
		pods[i].TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	}
	return pods
}

func (g *getPods) follow(ctx context.Context, out io.Writer, agent *client) error {
	lines := g.table(out)
	return agent.watch(ctx, func(c change) error {
		if !g.wants(&c.Object) {
			return nil
		}
		return g.print(out, lines, []v1.Pod{c.Object})
	})
}
