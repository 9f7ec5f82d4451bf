package manager

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/engine"
	"github.com/heraldnode/herald/view"
)

// ErrStopped says that the Manager does not run any more.
var ErrStopped = errors.New("alert rules are not evaluated any more")

// do makes a change in the goroutine of Run and waits for its result.
func (m *Manager) do(ctx context.Context, r request) error {
	select {
	case m.requests <- r:
	case <-m.ended:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	return <-r.result
}

// Alerts returns all alerts, also pending and recently resolved ones.
func (m *Manager) Alerts() []view.Alert {
	deliveries := m.config.Notifier.Deliveries()
	m.mu.RLock()
	defer m.mu.RUnlock()
	alerts := m.engine.Alerts()
	views := make([]view.Alert, len(alerts))
	for i := range alerts {
		views[i] = view.Alert{Alert: alerts[i]}
		key := alerts[i].Key()
		if alerts[i].State == alert.Pending || alerts[i].State == alert.Recovering {
			views[i].NextAt = view.NewTime(m.engine.Due(key))
		}
		for _, d := range deliveries[key] {
			views[i].Deliveries = append(views[i].Deliveries, view.Delivery{
				Receiver: d.Receiver, State: string(d.State), Problem: d.Problem, NextTry: view.NewTime(d.NextTry),
			})
		}
	}
	return views
}

// Rules returns the rule files and all rules with their states.
func (m *Manager) Rules() view.RuleList {
	m.mu.RLock()
	defer m.mu.RUnlock()
	states := m.engine.Rules()
	list := view.RuleList{Files: slices.Clone(m.rules.files), Items: make([]view.Rule, len(states))}
	for i := range states {
		list.Items[i] = newRule(&states[i])
	}
	return list
}

// Files returns the states of the rule files.
func (m *Manager) Files() []view.RuleFile {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Clone(m.rules.files)
}

func newRule(state *engine.RuleState) view.Rule {
	r := state.Rule
	v := view.Rule{
		Name: r.Name, Group: r.Group, File: r.File, Scope: string(r.Scope), Expression: r.Text.Expr, ForMs: r.For.Milliseconds(),
		KeepFiringForMs: r.KeepFiring.Milliseconds(), Labels: r.Labels, MaxCost: r.MaxCost,
		RuleState: view.RuleState{State: "inactive", Firing: state.Firing, Pending: state.Pending, Unknown: state.Unknown},
	}
	switch {
	case state.Firing > 0:
		v.State = string(alert.Firing)
	case state.Pending > 0:
		v.State = string(alert.Pending)
	}
	if state.Err != nil {
		v.LastError = state.Err.Error()
	}
	for _, action := range r.Actions {
		v.Actions = append(v.Actions, string(action.Type))
	}
	return v
}

// Silences returns the silences that have not ended.
func (m *Manager) Silences() []alert.Silence {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.engine.Silences()
}

// AddSilence adds a silence, or replaces the one with its ID, and returns when it is durable. An empty ID is set.
func (m *Manager) AddSilence(ctx context.Context, silence alert.Silence) (alert.Silence, error) {
	if silence.ID == "" {
		id := make([]byte, 8)
		_, _ = rand.Read(id) // never fails
		silence.ID = hex.EncodeToString(id)
	}
	err := m.do(ctx, request{result: make(chan error, 1), change: func(now time.Time) error {
		m.engine.Advance(now)
		m.engine.AddSilence(silence)
		return nil
	}})
	return silence, err
}

// ExpireSilence ends a silence. It returns alert.ErrNoSilence if there is none with this ID.
func (m *Manager) ExpireSilence(ctx context.Context, id string) error {
	return m.do(ctx, request{result: make(chan error, 1), change: func(now time.Time) error {
		if !slices.ContainsFunc(m.engine.Silences(), func(s alert.Silence) bool { return s.ID == id }) {
			return alert.ErrNoSilence
		}
		return m.engine.ExpireSilence(id, now)
	}})
}
