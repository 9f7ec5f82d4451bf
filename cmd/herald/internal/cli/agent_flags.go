package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
	"github.com/heraldnode/herald/cmd/herald/internal/config"
)

// agentFlags are the flags of the commands that ask an agent.
type agentFlags struct {
	server         string
	requestTimeout time.Duration
}

// defaultRequestTimeout bounds the wait for an agent that is stopped. A running one responds at once.
const defaultRequestTimeout = 10 * time.Second

func (f *agentFlags) bind(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.server, "server", "s", client.DefaultAddress(config.DefaultListen),
		"address of the agent: unix:///path or 127.0.0.1:port; overrides $"+client.AddressVariable)
	flags.DurationVar(&f.requestTimeout, "request-timeout", defaultRequestTimeout,
		"how long to wait until the agent responds; 0 means no timeout")
}

func (f *agentFlags) check() error {
	if err := client.CheckAddress(f.server); err != nil {
		return usageErrorf("--server: %w", err)
	}
	if f.requestTimeout < 0 {
		return usageErrorf("--request-timeout %v: must not be negative", f.requestTimeout)
	}
	return nil
}

func (f *agentFlags) client() *client.Client { return client.New(f.server, f.requestTimeout) }

// namespaceFlags select namespaces.
type namespaceFlags struct {
	namespace     string
	allNamespaces bool
}

// bindNamespace adds --namespace, which the shell completes with the namespaces of the agent's pods.
func (f *namespaceFlags) bindNamespace(cmd *cobra.Command, agent *agentFlags) {
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the pods")
	registerCompletion(cmd, "namespace", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, pod := range agent.podsForCompletion(cmd) {
			names = append(names, pod.Namespace)
		}
		slices.Sort(names)
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	})
}

// bindAll adds --all-namespaces.
func (f *namespaceFlags) bindAll(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "select the pods of all namespaces")
}

// setDefault makes an empty --namespace the default one, as kubectl does.
func (f *namespaceFlags) setDefault() { f.namespace = cmp.Or(f.namespace, metav1.NamespaceDefault) }

func (f *namespaceFlags) matchesNamespace(pod *v1.Pod) bool {
	return f.allNamespaces || pod.Namespace == f.namespace
}

// completionTimeout bounds how long the shell waits for completions.
const completionTimeout = time.Second

// podsForCompletion returns the agent's pods, or none if it is unreachable.
func (f *agentFlags) podsForCompletion(cmd *cobra.Command) []v1.Pod {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	pods, _ := client.New(f.server, completionTimeout).Pods(ctx)
	return pods
}

type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// registerCompletion sets the function that completes the values of a flag.
func registerCompletion(cmd *cobra.Command, flag string, complete completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // the flag does not exist
	}
}

// podArguments completes and parses the arguments of a command about pods.
type podArguments struct {
	agent      *agentFlags
	namespaces *namespaceFlags
	// needsResource requires "pod" before the name, as kubectl does.
	needsResource bool
	// one allows only one name.
	one bool
}

// complete completes "pods NAME...", "pod/NAME..." and, unless the resource is required, "NAME".
func (a podArguments) complete(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	prefix := ""
	switch resource, _, hasName := strings.Cut(typed, "/"); {
	case hasName && isPodResource(resource):
		prefix = resource + "/"
	case len(args) == 0 && a.needsResource:
		return []string{"pods"}, cobra.ShellCompDirectiveNoFileComp
	}
	if names := slices.DeleteFunc(slices.Clone(args), isPodResource); a.one && len(names) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, pod := range a.agent.podsForCompletion(cmd) {
		if a.namespaces.matchesNamespace(&pod) && !slices.Contains(args, prefix+pod.Name) {
			names = append(names, prefix+pod.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeContainers completes the containers of the pod that the arguments name.
func (a podArguments) completeContainers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	name, err := parsePodName(cmd, args)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, pod := range a.agent.podsForCompletion(cmd) {
		if pod.Name != name || !a.namespaces.matchesNamespace(&pod) {
			continue
		}
		for i := range pod.Spec.InitContainers {
			names = append(names, pod.Spec.InitContainers[i].Name)
		}
		for i := range pod.Spec.Containers {
			names = append(names, pod.Spec.Containers[i].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func isPodResource(resource string) bool {
	return slices.Contains([]string{"pods", "pod", "po"}, strings.ToLower(resource))
}

func isNodeResource(resource string) bool {
	return slices.Contains([]string{"nodes", "node", "no"}, strings.ToLower(resource))
}

// parsePodNames parses "pods NAME..." and "pod/NAME...".
func parsePodNames(cmd *cobra.Command, args []string) ([]string, error) {
	verb := cmd.CommandPath()
	if len(args) == 0 {
		return nil, usageErrorf("no resource given: use '%s pods'\nSee '%[1]s --help' for usage", verb)
	}
	if isPodResource(args[0]) {
		for _, name := range args[1:] {
			switch {
			case name == "":
				return nil, usageErrorf("the name of a pod must not be empty\nSee '%s --help' for usage", verb)
			case strings.Contains(name, "/"):
				return nil, usageErrorf("%q after %q: use 'pods NAME...' or 'pod/NAME...', not both", name, args[0])
			}
		}
		return args[1:], nil
	}
	var names []string
	for _, arg := range args {
		resource, name, hasName := strings.Cut(arg, "/")
		if !isPodResource(resource) || !hasName || name == "" {
			return nil, usageErrorf("unknown resource %q: only pods are supported, use '%s pods [NAME...]'", arg, verb)
		}
		names = append(names, name)
	}
	return names, nil
}

// parsePodName parses "NAME", "pod NAME" and "pod/NAME".
func parsePodName(cmd *cobra.Command, args []string) (string, error) {
	if len(args) == 1 && !isPodResource(args[0]) && !strings.Contains(args[0], "/") && args[0] != "" {
		return args[0], nil
	}
	var names []string
	var err error
	if len(args) > 0 {
		names, err = parsePodNames(cmd, args)
	}
	if err != nil {
		return "", err
	}
	if len(names) != 1 {
		return "", usageErrorf("the name of one pod is required: use '%s NAME' or 'pod/NAME'\nSee '%[1]s --help' for usage", cmd.CommandPath())
	}
	return names[0], nil
}

// notFound replaces the error of a pod that the agent does not have: by one with a hint, if another pod may be meant.
func (f *namespaceFlags) notFound(ctx context.Context, agent *client.Client, name string, err error) error {
	if !client.IsNotFound(err) {
		return err
	}
	pods, listErr := agent.Pods(ctx)
	if listErr != nil {
		return listErr
	}
	exists := slices.ContainsFunc(pods, func(pod v1.Pod) bool { return pod.Name == name && f.matchesNamespace(&pod) })
	hint := f.hint(pods, name)
	if exists || hint == "" {
		return err // about a part of the pod, or about when it left
	}
	return fmt.Errorf("pods %q not found%s", name, hint)
}
