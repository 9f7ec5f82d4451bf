package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/view"
)

// waitOptions are the options of 'herald wait'.
type waitOptions struct {
	agentFlags
	podSelector

	labelSelector, fieldSelector string
	all                          bool
	goalText                     string
	timeout                      time.Duration

	goal goal
}

// Timeouts of wait, as kubectl's.
const (
	defaultWaitTimeout = 30 * time.Second
	longWaitTimeout    = 7 * 24 * time.Hour
)

func newWaitCommand() *cobra.Command {
	o := &waitOptions{}
	command := &cobra.Command{
		Use: "wait pod [NAME... | -l SELECTOR | --all] --for=CONDITION", Short: "Wait until pods are ready, ended or gone", GroupID: groupAsk,
		Long: `Wait until all named or selected pods meet a condition:

  condition=TYPE[=STATUS]   a condition of the status, such as condition=Ready
  phase=PHASE               the phase, such as phase=Succeeded
  jsonpath=TEMPLATE[=VALUE] a field of the pod, such as jsonpath='{.status.podIP}'
  create                    the pod exists
  delete                    the pod is gone

Unlike 'kubectl wait', it also waits for pods that do not exist yet and while the agent is restarted, and it ends at once, with exit
status 1, if a pod can never meet the condition without somebody's doing: 'herald explain' says why.

The exit status is 0 if the condition is met, 1 if it is not met in time or cannot be, and 3 if the agent is unreachable when the
time is over.`,
		Example: `  # Wait for a pod, also if its manifest is not there yet.
  herald wait pod web-n1 --for=condition=Ready --timeout 60s

  # Wait for all pods with a label in all namespaces.
  herald wait pod -l app=web -A --for=condition=Ready

  # Wait for a job's pod to succeed, and for a pod to be gone.
  herald wait pod job-n1 --for=phase=Succeeded --timeout 10m
  herald wait pod/web-n1 --for=delete`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(cmd, args); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.addFlags(command)
	return command
}

func (o *waitOptions) addFlags(command *cobra.Command) {
	flags := command.Flags()
	o.bind(command)
	o.bindNamespace(command, &o.agentFlags)
	o.bindAll(command)
	flags.StringVarP(&o.labelSelector, "selector", "l", "", "label selector, like app=web,tier!=db")
	flags.StringVar(&o.fieldSelector, "field-selector", "", "field selector, like spec.restartPolicy=Never")
	flags.BoolVar(&o.all, "all", false, "wait for all pods of the namespace")
	flags.StringVar(&o.goalText, "for", "",
		"condition to wait for: condition=TYPE[=STATUS], phase=PHASE, jsonpath=TEMPLATE[=VALUE], create or delete")
	flags.DurationVar(&o.timeout, "timeout", defaultWaitTimeout,
		"how long to wait; 0 checks once, a negative duration means a week")
	command.ValidArgsFunction = podArguments{agent: &o.agentFlags, namespaces: &o.namespaceFlags, needsResource: true}.complete
	completeFlag(command, "for", "condition=Ready", "condition=ContainersReady", "condition=Initialized",
		"phase=Running", "phase=Succeeded", "phase=Failed", "create", "delete", "jsonpath=")
}

func (o *waitOptions) parse(cmd *cobra.Command, args []string) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	o.setDefault()
	if o.goalText == "" {
		return usageErrorf("--for is required, like --for=condition=Ready\nSee '%s --help' for usage", cmd.CommandPath())
	}
	if o.goal, err = parseGoal(o.goalText); err != nil {
		return err
	}
	if o.names, err = parsePodNames(cmd, args); err != nil {
		return err
	}
	switch hasSelector := o.labelSelector+o.fieldSelector != ""; {
	case o.all && (hasSelector || len(o.names) > 0):
		return usageErrorf("--all cannot be combined with names or selectors")
	case !o.all && !hasSelector && len(o.names) == 0:
		return usageErrorf("name pods, or select them with -l, --field-selector or --all\nSee '%s --help' for usage", cmd.CommandPath())
	}
	if o.timeout < 0 {
		o.timeout = longWaitTimeout
	}
	return o.parseSelectors(o.labelSelector, o.fieldSelector)
}

