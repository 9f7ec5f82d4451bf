package status

import (
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
)

// shrinkage is how much of a status' texts is left out of what is sent, because the server has no room for all of it: the
// object may be near its limit of 1.5 MiB before the status is added (F32). Texts are what one can do without; the node
// keeps them whole.
type shrinkage int

const (
	whole      shrinkage = iota
	shortTexts           // each text has shortText bytes at most
	noTexts
	shrinkages = iota
)

const shortText = 128

// next is the shrinkage to try when this one was still too large, and false when there is no other.
func (s shrinkage) next() (shrinkage, bool) { return s + 1, s+1 < shrinkages }

// apply leaves the texts out. The result shares with status what needs no change.
func (s shrinkage) apply(status v1.PodStatus) v1.PodStatus {
	if s == whole {
		return status
	}
	limit := 0
	if s == shortTexts {
		limit = shortText
	}
	small := *status.DeepCopy()
	shorten(&small.Message, limit)
	for i := range small.Conditions {
		if derive.IsOwnedCondition(small.Conditions[i].Type) {
			shorten(&small.Conditions[i].Message, limit)
		}
	}
	for _, list := range [][]v1.ContainerStatus{
		small.InitContainerStatuses, small.ContainerStatuses, small.EphemeralContainerStatuses,
	} {
		for i := range list {
			shortenState(&list[i].State, limit)
			shortenState(&list[i].LastTerminationState, limit)
		}
	}
	return small
}

func shortenState(state *v1.ContainerState, limit int) {
	if state.Waiting != nil {
		shorten(&state.Waiting.Message, limit)
	}
	if state.Terminated != nil {
		shorten(&state.Terminated.Message, limit)
	}
}

// shorten cuts between characters.
func shorten(text *string, limit int) {
	if len(*text) <= limit {
		return
	}
	for limit > 0 && !utf8.RuneStart((*text)[limit]) {
		limit--
	}
	*text = strings.Clone((*text)[:limit])
}
