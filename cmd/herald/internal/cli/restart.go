package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/view"
)

// restartOptions are the options of 'herald restart'.
type restartOptions struct {
	onePodFlags

	container, reason string
	timeout           time.Duration
	wait              bool
}

// defaultRestartTimeout leaves time for a grace period, a start and a readiness probe.
const defaultRestartTimeout = 2 * time.Minute

func newRestartCommand() *cobra.Command {
	o := &restartOptions{}
	command := &cobra.Command{
		Use: "restart pod NAME --container CONTAINER --reason TEXT", Short: "Restart one container of a pod", GroupID: groupRun,
		Long: `Stop one container of a pod gracefully, as the agent would, with its preStop hook and its grace period, and let the agent start it
again. The other containers of the pod keep running. The history records who asked for it and why.

Only the user of the agent and root may do this, and only through the agent's unix socket. The exit status is 0 when the container
is ready again.`,
		Example: `  # The container reads a new certificate at its start.
  sudo herald restart pod web-n1 --container web --reason "new certificate"

  # Do not wait until it is ready again.
  sudo herald restart pod web-n1 --container web --reason "new certificate" --wait=false`,
	}
	arguments := o.bindOnePod(command, true, o.run)
	flags := command.Flags()
	flags.Lookup("output").Usage += "; does not wait"
	flags.StringVarP(&o.container, "container", "c", "", "container to restart; may be omitted if the pod has only one")
	flags.StringVar(&o.reason, "reason", "", "why, for the history; required")
	flags.DurationVar(&o.timeout, "timeout", defaultRestartTimeout, "how long to wait until the container has stopped and is ready again")
	flags.BoolVar(&o.wait, "wait", true, "wait until the container is ready again")
	registerCompletion(command, "container", arguments.completeContainers)
	return command
}

func (o *restartOptions) run(ctx context.Context, stdout io.Writer, name string) error {
	switch {
	case o.reason == "":
		return usageErrorf("--reason is required: it is kept in the history")
	case o.timeout <= 0:
		return usageErrorf("--timeout %v: must be positive", o.timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	started := time.Now()
	agent := client.New(o.server, 0) // it answers when the container has stopped
	stopped, err := agent.Restart(ctx, client.RestartRequest{Namespace: o.namespace, Pod: name, Container: o.container, Reason: o.reason})
	if err != nil {
		return o.notFound(ctx, o.client(), name, err)
	}
	return o.print(stdout, stopped, func() error { return o.printRestart(ctx, stdout, &stopped, started) })
}

// printRestart prints how the container stopped, and how it starts.
func (o *restartOptions) printRestart(ctx context.Context, stdout io.Writer, stopped *view.Restart, started time.Time) (err error) {
	text := fmt.Sprintf("%s/%s stopped after %s (exit %d)", stopped.Pod, stopped.Container,
		formatDuration(time.Duration(stopped.TookMs)*time.Millisecond), stopped.ExitCode)
	if _, err := io.WriteString(stdout, table.Printable(text)); err != nil {
		return err
	}
	if o.wait {
		err = o.waitUntilReady(ctx, stdout, stopped, started)
	}
	fmt.Fprintln(stdout)
	return err
}

// waitUntilReady prints when another instance of the container has started and is ready.
func (o *restartOptions) waitUntilReady(ctx context.Context, stdout io.Writer, stopped *view.Restart, started time.Time) error {
	why, hasStarted := "", false
	parameters := url.Values{"namespace": {stopped.Namespace}, "fieldSelector": {"metadata.name=" + stopped.Pod}}
	for update := range watchPods(ctx, o.client(), parameters) {
		if update.isFinal() {
			return update.err
		}
		if update.err != nil || update.event == view.Synced || update.event == view.Deleted {
			continue
		}
		why = update.pod.Why.Text
		status := containerStatus(&update.pod, stopped.Container)
		if status == nil || status.ContainerID == stopped.ContainerID || status.State.Running == nil {
			continue
		}
		if !hasStarted {
			hasStarted = true
			fmt.Fprintf(stdout, ", started as restart %d", status.RestartCount)
		}
		if status.Ready {
			fmt.Fprintf(stdout, ", ready after %s", formatDuration(time.Since(started)))
			return nil
		}
	}
	fmt.Fprintf(stdout, ", not ready within %s: %s", formatDuration(o.timeout), table.Printable(why))
	return errNo
}

// containerStatus returns the status of a container, or nil.
func containerStatus(pod *view.PodView, name string) *v1.ContainerStatus {
	for _, statuses := range [][]v1.ContainerStatus{pod.Local.Status.InitContainerStatuses, pod.Local.Status.ContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return nil
}
