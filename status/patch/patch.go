// Package patch builds the request that writes a pod's status to the API server.
//
// The patch states everything that the node owns in the object, so that it is correct on any base and needs no GET before
// it (BUG-2): absent scalars are null, address lists are replaced, and owned conditions that are absent are deleted by type.
// It does not mention what other writers own, which therefore survives: their conditions, the fields of the scheduler and of
// the claim controllers, and the QoS class, which is immutable.
package patch

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Request is the content of one patch.
type Request struct {
	// UID is that of the API object; for a static pod, of its mirror pod. The server rejects the patch if the object has
	// another one.
	UID types.UID
	// ResourceVersion makes the server reject the patch with a conflict unless the object has that version. If it is empty,
	// the patch applies to any version. The Status Manager sets it with every patch, except after repeated conflicts.
	ResourceVersion string
	// Status is the status that the object should have. Its conditions must be those to write, each type once.
	Status *v1.PodStatus
	// Absent lists the owned condition types that Status does not have. They are removed from the object.
	Absent []v1.PodConditionType
}

// Build returns a strategic merge patch for the status subresource.
func Build(request Request) ([]byte, error) {
	w := &writer{out: make([]byte, 0, 4096)}
	w.raw(`{"metadata":{"uid":`).text(string(request.UID))
	if request.ResourceVersion != "" {
		w.raw(`,"resourceVersion":`).text(request.ResourceVersion)
	}
	status := request.Status
	w.raw(`},"status":{"phase":`).textOrNull(string(status.Phase))
	w.scalars(status)
	w.addresses(status)
	w.conditions(status.Conditions, request.Absent)
	w.containerStatuses("initContainerStatuses", status.InitContainerStatuses)
	w.containerStatuses("containerStatuses", status.ContainerStatuses)
	w.containerStatuses("ephemeralContainerStatuses", status.EphemeralContainerStatuses)
	w.raw(`}}`)
	if w.err != nil {
		return nil, fmt.Errorf("build status patch of pod %s: %w", request.UID, w.err)
	}
	return w.out, nil
}

// writer appends JSON to out. It keeps the first error.
type writer struct {
	out []byte
	err error
}

func (w *writer) scalars(status *v1.PodStatus) {
	w.raw(`,"reason":`).textOrNull(status.Reason)
	w.raw(`,"message":`).textOrNull(status.Message)
	w.raw(`,"hostIP":`).textOrNull(status.HostIP)
	w.raw(`,"podIP":`).textOrNull(status.PodIP)
	w.raw(`,"startTime":`).time(status.StartTime)
	w.raw(`,"resize":`).textOrNull(string(status.Resize))
	// The server keeps its value if null is sent, so that zero is omitted.
	if status.ObservedGeneration != 0 {
		w.raw(`,"observedGeneration":`).number(status.ObservedGeneration)
	}
	w.raw(`,"allocatedResources":`).valueOrNull(len(status.AllocatedResources) > 0, status.AllocatedResources)
	w.raw(`,"resources":`).valueOrNull(status.Resources != nil, status.Resources)
}

// addresses replaces both lists. Merged by their key they would grow, and the server rejects two addresses of one family.
func (w *writer) addresses(status *v1.PodStatus) {
	w.raw(`,"hostIPs":`).replaceList(len(status.HostIPs), func(i int) string { return status.HostIPs[i].IP })
	w.raw(`,"podIPs":`).replaceList(len(status.PodIPs), func(i int) string { return status.PodIPs[i].IP })
}

func (w *writer) replaceList(length int, ip func(int) string) {
	if length == 0 {
		w.raw(`null`)
		return
	}
	w.raw(`[{"$patch":"replace"}`)
	for i := range length {
		w.raw(`,{"ip":`).text(ip(i)).raw(`}`)
	}
	w.raw(`]`)
}

// conditions are merged by type. Reason and message are always present: the server would keep old ones otherwise.
func (w *writer) conditions(conditions []v1.PodCondition, absent []v1.PodConditionType) {
	w.raw(`,"conditions":[`)
	for i := range conditions {
		w.comma(i).condition(&conditions[i])
	}
	for i, conditionType := range absent {
		w.comma(len(conditions) + i).raw(`{"$patch":"delete","type":`).text(string(conditionType)).raw(`}`)
	}
	w.raw(`]`)
}

func (w *writer) condition(condition *v1.PodCondition) {
	w.raw(`{"type":`).text(string(condition.Type)).raw(`,"status":`).text(string(condition.Status))
	w.raw(`,"reason":`).textOrNull(condition.Reason).raw(`,"message":`).textOrNull(condition.Message)
	w.raw(`,"lastProbeTime":`).time(&condition.LastProbeTime)
	w.raw(`,"lastTransitionTime":`).time(&condition.LastTransitionTime)
	w.raw(`,"observedGeneration":`)
	if condition.ObservedGeneration != 0 {
		w.number(condition.ObservedGeneration)
	} else {
		w.raw(`null`)
	}
	w.raw(`}`)
}

// containerStatuses writes a whole list: the server treats it as atomic.
func (w *writer) containerStatuses(field string, statuses []v1.ContainerStatus) {
	w.raw(`,"`).raw(field).raw(`":`).valueOrNull(len(statuses) > 0, statuses)
}

func (w *writer) raw(json string) *writer {
	w.out = append(w.out, json...)
	return w
}

func (w *writer) comma(i int) *writer {
	if i > 0 {
		w.out = append(w.out, ',')
	}
	return w
}

func (w *writer) text(text string) *writer {
	if !isPlain(text) {
		return w.value(text)
	}
	w.out = append(w.out, '"')
	w.out = append(w.out, text...)
	w.out = append(w.out, '"')
	return w
}

func (w *writer) textOrNull(text string) *writer {
	if text == "" {
		return w.raw(`null`)
	}
	return w.text(text)
}

func (w *writer) number(number int64) { w.out = strconv.AppendInt(w.out, number, 10) }

func (w *writer) time(t *metav1.Time) {
	if t.IsZero() {
		w.raw(`null`)
		return
	}
	w.out = append(w.out, '"')
	w.out = t.UTC().AppendFormat(w.out, time.RFC3339)
	w.out = append(w.out, '"')
}

func (w *writer) valueOrNull(isPresent bool, value any) {
	if isPresent {
		w.value(value)
	} else {
		w.raw(`null`)
	}
}

func (w *writer) value(value any) *writer {
	encoded, err := json.Marshal(value)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.out = append(w.out, encoded...)
	return w
}

// isPlain reports whether text needs no escapes as a JSON string.
func isPlain(text string) bool {
	for i := range len(text) {
		if char := text[i]; char < 0x20 || char > 0x7e || char == '"' || char == '\\' {
			return false
		}
	}
	return true
}
