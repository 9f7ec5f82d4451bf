package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
)

// portForwardOptions are the options of 'herald port-forward'.
type portForwardOptions struct {
	agentFlags
	namespaceFlags

	addresses []string
}

func newPortForwardCommand() *cobra.Command {
	o := &portForwardOptions{}
	command := &cobra.Command{
		Use: "port-forward POD [LOCAL_PORT:]REMOTE_PORT...", Short: "Forward local ports to a pod", GroupID: groupRun,
		Long: `Forward one or more local ports to a pod, as 'kubectl port-forward' does, through the agent's unix socket: no API server is needed.
Only the user of the agent and root may do this.

Ports may have the names that the pod gives them. It ends with exit status 0 when it is interrupted, and with 1 when the connection to
the pod is lost.`,
		Example: `  # Listen on ports 5000 and 6000 and forward them to the same ports of the pod.
  sudo herald port-forward web-n1 5000 6000

  # Listen on port 8888 of all addresses, forward it to the port http of the pod.
  sudo herald port-forward web-n1 --address 0.0.0.0 8888:http

  # Listen on any free port.
  sudo herald port-forward pod/web-n1 :5000`,
		RunE: o.run,
	}
	o.bind(command)
	o.bindNamespace(command, &o.agentFlags)
	command.Flags().StringSliceVar(&o.addresses, "address", []string{"localhost"},
		"addresses to listen on: IP addresses or localhost, which is 127.0.0.1 and ::1, of which one must be free")
	command.ValidArgsFunction = o.complete
	return command
}

// complete completes the pod's name and then its ports.
func (o *portForwardOptions) complete(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	arguments := podArguments{agent: &o.agentFlags, namespaces: &o.namespaceFlags, one: true}
	if len(args) == 0 {
		return arguments.complete(cmd, args, typed)
	}
	name, err := parsePodName(cmd, args[:1])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ports []string
	for _, pod := range o.podsForCompletion(cmd) {
		if pod.Name != name || !o.matchesNamespace(&pod) {
			continue
		}
		for _, port := range podPorts(&pod) {
			ports = append(ports, strconv.Itoa(int(port.ContainerPort)))
		}
	}
	return ports, cobra.ShellCompDirectiveNoFileComp
}

func (o *portForwardOptions) run(cmd *cobra.Command, args []string) error {
	if len(args) < 2 {
		return usageErrorf("a pod and ports are required\nSee '%s --help' for usage", cmd.CommandPath())
	}
	name, err := parsePodName(cmd, args[:1])
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	o.setDefault()
	ctx, stop := withSignals(cmd.Context())
	defer stop()
	agent := o.client()
	pod, err := findPod(ctx, agent, &o.namespaceFlags, name)
	if err != nil {
		return err
	}
	if pod.Status.Phase != v1.PodRunning {
		return fmt.Errorf("unable to forward port because pod is not running. Current status=%v", pod.Status.Phase)
	}
	ports, err := numberPorts(pod, args[1:])
	if err != nil {
		return err
	}
	return agent.ForwardPorts(ctx, client.Forwarding{
		Namespace: pod.Namespace, Pod: pod.Name, Addresses: o.addresses, Ports: ports, Out: cmd.OutOrStdout(), ErrOut: cmd.ErrOrStderr(),
	})
}

func podPorts(pod *v1.Pod) (ports []v1.ContainerPort) {
	for _, container := range podContainers(pod) {
		ports = append(ports, container.Ports...)
	}
	return ports
}

// numberPorts replaces names of the pod's ports by their numbers. Only TCP can be forwarded.
func numberPorts(pod *v1.Pod, specs []string) (numbered []string, err error) {
	ports := podPorts(pod)
	for _, spec := range specs {
		local, remote, hasLocal := strings.Cut(spec, ":")
		if !hasLocal {
			remote = local
		}
		if _, err := strconv.ParseUint(remote, 10, 16); err != nil {
			i := slices.IndexFunc(ports, func(port v1.ContainerPort) bool { return port.Name == remote })
			if i < 0 || remote == "" {
				return nil, usageErrorf("port %q: the pod has no port of that name", spec)
			}
			number := strconv.Itoa(int(ports[i].ContainerPort))
			if !hasLocal {
				local = number
			}
			remote = number
		}
		if isUDPOnly(ports, remote) {
			return nil, fmt.Errorf("UDP protocol is not supported for %s", remote)
		}
		numbered = append(numbered, local+":"+remote)
	}
	return numbered, nil
}

func isUDPOnly(ports []v1.ContainerPort, number string) bool {
	isUDP := false
	for _, port := range ports {
		if strconv.Itoa(int(port.ContainerPort)) != number {
			continue
		}
		if port.Protocol != v1.ProtocolUDP {
			return false
		}
		isUDP = true
	}
	return isUDP
}
