package describe

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
)

// Pod describes a pod and its events, which are sorted from old to new. Nil events are not known.
func Pod(pod *v1.Pod, events []Event, now time.Time) string {
	w := newWriter()
	describeIdentity(w, pod)
	describePhase(w, pod, now)
	if pod.Spec.Resources != nil {
		w.line(0, "Resources:")
		w.resources(1, pod.Spec.Resources)
	}
	if len(pod.Spec.InitContainers) > 0 {
		describeContainers(w, "Init Containers", pod, pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
	}
	describeContainers(w, "Containers", pod, pod.Spec.Containers, pod.Status.ContainerStatuses)
	if len(pod.Spec.EphemeralContainers) > 0 {
		var containers []v1.Container
		for i := range pod.Spec.EphemeralContainers {
			containers = append(containers, v1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
		}
		describeContainers(w, "Ephemeral Containers", pod, containers, pod.Status.EphemeralContainerStatuses)
	}
	describeConditions(w, pod)
	describeVolumes(w, pod.Spec.Volumes)
	w.field(0, "QoS Class", derive.QOSClass(pod))
	w.labels("Node-Selectors", pod.Spec.NodeSelector)
	w.list("Tolerations", formatTolerations(pod.Spec.Tolerations))
	if constraints := formatSpreadConstraints(pod.Spec.TopologySpreadConstraints); len(constraints) > 0 {
		w.list("Topology Spread Constraints", constraints)
	}
	w.events(events, now)
	return w.String()
}

func describeIdentity(w *writer, pod *v1.Pod) {
	w.field(0, "Name", pod.Name)
	w.field(0, "Namespace", pod.Namespace)
	if pod.Spec.Priority != nil {
		w.field(0, "Priority", *pod.Spec.Priority)
	}
	w.fieldIf(0, "Priority Class Name", pod.Spec.PriorityClassName)
	if pod.Spec.RuntimeClassName != nil {
		w.fieldIf(0, "Runtime Class Name", *pod.Spec.RuntimeClassName)
	}
	w.fieldIf(0, "Service Account", pod.Spec.ServiceAccountName)
	if pod.Spec.NodeName == "" {
		w.field(0, "Node", none)
	} else {
		w.field(0, "Node", pod.Spec.NodeName+"/"+pod.Status.HostIP)
	}
	if pod.Status.StartTime != nil {
		w.field(0, "Start Time", formatTime(pod.Status.StartTime.Time))
	}
	w.labels("Labels", pod.Labels)
	w.annotations(pod.Annotations)
}

func describePhase(w *writer, pod *v1.Pod, now time.Time) {
	if pod.DeletionTimestamp != nil && !derive.IsTerminal(pod.Status.Phase) {
		w.field(0, "Status", fmt.Sprintf("Terminating (lasts %s)", since(pod.DeletionTimestamp.Time, now)))
		if pod.DeletionGracePeriodSeconds != nil {
			w.field(0, "Termination Grace Period", fmt.Sprintf("%ds", *pod.DeletionGracePeriodSeconds))
		}
	} else {
		w.field(0, "Status", pod.Status.Phase)
	}
	w.fieldIf(0, "Reason", pod.Status.Reason)
	w.fieldIf(0, "Message", pod.Status.Message)
	if pod.Spec.SecurityContext != nil {
		describeSeccomp(w, 0, 0, pod.Spec.SecurityContext.SeccompProfile)
	}
	w.field(0, "IP", pod.Status.PodIP)
	if len(pod.Status.PodIPs) == 0 {
		w.field(0, "IPs", none)
	} else {
		w.line(0, "IPs:")
	}
	for _, ip := range pod.Status.PodIPs {
		w.field(1, "IP", ip.IP)
	}
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		w.field(0, "Controlled By", controller.Kind+"/"+controller.Name)
	}
	w.fieldIf(0, "NominatedNodeName", pod.Status.NominatedNodeName)
}

func describeSeccomp(w *writer, level, profileLevel int, profile *v1.SeccompProfile) {
	if profile == nil {
		return
	}
	w.field(level, "SeccompProfile", profile.Type)
	if profile.Type == v1.SeccompProfileTypeLocalhost && profile.LocalhostProfile != nil {
		w.field(profileLevel, "LocalhostProfile", *profile.LocalhostProfile)
	}
}

func describeConditions(w *writer, pod *v1.Pod) {
	if len(pod.Spec.ReadinessGates) > 0 {
		w.line(0, "Readiness Gates:")
		w.line(1, "Type", "Status")
		for _, gate := range pod.Spec.ReadinessGates {
			status := none
			for i := range pod.Status.Conditions {
				if pod.Status.Conditions[i].Type == gate.ConditionType {
					status = string(pod.Status.Conditions[i].Status)
				}
			}
			w.line(1, string(gate.ConditionType)+" ", status+" ")
		}
	}
	if len(pod.Status.Conditions) == 0 {
		return
	}
	w.line(0, "Conditions:")
	w.line(1, "Type", "Status")
	for i := range pod.Status.Conditions {
		w.line(1, string(pod.Status.Conditions[i].Type)+" ", string(pod.Status.Conditions[i].Status)+" ")
	}
}

func formatTolerations(tolerations []v1.Toleration) []string {
	tolerations = slices.Clone(tolerations)
	slices.SortStableFunc(tolerations, func(a, b v1.Toleration) int { return cmp.Compare(a.Key, b.Key) })
	var texts []string
	for i := range tolerations {
		t := &tolerations[i]
		text := t.Key
		if t.Value != "" {
			text += "=" + t.Value
		}
		if t.Effect != "" {
			text += ":" + string(t.Effect)
		}
		if t.Operator == v1.TolerationOpExists && t.Value == "" {
			if text != "" {
				text += " "
			}
			text += "op=Exists"
		}
		if t.TolerationSeconds != nil {
			text += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
		}
		texts = append(texts, text)
	}
	return texts
}

func formatSpreadConstraints(constraints []v1.TopologySpreadConstraint) []string {
	constraints = slices.Clone(constraints)
	slices.SortStableFunc(constraints, func(a, b v1.TopologySpreadConstraint) int { return cmp.Compare(a.TopologyKey, b.TopologyKey) })
	var texts []string
	for i := range constraints {
		c := &constraints[i]
		text := fmt.Sprintf("%s:%s when max skew %d is exceeded", c.TopologyKey, c.WhenUnsatisfiable, c.MaxSkew)
		if c.LabelSelector != nil {
			text += " for selector " + metav1.FormatLabelSelector(c.LabelSelector)
		}
		texts = append(texts, text)
	}
	return texts
}
