package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// memory is what is known of one name beyond what the watch shows. The server's answers to our own writes are newer
// than the watch; acting on the watch alone would write again what it has not shown yet (BUG-30).
//
//	           create answered              the watch shows its UID
//	settled ---------------------> made ------------------------------> settled
//	   |                           ^  |
//	   | delete        create      |  | ConfirmAfter is over: believe a GET
//	   | answered      answered    |  +---------------------------------> made, gone or settled
//	   +---------> gone -----------+
//	                |   the watch shows something else
//	                +---------------------------------> settled
//
// It belongs to the worker that has the name's turn in the queue. The zero value is all that most names ever need,
// and is not kept.
type memory struct {
	made *v1.Pod   // the server has it; the watch has not shown it
	gone types.UID // the server no longer has it; the watch may still show it

	checkAt time.Time // when to ask the server, if the watch has not confirmed by then
	checks  int       // how often it was asked since the last confirmation

	retryAt  time.Time // not to be tried again before, unless the cause has changed
	failedOn cause
}

// cause is what a failed attempt was made of. When it changes, trying again at once makes sense.
type cause struct {
	static, mirror, namesake types.UID
	hash                     string
	dying                    bool
}

// mostDoublings bounds the growing time between two checks.
const mostDoublings = 5

// join is the newest that is known of the mirror, given what the watch shows.
func (m *memory) join(watched *v1.Pod) *v1.Pod {
	switch {
	case m.made != nil && (watched == nil || watched.UID != m.made.UID):
		return m.made
	case m.made == nil && m.gone != "" && watched != nil && watched.UID == m.gone:
		return nil
	default:
		m.made, m.gone, m.checkAt, m.checks = nil, "", time.Time{}, 0
		return watched
	}
}

// noteMade keeps the server's word that the pod exists.
func (m *memory) noteMade(pod *v1.Pod, confirmBy time.Duration) {
	m.made = pod
	m.expect(confirmBy)
}

// noteGone keeps the server's word that the pod of that UID does not exist any more.
func (m *memory) noteGone(uid types.UID, confirmBy time.Duration) {
	m.made, m.gone = nil, uid
	m.expect(confirmBy)
}

// noteAbsent keeps the server's word that no pod of ours has the name.
func (m *memory) noteAbsent(confirmBy time.Duration) {
	m.made = nil
	m.expect(confirmBy)
}

func (m *memory) expect(confirmBy time.Duration) {
	m.checkAt = time.Now().Add(confirmBy << m.checks)
}

// check counts a question to the server.
func (m *memory) check() { m.checks = min(m.checks+1, mostDoublings) }

func (m *memory) overdue(now time.Time) bool { return !m.checkAt.IsZero() && !now.Before(m.checkAt) }
