package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
	"github.com/heraldnode/herald/internal/table"
)

// getOptions are the options of 'herald get pods'.
type getOptions struct {
	agentFlags
	podSelector

	output                       string
	watch, watchOnly             bool
	noHeaders, ignoreNotFound    bool
	labelSelector, fieldSelector string
	where                        string

	format outputFormat
}

func newGetCommand() *cobra.Command {
	o := &getOptions{}
	get := &cobra.Command{
		Use: "get pods [NAME...]", Short: "Display the pods of this node", GroupID: groupAsk,
		Long: `Display the pods of this node as the agent sees them, in the output format of 'kubectl get pods'. This works without an
API server, and while the API server is unavailable.

Flags have the same meaning as kubectl's, with these additions: -o why says for each pod whether the API server has its status and
what is wrong with it; --where selects pods by an expression in CEL over their views (docs/queries.md); -w also waits for named
pods that do not exist yet; -A with a name searches all namespaces.

The name of a static pod ends with the node name: the pod of the manifest web is web-n1 on node n1.`,
		Example: `  # List all pods and watch them for changes.
  herald get pods -A -w

  # What is wrong with them?
  herald get pods -A -o why

  # Print one pod as YAML, or one field of all pods.
  herald get pod web-n1 -n shop -o yaml
  herald get pods -A -o jsonpath='{range .items[*]}{.metadata.name} {.status.podIP}{"\n"}{end}'

  # List the pods with a label, with more columns.
  herald get pods -l app=web -o wide

  # List the pods that something is wrong with, or that the API server does not have yet.
  herald get pods -A --where '!pod.ready || pod.behind > 0'

  # Connect to an agent with another data directory; HERALD_SERVER sets the default.
  herald get pods --server unix://$PWD/state/herald.sock`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(cmd, args); err != nil {
				return err
			}
			ctx := cmd.Context()
			if o.isWatch() { // a signal is the regular end of a watch
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
	o.bind(get)
	o.bindNamespace(get, &o.agentFlags)
	o.bindAll(get)
	flags.StringVarP(&o.labelSelector, "selector", "l", "", "label selector, like app=web,tier!=db")
	flags.StringVar(&o.fieldSelector, "field-selector", "", "field selector, like status.phase=Running")
	flags.StringVar(&o.where, "where", "", "expression in CEL that is true of the pods, like '!pod.ready'; see docs/queries.md")
	flags.StringVarP(&o.output, "output", "o", "", "output format: "+oneOf(getFormats))
	flags.BoolVarP(&o.watch, "watch", "w", false, "after listing the pods, watch for changes until interrupted")
	flags.BoolVar(&o.watchOnly, "watch-only", false, "watch for changes without listing the pods first")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "do not print headers")
	flags.BoolVar(&o.ignoreNotFound, "ignore-not-found", false, "exit with status 0 if a named pod does not exist")
	get.ValidArgsFunction = podArguments{agent: &o.agentFlags, namespaces: &o.namespaceFlags, needsResource: true}.complete
	completeFlag(get, "output", formatWide, formatJSON, formatYAML, formatName, formatJSONPath+"=", formatWhy)
}

func (o *getOptions) isWatch() bool { return o.watch || o.watchOnly }

func (o *getOptions) parse(cmd *cobra.Command, args []string) (err error) {
	if o.format, err = parseOutput(o.output, getFormats); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	o.setDefault()
	if o.names, err = parsePodNames(cmd, args); err != nil {
		return err
	}
	switch {
	case o.where != "" && len(o.names) > 0:
		return usageErrorf("--where cannot be combined with the names of pods")
	case o.where != "" && o.isWatch() && (o.format.isObject() || o.format.name == formatWide):
		return usageErrorf("--where with --watch supports the default output, -o why and -o name")
	}
	return o.parseSelectors(o.labelSelector, o.fieldSelector)
}

func (o *getOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	agent := o.client()
	if o.format.name == formatWhy || o.where != "" && o.isWatch() {
		return o.runViews(ctx, agent, stdout, stderr)
	}
	pods, err := o.list(ctx, agent)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // a signal is the regular end of a watch
	}
	if err != nil {
		return err
	}
	printer := newPodPrinter(stdout, o)
	if o.isWatch() {
		return o.printChanges(ctx, printer, agent, pods)
	}
	selected, missing := o.filter(pods), o.missing(pods)
	if o.ignoreNotFound {
		missing = nil
	}
	switch {
	case o.format.isObject():
		err = o.printObjects(printer, selected)
	case len(selected) > 0:
		err = printer.print(selected...)
	case missing == nil:
		o.printNone(stderr)
	}
	return errors.Join(err, missing)
}

// list returns the pods for which the expression of --where is true, or all.
func (o *getOptions) list(ctx context.Context, agent *client.Client) ([]v1.Pod, error) {
	pods, err := agent.Pods(ctx)
	if err != nil || o.where == "" {
		return pods, err
	}
	views, err := agent.PodViews(ctx, o.viewParameters())
	if err != nil {
		return nil, whereError(err)
	}
	isTrue := map[string]bool{}
	for i := range views.Items {
		isTrue[views.Items[i].Metadata.UID] = true
	}
	return slices.DeleteFunc(pods, func(pod v1.Pod) bool { return !isTrue[string(pod.UID)] }), nil
}

// printNone says that no pods were found, as kubectl does.
func (o *getOptions) printNone(stderr io.Writer) {
	switch {
	case o.format.name == formatName || o.ignoreNotFound:
	case o.allNamespaces:
		fmt.Fprintln(stderr, "No resources found")
	default:
		fmt.Fprintf(stderr, "No resources found in %s namespace.\n", o.namespace)
	}
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
	return agent.Watch(ctx, func(event client.PodEvent) error {
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
	namespaceFlags
	names  []string
	labels labels.Selector
	fields fields.Selector
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

func (s *podSelector) matches(pod *v1.Pod) bool {
	return s.matchesName(pod) && s.labels.Matches(labels.Set(pod.Labels)) && s.fields.Matches(podFields(pod))
}

func (s *podSelector) matchesName(pod *v1.Pod) bool {
	return s.matchesNamespace(pod) && (len(s.names) == 0 || slices.Contains(s.names, pod.Name))
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
func (f *namespaceFlags) hint(pods []v1.Pod, name string) string {
	for i := range pods {
		switch pod := &pods[i]; {
		case pod.Name == name:
			return fmt.Sprintf(" in namespace %s; it exists in namespace %s", f.namespace, table.Printable(pod.Namespace))
		case pod.Name == name+"-"+pod.Spec.NodeName && f.matchesNamespace(pod):
			return fmt.Sprintf("; did you mean the static pod %s?", table.Printable(pod.Name))
		}
	}
	return ""
}
