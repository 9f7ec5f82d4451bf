package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
)

// complete offers values for a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
}

// completionTimeout is how long somebody waits who pressed the tabulator.
const completionTimeout = time.Second

// podNames are those of the agent that would be asked, for the arguments of get.
func (g *getPods) podNames(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	const nothingElse = cobra.ShellCompDirectiveNoFileComp
	prefix := ""
	switch kind, _, named := strings.Cut(typed, "/"); {
	case named && isPods(kind):
		prefix = kind + "/"
	case len(args) == 0:
		return []string{"pods"}, nothingElse
	}
	var names []string
	for _, pod := range g.known(cmd) {
		if (g.all || pod[0] == g.namespace) && !slices.Contains(args, prefix+pod[1]) {
			names = append(names, prefix+pod[1])
		}
	}
	return names, nothingElse
}

// namespaces are those of the pods that the agent has.
func (g *getPods) namespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, pod := range g.known(cmd) {
		names = append(names, pod[0])
	}
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// known are the namespaces and names of the agent's pods, none if it does not answer.
func (g *getPods) known(cmd *cobra.Command) [][2]string {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	pods, _ := client.New(g.server, completionTimeout).Pods(ctx)
	var names [][2]string
	for i := range pods {
		names = append(names, [2]string{pods[i].Namespace, pods[i].Name})
	}
	return names
}
