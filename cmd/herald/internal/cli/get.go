package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
	"github.com/heraldnode/herald/cmd/herald/internal/config"
	"github.com/heraldnode/herald/internal/table"
)

// getOptions are the options of 'herald get pods'.
type getOptions struct {
	podSelector

	server, output               string
	requestTimeout               time.Duration
	watch, watchOnly             bool
	noHeaders, ignoreNotFound    bool
	labelSelector, fieldSelector string
}

// defaultRequestTimeout bounds the wait for an agent that is stopped. A running one responds at once.
const defaultRequestTimeout = 10 * time.Second

func newGetCommand() *cobra.Command {
	o := &getOptions{}
	get := &cobra.Command{
		Use: "get pods [NAME...]", Short: "Display the pods of this node",
		Long: `Display the pods of this node as the agent sees them, in the output format of 'kubectl get pods'. This works without an
API server, and while the API server is unavailable.

Flags have the same meaning as kubectl's, with two additions: -w also waits for named pods that do not exist yet, and -A
with a name searches all namespaces.

The name of a static pod ends with the node name: the pod of the manifest web is web-n1 on node n1.`,
		Example: `  # List all pods and watch them for changes.
  herald get pods -A -w

  # Print one pod as YAML.
  herald get pod web-n1 -n shop -o yaml

  # List the pods with a label, with more columns.
  herald get pods -l app=web -o wide

  # Connect to an agent with another data directory; HERALD_SERVER sets the default.
  herald get pods --server unix://$PWD/state/herald.sock`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(args); err != nil {
				return err
			}
			ctx := cmd.Context()
			if o.watch || o.watchOnly { // a signal is the regular end of a watch
				var stop context.CancelFunc
				ctx, stop = withSignals(ctx)
				defer stop()
				context.AfterFunc(ctx, stop) // a second signal ends the process at once
			}
			return o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.addFlags(get)
	return get
}

func (o *getOptions) addFlags(get *cobra.Command) {
	flags := get.Flags()
	flags.StringVarP(&o.server, "server", "s", client.DefaultAddress(config.DefaultListen),
		"address of the agent: unix:///path or 127.0.0.1:port; overrides $"+client.AddressVariable)
	flags.DurationVar(&o.requestTimeout, "request-timeout", defaultRequestTimeout,
		"how long to wait until the agent responds; 0 means no timeout")
	flags.StringVarP(&o.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the pods")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "list the pods of all namespaces")
	flags.StringVarP(&o.labelSelector, "selector", "l", "", "label selector, like app=web,tier!=db")
	flags.StringVar(&o.fieldSelector, "field-selector", "", "field selector, like status.phase=Running")
	flags.StringVarP(&o.output, "output", "o", "", "output format: wide, json, yaml or name")
	flags.BoolVarP(&o.watch, "watch", "w", false, "after listing the pods, watch for changes until interrupted")
	flags.BoolVar(&o.watchOnly, "watch-only", false, "watch for changes without listing the pods first")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "do not print headers")
	flags.BoolVar(&o.ignoreNotFound, "ignore-not-found", false, "exit with status 0 if a named pod does not exist")
	get.ValidArgsFunction = o.completePods
	if err := get.RegisterFlagCompletionFunc("namespace", o.completeNamespaces); err != nil {
		panic(err) // the flag does not exist
	}
	completeFlag(get, "output", outputFormats...)
}

func (o *getOptions) parse(args []string) (err error) {
	if !slices.Contains(outputFormats, o.output) && o.output != "" {
		return usageErrorf("--output %s: must be wide, json, yaml or name", o.output)
	}
	if err := client.CheckAddress(o.server); err != nil {
		return usageErrorf("--server: %w", err)
	}
	if o.requestTimeout < 0 {
		return usageErrorf("--request-timeout %v: must not be negative", o.requestTimeout)
	}
	o.namespace = cmp.Or(o.namespace, metav1.NamespaceDefault) // like kubectl
	if o.names, err = parsePodNames(args); err != nil {
		return err
	}
	return o.parseSelectors(o.labelSelector, o.fieldSelector)
}

func (o *getOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	agent := client.New(o.server, o.requestTimeout)
	pods, err := agent.Pods(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // a signal is the regular end of a watch
	}
	if err != nil {
		return err
	}
	printer := newPodPrinter(stdout, o)
	if o.watch || o.watchOnly {
		return o.printChanges(ctx, printer, agent, pods)
	}
	selected, missing := o.filter(pods), o.missing(pods)
	if o.ignoreNotFound {
		missing = nil
	}
	switch {
	case o.output == "json" || o.output == "yaml":
		err = o.printObjects(printer, selected)
	case len(selected) > 0:
		err = printer.print(selected...)
	case o.output == "name" || missing != nil || o.ignoreNotFound:
	case o.allNamespaces:
		fmt.Fprintln(stderr, "No resources found")
	default:
		fmt.Fprintf(stderr, "No resources found in %s namespace.\n", o.namespace)
	}
	return errors.Join(err, missing)
}

// printObjects prints a single named pod as an object, and anything else as a list.
func (o *getOptions) printObjects(printer *podPrinter, pods []*v1.Pod) error {
	if len(o.names) == 1 && !o.allNamespaces {
		return printer.print(pods...)
	}
	return printer.printList(pods)
}

// printChanges prints the selected pods and then every change. The agent's watch begins with an Added event for each existing
// pod; those that were already listed are skipped.
func (o *getOptions) printChanges(ctx context.Context, printer *podPrinter, agent *client.Client, listed []v1.Pod) error {
	if selected := o.filter(listed); len(selected) > 0 && !o.watchOnly {
		if err := printer.print(selected...); err != nil {
			return err
		}
	}
	listedByKey := map[string]*v1.Pod{}
	for i := range listed {
		listedByKey[podKey(&listed[i])] = &listed[i]
	}
	return agent.Watch(ctx, func(event client.Event) error {
		pod := &event.Object
		before, isListed := listedByKey[podKey(pod)]
		delete(listedByKey, podKey(pod))
		pod.TypeMeta = metav1.TypeMeta{}
		isUnchanged := isListed && event.Type == watch.Added && equality.Semantic.DeepEqual(before, pod)
		if isUnchanged || !o.matches(pod) {
			return nil
		}
		return printer.print(pod)
	})
}

func podKey(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name + "/" + string(pod.UID) }

// podSelector selects pods by namespace, name, labels and fields.
type podSelector struct {
	namespace     string
	allNamespaces bool
	names         []string
	labels        labels.Selector
	fields        fields.Selector
}

func isPodResource(resource string) bool {
	return slices.Contains([]string{"pods", "pod", "po"}, strings.ToLower(resource))
}

// parsePodNames parses "pods NAME..." and "pod/NAME...".
func parsePodNames(args []string) ([]string, error) {
	if len(args) == 0 {
		return nil, usageErrorf("no resource given: use 'herald get pods'\nSee 'herald get --help' for usage")
	}
	if isPodResource(args[0]) {
		for _, name := range args[1:] {
			switch {
			case name == "":
				return nil, usageErrorf("the name of a pod must not be empty\nSee 'herald get --help' for usage")
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
			return nil, usageErrorf("unknown resource %q: only pods are supported, use 'herald get pods [NAME...]'", arg)
		}
		names = append(names, name)
	}
	return names, nil
}

func (s *podSelector) parseSelectors(labelSelector, fieldSelector string) (err error) {
	if len(s.names) > 0 && labelSelector+fieldSelector != "" {
		return usageErrorf("a selector cannot be combined with the names of pods")
	}
	if s.labels, err = labels.Parse(labelSelector); err != nil {
		return usageErrorf("--selector %s: %w", labelSelector, err)
	}
	if s.fields, err = fields.ParseSelector(fieldSelector); err != nil {
		return usageErrorf("--field-selector %s: %w", fieldSelector, err)
	}
	supported := podFields(&v1.Pod{})
	for _, requirement := range s.fields.Requirements() {
		if !supported.Has(requirement.Field) {
			return usageErrorf("--field-selector: field label not supported: %s", requirement.Field)
		}
	}
	return nil
}

// podFields returns the fields by which the API server selects pods.
func podFields(pod *v1.Pod) fields.Set {
	return fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
		"spec.nodeName": pod.Spec.NodeName, "spec.restartPolicy": string(pod.Spec.RestartPolicy),
		"spec.schedulerName": pod.Spec.SchedulerName, "spec.serviceAccountName": pod.Spec.ServiceAccountName,
		"spec.hostNetwork": fmt.Sprint(pod.Spec.HostNetwork),
		"status.phase":     string(pod.Status.Phase), "status.podIP": pod.Status.PodIP,
		"status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
}

func (s *podSelector) matchesNamespace(pod *v1.Pod) bool {
	return s.allNamespaces || pod.Namespace == s.namespace
}

func (s *podSelector) matches(pod *v1.Pod) bool {
	return s.matchesNamespace(pod) && (len(s.names) == 0 || slices.Contains(s.names, pod.Name)) &&
		s.labels.Matches(labels.Set(pod.Labels)) && s.fields.Matches(podFields(pod))
}

// filter returns the matching pods, in the order of the given names.
func (s *podSelector) filter(pods []v1.Pod) []*v1.Pod {
	var selected []*v1.Pod
	for i := range pods {
		if s.matches(&pods[i]) {
			selected = append(selected, &pods[i])
		}
	}
	slices.SortStableFunc(selected, func(a, b *v1.Pod) int {
		return slices.Index(s.names, a.Name) - slices.Index(s.names, b.Name)
	})
	return selected
}

// missing returns an error for each named pod that does not exist, or nil.
func (s *podSelector) missing(pods []v1.Pod) error {
	var missing []error
	for _, name := range s.names {
		if !slices.ContainsFunc(pods, func(pod v1.Pod) bool { return pod.Name == name && s.matchesNamespace(&pod) }) {
			missing = append(missing, fmt.Errorf("pods %q not found%s", name, s.hint(pods, name)))
		}
	}
	return errors.Join(missing...)
}

// hint suggests which pod the user may have meant.
func (s *podSelector) hint(pods []v1.Pod, name string) string {
	for i := range pods {
		switch pod := &pods[i]; {
		case pod.Name == name:
			return fmt.Sprintf(" in namespace %s; it exists in namespace %s", s.namespace, table.Printable(pod.Namespace))
		case pod.Name == name+"-"+pod.Spec.NodeName && s.matchesNamespace(pod):
			return fmt.Sprintf("; did you mean the static pod %s?", table.Printable(pod.Name))
		}
	}
	return ""
}

// completionTimeout bounds how long the shell waits for completions.
const completionTimeout = time.Second

// completePods completes the arguments of get with the pods of the agent.
func (o *getOptions) completePods(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	prefix := ""
	switch resource, _, hasName := strings.Cut(typed, "/"); {
	case hasName && isPodResource(resource):
		prefix = resource + "/"
	case len(args) == 0:
		return []string{"pods"}, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, pod := range o.podsForCompletion(cmd) {
		if o.matchesNamespace(&pod) && !slices.Contains(args, prefix+pod.Name) {
			names = append(names, prefix+pod.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeNamespaces completes --namespace with the namespaces of the agent's pods.
func (o *getOptions) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, pod := range o.podsForCompletion(cmd) {
		names = append(names, pod.Namespace)
	}
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// podsForCompletion returns the agent's pods, or none if it is unreachable.
func (o *getOptions) podsForCompletion(cmd *cobra.Command) []v1.Pod {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	pods, _ := client.New(o.server, completionTimeout).Pods(ctx)
	return pods
}
