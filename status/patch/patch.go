// Package patch writes the one request by which a pod's status reaches the API server.
//
// The patch states what the object should say, all of it that the agent owns, and so needs no fetched base to be right
// (BUG-2): absent scalars are null, address lists are replaced, owned conditions that are gone are deleted by name. What
// others own is not mentioned and therefore survives: their conditions, the scheduler's and the claim controllers'
// fields, and the QoS class, which nobody may change.
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

// Request is what one patch says.
type Request struct {
	// UID is that of the object in the API server; for a static pod its mirror's. A pod of the same name and another UID
	// is refused by the server, never written.
	UID types.UID
	// ResourceVersion makes the server refuse the patch unless the object is still at that version. It is empty except
	// where an older request may still be under way, or where losing a race would do harm.
	ResourceVersion string
	// Status is what the object should say. Conditions in it must be owned or meant to be written, each type once.
	Status *v1.PodStatus
	// Absent are the owned condition types that Status does not have: they are removed from the object if it has them.
	Absent []v1.PodConditionType
}

// Build writes a strategic merge patch for the status subresource.
func Build(r Request) ([]byte, error) {
	w := &writer{out: make([]byte, 0, 4096)}
	w.raw(`{"metadata":{"uid":`).text(string(r.UID))
	if r.ResourceVersion != "" {
		w.raw(`,"resourceVersion":`).text(r.ResourceVersion)
	}
	w.raw(`},"status":{"phase":`).textOrNull(string(r.Status.Phase))
	w.scalars(r.Status)
	w.addresses(r.Status)
	w.conditions(r.Status.Conditions, r.Absent)
	w.list("initContainerStatuses", r.Status.InitContainerStatuses)
	w.list("containerStatuses", r.Status.ContainerStatuses)
	w.list("ephemeralContainerStatuses", r.Status.EphemeralContainerStatuses)
	w.raw(`}}`)
	if w.err != nil {
		return nil, fmt.Errorf("write the status patch of pod %s: %w", r.UID, w.err)
	}
	return w.out, nil
}

func (w *writer) scalars(s *v1.PodStatus) {
	w.raw(`,"reason":`).textOrNull(s.Reason)
	w.raw(`,"message":`).textOrNull(s.Message)
	w.raw(`,"hostIP":`).textOrNull(s.HostIP)
	w.raw(`,"podIP":`).textOrNull(s.PodIP)
	w.raw(`,"startTime":`).time(s.StartTime)
	w.raw(`,"resize":`).textOrNull(string(s.Resize))
	// The server keeps its value when null is sent, so that zero needs no mention.
	if s.ObservedGeneration != 0 {
		w.raw(`,"observedGeneration":`).number(s.ObservedGeneration)
	}
	w.raw(`,"allocatedResources":`).value(orNull(len(s.AllocatedResources) > 0, s.AllocatedResources))
	w.raw(`,"resources":`).value(orNull(s.Resources != nil, s.Resources))
}

// addresses replaces both lists as wholes: merged by their key they would grow, and the server refuses two addresses of
// one family.
func (w *writer) addresses(s *v1.PodStatus) {
	w.raw(`,"hostIPs":`).replaced(len(s.HostIPs), func(i int) string { return s.HostIPs[i].IP })
	w.raw(`,"podIPs":`).replaced(len(s.PodIPs), func(i int) string { return s.PodIPs[i].IP })
}

func (w *writer) replaced(n int, ip func(int) string) {
	if n == 0 {
		w.raw(`null`)
		return
	}
	w.raw(`[{"$patch":"replace"}`)
	for i := range n {
		w.raw(`,{"ip":`).text(ip(i)).raw(`}`)
	}
	w.raw(`]`)
}

// conditions are merged by type. Reason and message are always mentioned: left out, the server would keep the old ones.
func (w *writer) conditions(conditions []v1.PodCondition, absent []v1.PodConditionType) {
	w.raw(`,"conditions":[`)
	for i := range conditions {
		w.comma(i).condition(&conditions[i])
	}
	for i, kind := range absent {
		w.comma(len(conditions) + i).raw(`{"$patch":"delete","type":`).text(string(kind)).raw(`}`)
	}
	w.raw(`]`)
}

func (w *writer) condition(c *v1.PodCondition) {
	w.raw(`{"type":`).text(string(c.Type)).raw(`,"status":`).text(string(c.Status))
	w.raw(`,"reason":`).textOrNull(c.Reason).raw(`,"message":`).textOrNull(c.Message)
	w.raw(`,"lastProbeTime":`).time(&c.LastProbeTime).raw(`,"lastTransitionTime":`).time(&c.LastTransitionTime)
	if c.ObservedGeneration != 0 {
		w.raw(`,"observedGeneration":`).number(c.ObservedGeneration)
	} else {
		w.raw(`,"observedGeneration":null`)
	}
	w.raw(`}`)
}

// list writes container statuses. The server treats these lists as atoms, so that each is sent as it should be.
func (w *writer) list(field string, statuses []v1.ContainerStatus) {
	w.raw(`,"`).raw(field).raw(`":`).value(orNull(len(statuses) > 0, statuses))
}

// orNull is the value, or nothing, which JSON writes as null.
func orNull(present bool, value any) any {
	if !present {
		return nil
	}
	return value
}

// writer appends JSON. It remembers the first error and then does nothing.
type writer struct {
	out []byte
	err error
}

func (w *writer) raw(s string) *writer {
	w.out = append(w.out, s...)
	return w
}

func (w *writer) comma(i int) *writer {
	if i > 0 {
		w.out = append(w.out, ',')
	}
	return w
}

func (w *writer) text(s string) *writer {
	if !plain(s) {
		return w.value(s)
	}
	w.out = append(w.out, '"')
	w.out = append(w.out, s...)
	w.out = append(w.out, '"')
	return w
}

func (w *writer) textOrNull(s string) *writer {
	if s == "" {
		return w.raw(`null`)
	}
	return w.text(s)
}

func (w *writer) number(n int64) { w.out = strconv.AppendInt(w.out, n, 10) }

func (w *writer) time(t *metav1.Time) *writer {
	if t.IsZero() {
		return w.raw(`null`)
	}
	w.out = append(w.out, '"')
	w.out = t.UTC().AppendFormat(w.out, time.RFC3339)
	w.out = append(w.out, '"')
	return w
}

func (w *writer) value(v any) *writer {
	encoded, err := json.Marshal(v)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.out = append(w.out, encoded...)
	return w
}

// plain reports whether a JSON string holds s as it is.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
