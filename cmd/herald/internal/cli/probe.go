package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/view"
)

// probeOptions are the options of 'herald probe'.
type probeOptions struct {
	onePodFlags

	container, kind string
}

// probeKinds are the values of --kind.
var probeKinds = []string{string(explain.Startup), string(explain.Readiness), string(explain.Liveness)}

// probeTimeout bounds the time of all checks of a pod, each of which has its own timeout.
const probeTimeout = 5 * time.Minute

func newProbeCommand() *cobra.Command {
	o := &probeOptions{}
	command := &cobra.Command{
		Use: "probe POD", Short: "Check the probes of a pod once, now", GroupID: groupAsk,
		Long: `Check the probes of a pod once, now, and print the answers. The results that count for the status do not change, whatever the
answers are: no container becomes ready or is restarted by this.

Checks run in the container or connect to it, so only the user of the agent and root may ask for them, through the agent's unix
socket. The exit status is 0 if all checks succeed and 1 otherwise.`,
		Example: `  # Check all probes of a pod.
  sudo herald probe web-n1

  # Check the readiness probe of one container.
  sudo herald probe web-n1 -c web --kind readiness`,
	}
	arguments := o.bindOnePod(command, false, o.run)
	flags := command.Flags()
	flags.StringVarP(&o.container, "container", "c", "", "container whose probes are checked; without it, all")
	flags.StringVar(&o.kind, "kind", "", "startup, readiness or liveness; without it, all")
	registerCompletion(command, "container", arguments.completeContainers)
	completeFlag(command, "kind", probeKinds...)
	return command
}

func (o *probeOptions) run(ctx context.Context, stdout io.Writer, name string) error {
	if !slices.Contains(probeKinds, o.kind) && o.kind != "" {
		return usageErrorf("--kind %s: must be %s", o.kind, oneOf(probeKinds))
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	agent := client.New(o.server, 0) // it answers when the checks are done
	list, err := agent.Probe(ctx, client.ProbeRequest{
		Namespace: o.namespace, Pod: name, Container: o.container, Kind: explain.ProbeKind(o.kind),
	})
	if err != nil {
		return o.notFound(ctx, o.client(), name, err)
	}
	err = o.print(stdout, list, func() error { return printChecks(stdout, list.Items) })
	if err == nil && slices.ContainsFunc(list.Items, func(check view.ProbeCheck) bool { return !check.Answer.OK }) {
		return errNo
	}
	return err
}

func printChecks(out io.Writer, checks []view.ProbeCheck) error {
	lines := [][]string{{"CONTAINER", "PROBE", "TARGET", "RESULT", "TOOK", "MESSAGE"}}
	for i := range checks {
		check := &checks[i]
		result := map[bool]string{true: "success", false: "failure"}[check.Answer.OK]
		lines = append(lines, []string{
			table.Printable(check.Container), string(check.ProbeKind), table.Printable(check.Target), result,
			formatDuration(time.Duration(check.Answer.TookMs) * time.Millisecond), table.Printable(strings.TrimSpace(check.Answer.Message)),
		})
	}
	return table.NewGrid(out).Print(lines...)
}
