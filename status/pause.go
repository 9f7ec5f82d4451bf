package status

import (
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// How long a pod waits after failures in a row, and after refusals, which change only when the object or the status does.
// A quarter is random and comes on top, so that the pods of a node do not come back together.
const (
	firstRetry, lastRetry     = 100 * time.Millisecond, 10 * time.Second
	firstRefusal, lastRefusal = time.Second, time.Minute
)

// pause is a pod's back-off. It holds for every cause of a turn: a server in trouble gets no more requests because statuses
// go on changing, and one that asked for patience gets none at all.
type pause struct {
	about    types.UID // the object; another one, as a new mirror, is not to blame
	why      outcome
	failures int // in a row
	until    time.Time
	timer    *time.Timer // gives the pod its next turn
}

// holds reports whether the pause is about that object, or any, and not over.
func (p *pause) holds(about types.UID, now time.Time) bool {
	return (p.about == about || p.about == "") && now.Before(p.until)
}

func (p *pause) end() {
	if p.timer != nil {
		p.timer.Stop()
	}
	*p = pause{}
}

// putOff gives the job's pod another turn later, and not before the server wants it.
func (m *Manager) putOff(j job, why outcome, patience time.Duration) {
	m.metrics.retries.Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	e, found := m.entries[j.uid]
	if !found {
		return
	}
	if e.pause.about != j.target.uid || (e.pause.why == refused) != (why == refused) {
		e.pause.end() // its failures do not count here
	}
	p := &e.pause
	p.about, p.why = j.target.uid, why
	m.pauseLocked(e, withJitter(max(patience, backOff(why, p.failures))))
	p.failures++
	lookAgain(m.progress)
}

func (m *Manager) pauseLocked(e *entry, delay time.Duration) {
	if e.pause.timer != nil {
		e.pause.timer.Stop()
	}
	uid := e.uid
	e.pause.until = time.Now().Add(delay)
	e.pause.timer = time.AfterFunc(delay, func() { m.again(uid) })
}

// hastenLocked shortens the pause after a refusal, because a changed status may be one that the server takes.
func (m *Manager) hastenLocked(e *entry, now time.Time) {
	if e.pause.why == refused && e.pause.until.Sub(now) > firstRefusal {
		m.pauseLocked(e, firstRefusal)
	}
}

func backOff(why outcome, failures int) time.Duration {
	if why == refused {
		return min(lastRefusal, firstRefusal<<min(failures, 10))
	}
	return min(lastRetry, firstRetry<<min(failures, 10))
}

func withJitter(delay time.Duration) time.Duration {
	return delay + time.Duration(rand.Int64N(int64(delay)/4+1))
}

// again gives the pod a turn, as urgent as what it has to say.
func (m *Manager) again(uid podid.UID) {
	m.mu.RLock()
	e, found := m.entries[uid]
	u := ordinary
	if found {
		u = e.urgencyNow()
	}
	m.mu.RUnlock()
	if found {
		m.enqueue(uid, u)
	}
}