// finalCheckPeriod is how often pods that have not changed are checked for a condition that they can never meet: their worker
// may know so only after the change.
const finalCheckPeriod = time.Second

func (o *waitOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	agent := o.client()
	w := newWaiter(o.goal, o.names, time.Now())
	get := &getOptions{labelSelector: o.labelSelector, fieldSelector: o.fieldSelector}
	updates := watchPods(ctx, agent, get.viewParameters())
	timeout, final := time.After(o.timeout), time.NewTicker(finalCheckPeriod)
	defer final.Stop()
	var unreachable error
	for {
		select {
		case update := <-updates:
			if update.isFinal() {
				return whereError(update.err)
			}
			if update.err != nil && unreachable == nil && o.timeout > 0 {
				fmt.Fprintf(stderr, "Waiting for the agent at %s.\n", o.server)
			}
			unreachable = update.err
			if err := o.apply(ctx, agent, w, update); err != nil {
				return err
			}
			if done, err := o.report(ctx, agent, w, stdout); done || err != nil {
				return err
			}
			if o.timeout == 0 && (unreachable != nil || w.synced) {
				return o.timedOut(ctx, agent, w, unreachable)
			}
		case <-final.C:
			if done, err := o.report(ctx, agent, w, stdout); done || err != nil {
				return err
			}
		case <-timeout:
			if o.timeout > 0 {
				return o.timedOut(ctx, agent, w, unreachable)
			}
		}
	}
}

// apply tells the waiter about an update of a pod in the selected namespaces.
func (o *waitOptions) apply(ctx context.Context, agent *client.Client, w *waiter, update podUpdate) error {
	switch {
	case update.err != nil:
		w.disconnected()
	case update.event == view.Synced:
		w.synchronized(time.Now())
	case o.matchesName(podOfView(&update.pod)):
		isMet, err := o.goal.check(ctx, agent, &update.pod)
		if err != nil {
			return err
		}
		w.update(update.event, &update.pod, isMet, time.Now())
	}
	return nil
}

// report prints the pods that have met the condition since, and returns whether all have. It fails if a pod never will.
func (o *waitOptions) report(ctx context.Context, agent *client.Client, w *waiter, stdout io.Writer) (done bool, err error) {
	for _, met := range w.takeMet() {
		if _, err := fmt.Fprintf(stdout, "%s %s after %s\n", table.Printable(met.name), o.goal.text, formatDuration(met.after)); err != nil {
			return false, err
		}
	}
	if w.done() {
		return true, nil
	}
	for _, pod := range w.unmet() {
		reason, isImpossible := o.goal.impossible(ctx, agent, &pod.view)
		if isImpossible {
			fmt.Fprintf(stdout, "%s cannot become %s: %s\n", table.Printable(pod.key()), o.goal.text, table.Printable(reason))
			return false, errNo
		}
	}
	return false, nil
}

// timedOut returns the error of a wait whose time is over.
func (o *waitOptions) timedOut(ctx context.Context, agent *client.Client, w *waiter, unreachable error) error {
	if unreachable != nil {
		return unreachable
	}
	text := fmt.Sprintf("timed out after %s waiting for %s", formatDuration(o.timeout), o.goalText)
	if o.timeout == 0 {
		text = "condition not met: " + o.goalText
	}
	for _, name := range w.absent() {
		text += "\n" + table.Printable(name) + " does not exist"
	}
	pods := w.unmet()
	for _, pod := range pods {
		text += "\n" + table.Printable(pod.key()+": "+o.goal.why(ctx, agent, &pod.view))
	}
	if len(pods) == 0 && len(o.names) == 0 {
		text += "\nno pods are selected"
	}
	return fmt.Errorf("%s", text)
}
