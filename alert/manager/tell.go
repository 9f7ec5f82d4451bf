package manager

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"strings"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/engine"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/podid"
)

// Bounds of annotations.
const (
	maxLogLines = 10
	maxLogLine  = 400 // bytes
	// describeTimeout bounds how long annotations delay an alert.
	describeTimeout = 2 * time.Second
)

// isFiring reports whether an alert in the state is told as firing.
func isFiring(state alert.State) bool { return state == alert.Firing || state == alert.Recovering }

// tell stores the edges that somebody is told about, and then tells them. It reports whether there are any.
func (w *worker) tell(ctx context.Context, edges []engine.Edge) bool {
	var told []engine.Edge
	for i := range edges {
		if isFiring(edges[i].Before) || edges[i].Alert.IsFiring() {
			w.describe(ctx, &edges[i])
			told = append(told, edges[i])
		}
	}
	if len(told) == 0 {
		return false
	}
	_ = w.save(time.Now()) // to tell is more important
	alerts := make([]alert.Alert, len(told))
	for i := range told {
		alerts[i] = told[i].Alert
		if wasFiring := isFiring(told[i].Before); wasFiring != told[i].Alert.IsFiring() {
			w.metrics.edges.Observe(max(0, time.Since(told[i].At).Seconds()))
			w.config.Journal.AlertChanged(&alerts[i], told[i].At)
		}
	}
	w.config.Notifier.Update(alerts)
	for i := range told {
		w.act(&alerts[i], told[i].Rule)
	}
	return true
}

// act tells the actor.
func (w *worker) act(a *alert.Alert, r *rule.Rule) {
	switch {
	case !a.IsFiring():
		w.config.Actor.Resolved(*a)
	case r == nil:
		w.config.Actor.Fired(*a, nil, func(int) (bool, error) { return false, nil })
	default:
		key := a.Key()
		w.config.Actor.Fired(*a, r.Actions, func(action int) (bool, error) { return w.allows(key, r, action) })
	}
}

// allows reports whether the condition of an action is true now. It is called by any goroutine but the manager's.
func (m *Manager) allows(key string, r *rule.Rule, action int) (isAllowed bool, err error) {
	r2 := request{isQuery: true, result: make(chan error, 1), change: func(now time.Time) error {
		in, found := m.engine.Input(key, now)
		if !found {
			return errors.New("the alert is gone")
		}
		var err error
		isAllowed, err = r.Allows(action, in)
		return err
	}}
	err = m.do(context.Background(), r2)
	return isAllowed && err == nil, err
}

// describe adds annotations to an alert that fires anew.
func (w *worker) describe(ctx context.Context, edge *engine.Edge) {
	a := &edge.Alert
	name := podid.FullName{Namespace: a.Labels[alert.LabelNamespace], Name: a.Labels[alert.LabelPod]}
	if isFiring(edge.Before) || name.Name == "" && w.config.ExternalURL == "" {
		return
	}
	added := map[string]string{}
	if w.config.ExternalURL != "" {
		added[alert.AnnotationHistoryURL] = historyURL(w.config.ExternalURL, name)
	}
	if name.Name != "" {
		ctx, cancel := context.WithTimeout(ctx, describeTimeout)
		defer cancel()
		explain, lines := w.config.Views.Describe(ctx, name, a.Labels[alert.LabelContainer])
		if explain != "" {
			added[alert.AnnotationExplain] = explain
		}
		if len(lines) > 0 {
			added[alert.AnnotationLastLog] = lastLog(lines)
		}
	}
	w.mu.Lock()
	w.engine.Annotate(a.Key(), added)
	w.mu.Unlock()
	all := maps.Clone(a.Annotations)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, added)
	a.Annotations = all
}

// lastLog returns the last lines of a log, bounded.
func lastLog(lines []string) string {
	lines = lines[max(0, len(lines)-maxLogLines):]
	bounded := make([]string, len(lines))
	for i, line := range lines {
		bounded[i] = strings.ToValidUTF8(line[:min(len(line), maxLogLine)], "")
	}
	return strings.Join(bounded, "\n")
}

func historyURL(base string, name podid.FullName) string {
	values := url.Values{}
	if name.Name != "" {
		values.Set("namespace", name.Namespace)
		values.Set("pod", name.Name)
	}
	return strings.TrimSuffix(strings.TrimSuffix(base, "/")+"/herald/v1/history?"+values.Encode(), "?")
}

// resume tells about restored alerts: a crash may have come between the disk and those who are told.
func (w *worker) resume() {
	alerts := w.engine.Alerts()
	w.config.Notifier.Update(alerts)
	for i := range alerts {
		if alerts[i].IsFiring() {
			w.act(&alerts[i], w.ruleOf(&alerts[i]))
		}
	}
}

// ruleOf returns the rule of an alert, or nil.
func (w *worker) ruleOf(a *alert.Alert) *rule.Rule {
	for _, r := range w.rules.set.Rules {
		isMatch := r.Name == a.Labels[alert.LabelName] && string(r.Scope) == a.Labels[alert.LabelScope]
		for name, value := range r.Labels {
			isMatch = isMatch && a.Labels[name] == value
		}
		if isMatch {
			return r
		}
	}
	return nil
}
