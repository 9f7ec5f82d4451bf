package diff_test

import (
	"encoding/json"
	"reflect"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// heraldNow is later than all times that are drawn, and for the kubelet it is later still.
var heraldNow = firstDay.Add(24 * time.Hour)

// settleNow gives both sides the same present: a time that was not drawn was read from a clock.
func settleNow(status *v1.PodStatus) {
	settle := func(t *metav1.Time) {
		if t.After(firstDay.Add(12 * time.Hour)) {
			*t = metav1.NewTime(heraldNow)
		}
	}
	for i := range status.Conditions {
		settle(&status.Conditions[i].LastTransitionTime)
	}
	if status.StartTime != nil {
		status.StartTime = status.StartTime.DeepCopy()
		settle(status.StartTime)
	}
}

// emptyOneOf empties something somewhere in the status.
func emptyOneOf(d *drawer, status *v1.PodStatus) {
	place := d.IntN(60)
	emptyOne(reflect.ValueOf(status).Elem(), &place)
}

// asText is the status after a way through JSON, which writes U+FFFD for each byte that is no character.
func asText(status *v1.PodStatus) *v1.PodStatus {
	text := status.DeepCopy()
	for _, end := range endsOf(text) {
		if utf8.ValidString(end.Message) {
			continue
		}
		written, err := json.Marshal(end.Message)
		if err == nil {
			err = json.Unmarshal(written, &end.Message)
		}
		if err != nil {
			panic(err)
		}
	}
	return text
}

// cutBetweenCharacters takes the rest of a character off that the kubelet cut through (SM-29).
func cutBetweenCharacters(status *v1.PodStatus) {
	for _, end := range endsOf(status) {
		for !utf8.ValidString(end.Message) {
			end.Message = end.Message[:len(end.Message)-1]
		}
	}
}

// endsOf are all ends in the status.
func endsOf(status *v1.PodStatus) []*v1.ContainerStateTerminated {
	var ends []*v1.ContainerStateTerminated
	for _, list := range [][]v1.ContainerStatus{
		status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for i := range list {
			for _, end := range []*v1.ContainerStateTerminated{list[i].State.Terminated, list[i].LastTerminationState.Terminated} {
				if end != nil {
					ends = append(ends, end)
				}
			}
		}
	}
	return ends
}
