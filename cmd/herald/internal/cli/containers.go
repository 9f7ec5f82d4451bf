package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
)

// containerFlags select a container of a pod, as kubectl does.
type containerFlags struct {
	agentFlags
	namespaceFlags

	container string
	quiet     bool
}

// bindContainer adds the flags and returns the completion of the pod's name.
func (f *containerFlags) bindContainer(command *cobra.Command) podArguments {
	f.bind(command)
	f.bindNamespace(command, &f.agentFlags)
	command.Flags().StringVarP(&f.container, "container", "c", "",
		"name of the container; defaults to the annotation kubectl.kubernetes.io/default-container or the first one")
	command.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print only the output of the container")
	arguments := podArguments{agent: &f.agentFlags, namespaces: &f.namespaceFlags, one: true}
	registerCompletion(command, "container", arguments.completeContainers)
	return arguments
}

// findPod returns a pod of the agent.
func findPod(ctx context.Context, agent *client.Client, namespaces *namespaceFlags, name string) (*v1.Pod, error) {
	pods, err := agent.Pods(ctx)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if pods[i].Name == name && namespaces.matchesNamespace(&pods[i]) {
			return &pods[i], nil
		}
	}
	return nil, fmt.Errorf("pods %q not found%s", name, namespaces.hint(pods, name))
}

// findContainer returns the container that is named or the pod's default, which it names if there are others.
func (f *containerFlags) findContainer(pod *v1.Pod, stderr io.Writer) (*v1.Container, error) {
	all := podContainers(pod)
	name := f.container
	if name == "" {
		name = pod.Annotations["kubectl.kubernetes.io/default-container"]
	}
	if name == "" {
		if len(pod.Spec.Containers) == 0 {
			return nil, fmt.Errorf("pod %s/%s does not have any containers", pod.Namespace, pod.Name)
		}
		name = pod.Spec.Containers[0].Name
		if len(all) > 1 && !f.quiet {
			fmt.Fprintf(stderr, "Defaulted container %q out of: %s\n", name, containerNames(all))
		}
	}
	for _, candidate := range all {
		if candidate.Name == name {
			return candidate.Container, nil
		}
	}
	return nil, fmt.Errorf("container %s is not valid for pod %s out of: %s", name, pod.Name, containerNames(all))
}

// podContainer is a container of a pod of any kind.
type podContainer struct {
	*v1.Container

	note string // kubectl's, which tells the kind
}

// podContainers returns all containers of a pod in kubectl's order.
func podContainers(pod *v1.Pod) (all []podContainer) {
	for i := range pod.Spec.Containers {
		all = append(all, podContainer{&pod.Spec.Containers[i], ""})
	}
	for i := range pod.Spec.EphemeralContainers {
		all = append(all, podContainer{(*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon), " (ephem)"})
	}
	for i := range pod.Spec.InitContainers {
		all = append(all, podContainer{&pod.Spec.InitContainers[i], " (init)"})
	}
	return all
}

func containerNames(all []podContainer) string {
	names := make([]string, 0, len(all))
	for _, container := range all {
		names = append(names, container.Name+container.note)
	}
	return strings.Join(names, ", ")
}
