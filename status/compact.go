package status

import (
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
)

// compaction is how much of the messages is removed from a status before it is sent. The object may be near its limit of
// 1.5 MiB before the status is added (F32). Messages are the part that the cluster can do without; the cache keeps them.
type compaction int

const (
	noCompaction    compaction = iota
	shortenMessages            // to maxShortMessage bytes each
	dropMessages
	compactions = iota
)

const maxShortMessage = 128

// next returns the compaction to try if this one is still too large, and false if there is no other.
func (c compaction) next() (compaction, bool) { return c + 1, c+1 < compactions }

// apply returns the compacted status. The argument is not modified.
func (c compaction) apply(status v1.PodStatus) v1.PodStatus {
	if c == noCompaction {
		return status
	}
	limit := 0
	if c == shortenMessages {
		limit = maxShortMessage
	}
	compacted := *status.DeepCopy()
	shorten(&compacted.Message, limit)
	for i := range compacted.Conditions {
		if derive.IsOwnedCondition(compacted.Conditions[i].Type) {
			shorten(&compacted.Conditions[i].Message, limit)
		}
	}
	for _, statuses := range [][]v1.ContainerStatus{
		compacted.InitContainerStatuses, compacted.ContainerStatuses, compacted.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			shortenState(&statuses[i].State, limit)
			shortenState(&statuses[i].LastTerminationState, limit)
		}
	}
	return compacted
}

func shortenState(state *v1.ContainerState, limit int) {
	if state.Waiting != nil {
		shorten(&state.Waiting.Message, limit)
	}
	if state.Terminated != nil {
		shorten(&state.Terminated.Message, limit)
	}
}

// shorten truncates the message between two characters.
func shorten(message *string, limit int) {
	if len(*message) <= limit {
		return
	}
	for limit > 0 && !utf8.RuneStart((*message)[limit]) {
		limit--
	}
	*message = strings.Clone((*message)[:limit])
}
