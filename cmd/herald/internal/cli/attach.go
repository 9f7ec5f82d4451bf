package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
)

func newAttachCommand() *cobra.Command {
	f := &streamFlags{}
	command := &cobra.Command{
		Use: "attach POD [-c CONTAINER] [flags]", Short: "Attach to the main process of a container", GroupID: groupRun,
		DisableFlagsInUseLine: true,
		Long: `Print the output of a container from now on, and with -i pass input to its main process, as 'kubectl attach' does, through the
agent's unix socket: no API server is needed. Only the user of the agent and root may do this.

The container must have stdin for input, and tty for a terminal. If its stdinOnce is true, its input ends with that of this command.`,
		Example: `  # Print the output of a pod until it ends.
  sudo herald attach web-n1

  # Use the shell that a container runs.
  sudo herald attach -it shell-n1 -c main`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := parsePodName(cmd, args)
			if err != nil {
				return err
			}
			return f.attach(cmd, name)
		},
	}
	arguments := f.bindContainer(command)
	f.bindStreams(command)
	command.ValidArgsFunction = arguments.complete
	return command
}

func (f *streamFlags) attach(cmd *cobra.Command, name string) error {
	s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
	agent, pod, err := f.runningPod(cmd.Context(), "attach", name)
	if err != nil {
		return err
	}
	container, err := f.findContainer(pod, s.err)
	if err != nil {
		return err
	}
	if f.tty && !container.TTY && !f.quiet {
		fmt.Fprintf(s.err, "Unable to use a TTY - container %s did not allocate one\n", container.Name)
	}
	f.tty = container.TTY
	options, terminal := f.options(s)
	if container.TTY {
		options.Tty, options.Stderr = true, nil // the container's output is a terminal's in any case
	}
	if f.stdin && !f.quiet {
		fmt.Fprintln(s.err, "All commands and output of this session are recorded in the container's log.")
		fmt.Fprintln(s.err, "If you don't see a command prompt, try pressing enter.")
	}
	terminal.redraw()
	err = terminal.run(cmd.Context(), func(ctx context.Context) error {
		return agent.Attach(ctx, client.Container{Namespace: pod.Namespace, Pod: pod.Name, Name: container.Name}, options)
	})
	if err == nil && terminal != nil && !f.quiet {
		fmt.Fprintln(s.out, f.resumeMessage(cmd, pod, container.Name))
	}
	return err
}

func (f *streamFlags) resumeMessage(cmd *cobra.Command, pod *v1.Pod, container string) string {
	return fmt.Sprintf("Session ended, resume using '%s %s -c %s -n %s -i -t' command", cmd.CommandPath(), pod.Name, container, pod.Namespace)
}

// redraw sends another size first, so that programs draw the screen anew.
func (t *rawTerminal) redraw() {
	if t == nil {
		return
	}
	if size, isKnown := t.size(); isKnown {
		t.sizes <- client.TerminalSize{Width: size.Width + 1, Height: size.Height + 1}
	}
}
