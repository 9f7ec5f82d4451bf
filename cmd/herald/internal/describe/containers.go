package describe

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/provision/resolve"
)

func describeContainers(w *writer, title string, pod *v1.Pod, containers []v1.Container, statuses []v1.ContainerStatus) {
	if len(containers) == 0 {
		w.field(0, title, none)
		return
	}
	w.line(0, title+":")
	for i := range containers {
		container := &containers[i]
		var status *v1.ContainerStatus
		for j := range statuses {
			if statuses[j].Name == container.Name {
				status = &statuses[j]
			}
		}
		w.line(1, container.Name+":")
		describeImage(w, container, status)
		describeCommand(w, "Command", container.Command)
		describeCommand(w, "Args", container.Args)
		if status != nil {
			describeContainerStatus(w, status)
		}
		w.resources(2, &container.Resources)
		describeProbes(w, container)
		describeEnvironment(w, pod, container)
		describeMounts(w, container)
	}
}

func describeImage(w *writer, container *v1.Container, status *v1.ContainerStatus) {
	if status != nil {
		w.field(2, "Container ID", status.ContainerID)
	}
	w.field(2, "Image", container.Image)
	if status != nil {
		w.field(2, "Image ID", status.ImageID)
	}
	var ports, hostPorts []string
	for _, port := range container.Ports {
		suffix := "/" + string(port.Protocol)
		if port.Name != "" {
			suffix += " (" + port.Name + ")"
		}
		ports = append(ports, fmt.Sprint(port.ContainerPort)+suffix)
		hostPorts = append(hostPorts, fmt.Sprint(port.HostPort)+suffix)
	}
	plural := map[bool]string{true: "s"}[len(ports) > 1]
	w.field(2, "Port"+plural, orNone(strings.Join(ports, ", ")))
	w.field(2, "Host Port"+plural, orNone(strings.Join(hostPorts, ", ")))
	if container.SecurityContext != nil {
		describeSeccomp(w, 2, 3, container.SecurityContext.SeccompProfile)
	}
}

func describeCommand(w *writer, name string, words []string) {
	if len(words) == 0 {
		return
	}
	w.line(2, name+":")
	for _, word := range words {
		w.lines(3, word)
	}
}

func describeContainerStatus(w *writer, status *v1.ContainerStatus) {
	describeState(w, "State", &status.State)
	if status.LastTerminationState.Terminated != nil {
		describeState(w, "Last State", &status.LastTerminationState)
	}
	w.field(2, "Ready", map[bool]string{true: "True", false: "False"}[status.Ready])
	w.field(2, "Restart Count", status.RestartCount)
}

func describeState(w *writer, name string, state *v1.ContainerState) {
	switch {
	case state.Running != nil:
		w.field(2, name, "Running")
		w.field(3, "Started", formatTime(state.Running.StartedAt.Time))
	case state.Terminated != nil:
		ended := state.Terminated
		w.field(2, name, "Terminated")
		w.fieldIf(3, "Reason", ended.Reason)
		w.fieldIf(3, "Message", ended.Message)
		w.field(3, "Exit Code", ended.ExitCode)
		if ended.Signal > 0 {
			w.field(3, "Signal", ended.Signal)
		}
		w.field(3, "Started", formatTime(ended.StartedAt.Time))
		w.field(3, "Finished", formatTime(ended.FinishedAt.Time))
	default:
		w.field(2, name, "Waiting")
		if state.Waiting != nil {
			w.fieldIf(3, "Reason", state.Waiting.Reason)
		}
	}
}

func describeProbes(w *writer, container *v1.Container) {
	for _, probe := range []struct {
		name  string
		probe *v1.Probe
	}{{"Liveness", container.LivenessProbe}, {"Readiness", container.ReadinessProbe}, {"Startup", container.StartupProbe}} {
		if probe.probe != nil {
			w.field(2, probe.name, formatProbe(probe.probe))
		}
	}
}

