package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
)

func newExecCommand() *cobra.Command {
	f := &streamFlags{}
	command := &cobra.Command{
		Use: "exec POD [-c CONTAINER] [flags] -- COMMAND [ARGUMENT...]", Short: "Run a command in a container", GroupID: groupRun,
		DisableFlagsInUseLine: true,
		Long: `Run a command in a container, as 'kubectl exec' does, through the agent's unix socket: no API server is needed. Only the user of
the agent and root may do this.

The exit status is that of the command; 128 + N if signal N ended it.`,
		Example: `  # Run a command in the default container of a pod.
  sudo herald exec web-n1 -- date

  # A shell with a terminal in another container.
  sudo herald exec -it web-n1 -c sidecar -- sh

  # Copy a file into the pod.
  sudo herald exec -i web-n1 -- sh -c 'cat > /tmp/config' < config`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			switch {
			case dash < 0 && len(args) > 1:
				return usageErrorf("use '%s POD -- COMMAND': the command must be after --", cmd.CommandPath())
			case dash < 0 || dash == len(args):
				return usageErrorf("a command is required: use '%s POD -- COMMAND'\nSee '%[1]s --help' for usage", cmd.CommandPath())
			}
			name, err := parsePodName(cmd, args[:dash])
			if err != nil {
				return err
			}
			return f.exec(cmd, name, args[dash:])
		},
	}
	arguments := f.bindContainer(command)
	f.bindStreams(command)
	command.ValidArgsFunction = arguments.complete
	return command
}

func (f *streamFlags) bindStreams(command *cobra.Command) {
	command.Flags().BoolVarP(&f.stdin, "stdin", "i", false, "pass standard input to the container")
	command.Flags().BoolVarP(&f.tty, "tty", "t", false, "standard input is a terminal")
}

func (f *streamFlags) exec(cmd *cobra.Command, name string, args []string) error {
	s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
	agent, pod, err := f.runningPod(cmd.Context(), "exec into", name)
	if err != nil {
		return err
	}
	container, err := f.findContainer(pod, s.err)
	if err != nil {
		return err
	}
	options, terminal := f.options(s)
	return terminal.run(cmd.Context(), func(ctx context.Context) error {
		return agent.Exec(ctx, client.Container{Namespace: pod.Namespace, Pod: pod.Name, Name: container.Name}, args, options)
	})
}

// runningPod returns the pod unless it has ended.
func (f *containerFlags) runningPod(ctx context.Context, verb, name string) (*client.Client, *v1.Pod, error) {
	if err := f.check(); err != nil {
		return nil, nil, err
	}
	f.setDefault()
	agent := f.client()
	pod, err := findPod(ctx, agent, &f.namespaceFlags, name)
	if err != nil {
		return nil, nil, err
	}
	if phase := pod.Status.Phase; phase == v1.PodSucceeded || phase == v1.PodFailed {
		return nil, nil, fmt.Errorf("cannot %s a container in a completed pod; current phase is %s", verb, phase)
	}
	return agent, pod, nil
}
