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
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
	"github.com/heraldnode/herald/cmd/herald/internal/describe"
	"github.com/heraldnode/herald/view"
)

// describeOptions are the options of 'herald describe'.
type describeOptions struct {
	agentFlags
	podSelector

	labelSelector, output string
	isNode                bool
	format                outputFormat
}

func newDescribeCommand() *cobra.Command {
	o := &describeOptions{}
	command := &cobra.Command{
		Use: "describe (pod [NAME...] | node)", Short: "Display everything that is known about a pod or this node", GroupID: groupAsk,
		Long: `Display a pod or this node as 'kubectl describe' does, and then what only the node knows: whether the API server has the status,
the state of the probes, back-offs, what is wrong and why, the last log lines of a failed container, and the last changes.

-o json and -o yaml print the view of the query API (docs/queries.md), which 'herald get pods -o json' does not.`,
		Example: `  herald describe pod web-n1 -n shop
  herald describe node

  # How far is the API server behind?
  herald describe pod web-n1 -n shop -o jsonpath='{.lag.state} {.lag.behind}'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(cmd, args); err != nil {
				return err
			}
			if o.isNode {
				return o.describeNode(cmd.Context(), cmd.OutOrStdout())
			}
			return o.describePods(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.bind(command)
	o.bindNamespace(command, &o.agentFlags)
	o.bindAll(command)
	flags := command.Flags()
	flags.StringVarP(&o.labelSelector, "selector", "l", "", "label selector, like app=web,tier!=db")
	flags.StringVarP(&o.output, "output", "o", "", "output format: "+oneOf(objectFormats))
	arguments := podArguments{agent: &o.agentFlags, namespaces: &o.namespaceFlags, needsResource: true}
	command.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		names, directive := arguments.complete(cmd, args, typed)
		if len(args) == 0 && slices.Equal(names, []string{"pods"}) {
			names = append(names, "node")
		}
		return names, directive
	}
	completeFlag(command, "output", objectFormats...)
	return command
}

func (o *describeOptions) parse(cmd *cobra.Command, args []string) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	o.setDefault()
	if o.format, err = parseOutput(o.output, objectFormats); err != nil {
		return err
	}
	if resource, _, _ := strings.Cut(append(args, "")[0], "/"); isNodeResource(resource) {
		o.isNode = true // there is only one, whatever its name
		return nil
	}
	if o.names, err = parsePodNames(cmd, args); err != nil {
		return err
	}
	return o.parseSelectors(o.labelSelector, "")
}

func (o *describeOptions) describePods(ctx context.Context, stdout io.Writer) error {
	agent := o.client()
	pods, err := agent.Pods(ctx)
	if err != nil {
		return err
	}
	selected, missing := o.filter(pods), o.missing(pods)
	if len(selected) == 0 && missing == nil {
		return fmt.Errorf("no pods found in namespace %s", o.namespace)
	}
	objects := &objectPrinter{out: stdout, format: o.format}
	for i, pod := range selected {
		v, err := agent.PodView(ctx, pod.Namespace, pod.Name)
		if client.IsNotFound(err) {
			continue // it has left since
		}
		if err != nil {
			return err
		}
		if o.format.isObject() {
			err = objects.print(v)
		} else {
			if i > 0 {
				fmt.Fprint(stdout, "\n\n")
			}
			err = o.describePod(ctx, agent, stdout, pod, &v)
		}
		if err != nil {
			return err
		}
	}
	return missing
}

// describedRecords is the number of records of the history that are shown.
const describedRecords = 10

// eventSource is the component that reports the agent's events, as on a kubelet.
const eventSource = "kubelet"

func (o *describeOptions) describePod(ctx context.Context, agent *client.Client, stdout io.Writer, pod *v1.Pod, v *view.PodView) error {
	now := time.Now()
	events, err := o.events(ctx, agent, url.Values{"namespace": {pod.Namespace}, "pod": {pod.Name}, "uid": {string(pod.UID)}})
	if err != nil {
		return err
	}
	answer, err := agent.Explain(ctx, pod.Namespace, pod.Name, "")
	if err != nil {
		return err
	}
	history, err := o.history(ctx, agent, url.Values{"namespace": {pod.Namespace}, "pod": {pod.Name}, "kind": {"pod"}}, now)
	if err != nil {
		return err
	}
	logs, err := o.lastLog(ctx, agent, pod)
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, describe.Pod(pod, events, now)+describe.PodState(v, now)+
		describe.Section("Why", formatVerdict(&answer.Verdict, now))+describe.Section("Last log", logs)+describe.Section("History", history))
	return err
}

func (o *describeOptions) describeNode(ctx context.Context, stdout io.Writer) error {
	agent, now := o.client(), time.Now()
	v, err := agent.Node(ctx)
	if err != nil {
		return err
	}
	if o.format.isObject() {
		return (&objectPrinter{out: stdout, format: o.format}).print(v)
	}
	pods, err := agent.Pods(ctx)
	if err != nil {
		return err
	}
	events, err := o.events(ctx, agent, url.Values{})
	if err != nil {
		return err
	}
	history, err := o.history(ctx, agent, url.Values{"kind": {"node,agent"}}, now)
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, describe.Node(nodeOfView(&v), pods, events, now)+describe.NodeState(&v, now)+
		describe.Section("History", history))
	return err
}

func nodeOfView(v *view.NodeView) *v1.Node {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: v.Metadata.Name, Labels: v.Metadata.Labels, Annotations: v.Metadata.Annotations},
		Spec:       v.Spec, Status: v.Local.Status,
	}
	if v.Metadata.CreationTimestamp != nil {
		node.CreationTimestamp = metav1.NewTime(v.Metadata.CreationTimestamp.Time)
	}
	return node
}

// events returns the events of a pod, or those of the node, oldest first.
func (o *describeOptions) events(ctx context.Context, agent *client.Client, parameters url.Values) ([]describe.Event, error) {
	list, err := agent.Events(ctx, parameters)
	if err != nil {
		return nil, err
	}
	events := []describe.Event{}
	for _, event := range countEvents(list.Items) {
		content := event.newest.Event
		if isOfNode := event.newest.Name == ""; isOfNode != o.isNode {
			continue
		}
		fieldPath := ""
		if content.Container != "" {
			fieldPath = "spec.containers{" + content.Container + "}"
		}
		events = append(events, describe.Event{
			Type: content.Type, Reason: content.Reason, Message: content.Message, FieldPath: fieldPath, From: eventSource,
			Count: event.count, First: event.first, Last: event.newest.Time,
		})
	}
	return events, nil
}

// history returns the newest records as 'herald history' prints them.
func (o *describeOptions) history(ctx context.Context, agent *client.Client, parameters url.Values, now time.Time) (string, error) {
	parameters.Set("limit", strconv.Itoa(describedRecords))
	list, err := agent.History(ctx, parameters)
	if err != nil {
		return "", err
	}
	slices.Reverse(list.Items)
	var text strings.Builder
	printer := &historyPrinter{out: &text, options: &historyOptions{pod: parameters.Get("pod"), isNode: o.isNode}, now: now}
	err = printer.print(list.Items...)
	return text.String(), err
}

// lastLog returns the newest lines that were kept of a failed container, or "".
func (o *describeOptions) lastLog(ctx context.Context, agent *client.Client, pod *v1.Pod) (string, error) {
	const maxLines = 10
	list, err := agent.History(ctx, url.Values{
		"namespace": {pod.Namespace}, "pod": {pod.Name}, "uid": {string(pod.UID)}, "kind": {"log"}, "limit": {"10"}, "logs": {"true"},
	})
	if err != nil {
		return "", err
	}
	for i := range list.Items {
		attachment := list.Items[i].Attachment
		if attachment == nil || attachment.Lines == "" {
			continue
		}
		lines := strings.Split(strings.TrimRight(attachment.Lines, "\n"), "\n")
		lines = lines[max(0, len(lines)-maxLines):]
		return attachment.Container + ", restart " + strconv.Itoa(int(attachment.Attempt)) + ":\n| " + strings.Join(lines, "\n| "), nil
	}
	return "", nil
}