func formatProbe(probe *v1.Probe) string {
	handler := "unknown"
	switch {
	case probe.Exec != nil:
		handler = fmt.Sprintf("exec %v", probe.Exec.Command)
	case probe.HTTPGet != nil:
		target := url.URL{
			Scheme: strings.ToLower(string(probe.HTTPGet.Scheme)), Path: probe.HTTPGet.Path,
			Host: net.JoinHostPort(probe.HTTPGet.Host, probe.HTTPGet.Port.String()),
		}
		handler = "http-get " + target.String()
	case probe.TCPSocket != nil:
		handler = fmt.Sprintf("tcp-socket %s:%s", probe.TCPSocket.Host, probe.TCPSocket.Port.String())
	case probe.GRPC != nil:
		service := ""
		if probe.GRPC.Service != nil {
			service = *probe.GRPC.Service
		}
		handler = fmt.Sprintf("grpc <pod>:%d %s", probe.GRPC.Port, service)
	}
	return fmt.Sprintf("%s delay=%ds timeout=%ds period=%ds #success=%d #failure=%d", handler,
		probe.InitialDelaySeconds, probe.TimeoutSeconds, probe.PeriodSeconds, probe.SuccessThreshold, probe.FailureThreshold)
}

func describeEnvironment(w *writer, pod *v1.Pod, container *v1.Container) {
	if len(container.EnvFrom) > 0 {
		w.line(2, "Environment Variables from:")
	}
	for _, from := range container.EnvFrom {
		kind, name, optional := "", "", false
		switch {
		case from.ConfigMapRef != nil:
			kind, name, optional = "ConfigMap", from.ConfigMapRef.Name, isSet(from.ConfigMapRef.Optional)
		case from.SecretRef != nil:
			kind, name, optional = "Secret", from.SecretRef.Name, isSet(from.SecretRef.Optional)
		}
		if from.Prefix != "" {
			kind += " with prefix '" + from.Prefix + "'"
		}
		w.line(3, name, kind, fmt.Sprintf("Optional: %t", optional))
	}
	if len(container.Env) == 0 {
		w.field(2, "Environment", none)
		return
	}
	w.line(2, "Environment:")
	for i := range container.Env {
		describeVariable(w, pod, container, &container.Env[i])
	}
}

func describeVariable(w *writer, pod *v1.Pod, container *v1.Container, variable *v1.EnvVar) {
	from := variable.ValueFrom
	switch {
	case from == nil:
		first, rest, hasMore := strings.Cut(variable.Value, "\n")
		w.line(3, variable.Name+":", first)
		for line := range strings.SplitSeq(rest, "\n") {
			if hasMore {
				w.line(3, "", line)
			}
		}
	case from.FieldRef != nil:
		value, err := resolve.MetadataField(pod, from.FieldRef)
		if err != nil {
			value = "" // known only to the container
		}
		w.line(3, variable.Name+":", fmt.Sprintf("%s (%s:%s)", value, from.FieldRef.APIVersion, from.FieldRef.FieldPath))
	case from.ResourceFieldRef != nil:
		value, err := resolve.ContainerResource(pod, container, from.ResourceFieldRef, v1.ResourceList{})
		if err != nil {
			value = ""
		}
		if resource := from.ResourceFieldRef.Resource; value == "0" && (resource == "limits.cpu" || resource == "limits.memory") {
			value = "node allocatable"
		}
		w.line(3, variable.Name+":", fmt.Sprintf("%s (%s)", value, from.ResourceFieldRef.Resource))
	case from.SecretKeyRef != nil:
		w.line(3, variable.Name+":", fmt.Sprintf("<set to the key '%s' in secret '%s'>", from.SecretKeyRef.Key, from.SecretKeyRef.Name),
			fmt.Sprintf("Optional: %t", isSet(from.SecretKeyRef.Optional)))
	case from.ConfigMapKeyRef != nil:
		w.line(3, variable.Name+":",
			fmt.Sprintf("<set to the key '%s' of config map '%s'>", from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Name),
			fmt.Sprintf("Optional: %t", isSet(from.ConfigMapKeyRef.Optional)))
	}
}

func isSet(optional *bool) bool { return optional != nil && *optional }

func describeMounts(w *writer, container *v1.Container) {
	if len(container.VolumeMounts) == 0 {
		w.field(2, "Mounts", none)
	} else {
		w.line(2, "Mounts:")
	}
	mounts := slices.Clone(container.VolumeMounts)
	slices.SortStableFunc(mounts, func(a, b v1.VolumeMount) int { return cmp.Compare(a.MountPath, b.MountPath) })
	for i := range mounts {
		mode := map[bool]string{true: "ro", false: "rw"}[mounts[i].ReadOnly]
		if mounts[i].SubPath != "" {
			mode += fmt.Sprintf(",path=%q", mounts[i].SubPath)
		}
		w.line(3, fmt.Sprintf("%s from %s (%s)", mounts[i].MountPath, mounts[i].Name, mode))
	}
}
