package table

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/heraldnode/herald/internal/restart"
)

// Row is one pod's line. The fields after Age are shown in wide tables only.
type Row struct {
	Namespace, Name, Ready, Status, Restarts, Age string
	IP, Node, NominatedNode, ReadinessGates       string
}

// Of is the pod's line at that time. It is fit for a terminal, whatever the pod says.
func Of(pod *v1.Pod, now time.Time) Row {
	w := &words{pod: pod, reason: string(pod.Status.Phase)}
	if pod.Status.Reason != "" {
		w.reason = pod.Status.Reason
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Reason == v1.PodReasonSchedulingGated {
			w.reason = c.Reason
		}
	}
	if !w.readInit() || isTrue(pod, v1.PodInitialized) {
		w.readRegular()
	}
	w.readDeletion()
	return Row{
		Namespace: Printable(pod.Namespace), Name: Printable(pod.Name),
		Ready:  fmt.Sprintf("%d/%d", w.ready, total(pod)),
		Status: Printable(w.reason), Restarts: w.restartsText(now), Age: age(pod.CreationTimestamp, now),
		IP: Printable(firstIP(pod)), Node: orNone(Printable(pod.Spec.NodeName)),
		NominatedNode: orNone(Printable(pod.Status.NominatedNodeName)), ReadinessGates: gates(pod),
	}
}

// total counts the containers that can be ready: regular ones and sidecars.
func total(pod *v1.Pod) int {
	n := len(pod.Spec.Containers)
	for i := range pod.Spec.InitContainers {
		if restart.IsSidecar(&pod.Spec.InitContainers[i]) {
			n++
		}
	}
	return n
}

func age(since metav1.Time, now time.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(since.Time))
}

func firstIP(pod *v1.Pod) string {
	if len(pod.Status.PodIPs) == 0 {
		return orNone(pod.Status.PodIP) // of a node without an API server, which would have copied it
	}
	return orNone(pod.Status.PodIPs[0].IP)
}

func gates(pod *v1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return none
	}
	open := 0
	for _, gate := range pod.Spec.ReadinessGates {
		if isTrue(pod, gate.ConditionType) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(pod.Spec.ReadinessGates))
}

const none = "<none>"

func orNone(text string) string {
	if text == "" {
		return none
	}
	return text
}

func isTrue(pod *v1.Pod, kind v1.PodConditionType) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
