package action

import (
	"slices"
	"time"

	"github.com/heraldnode/herald/remedy"
)

// Record is a decision about an action, and what became of it.
type Record struct {
	// Entry is that of the ledger. A refused action has no ID and no outcome.
	remedy.Entry
	Decision remedy.Verdict
	// Reason and Refusal say why it was refused, Until until when at least; zero if that is not known.
	Reason  remedy.Reason
	Refusal string
	Until   time.Time
}

// State is the state of all actions together.
type State struct {
	// Suspended is why disruptive actions are suspended; empty if they are not. Until is when that ends at the earliest.
	Suspended string
	Until     time.Time
	// Exhausted has the objects for which an action did not help twice in a row.
	Exhausted []remedy.Object
	// Cordoned has the keys of the alerts for which the node is unschedulable.
	Cordoned []string
}

// maxRefusals bounds the refusals that List returns.
const maxRefusals = 256

// List returns the actions of the last 24 hours and the newest refusals, newest first. No limit is 0.
func (a *Actor) List(limit int) []Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	records := slices.Clone(a.refusals)
	for _, entry := range a.ledger.Entries {
		records = append(records, newRecord(entry))
	}
	slices.SortStableFunc(records, func(x, y Record) int { return y.At.Compare(x.At) })
	if limit > 0 && len(records) > limit {
		records = records[:limit]
	}
	return records
}

func newRecord(entry remedy.Entry) Record {
	record := Record{Entry: entry, Decision: remedy.Do}
	if entry.DryRun {
		record.Decision = remedy.DryRun
	}
	return record
}

// State returns the state of all actions together.
func (a *Actor) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return stateOf(&a.ledger, a.config.Now().At)
}

func stateOf(ledger *remedy.Ledger, now time.Time) State {
	state := State{Exhausted: ledger.Exhausted(now)}
	if ledger.Breaker != nil {
		state.Suspended, state.Until = ledger.Breaker.Reason, ledger.Breaker.Until()
	}
	if ledger.Cordons != nil {
		state.Cordoned = slices.Clone(ledger.Cordons.Alerts)
	}
	return state
}

// publish tells if the state has changed.
func (a *Actor) publish() {
	before, after := a.state, stateOf(&a.ledger, a.config.Now().At)
	a.state = after
	a.metrics.setState(after)
	isChanged := before.Suspended != after.Suspended || !slices.Equal(before.Exhausted, after.Exhausted) ||
		len(before.Cordoned) != len(after.Cordoned)
	if isChanged {
		a.config.OnChange()
	}
}

func (a *Actor) recordRefusal(record Record) {
	a.mu.Lock()
	if len(a.refusals) == maxRefusals {
		a.refusals = slices.Delete(a.refusals, 0, 1)
	}
	a.refusals = append(a.refusals, record)
	a.mu.Unlock()
	a.metrics.total.WithLabelValues(string(record.Type), "refused").Inc()
	a.config.OnRecord(record)
}
