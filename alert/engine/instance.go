package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/alert/state"
	"github.com/heraldnode/herald/podid"
)

// instance is an alert. Its maps and slices are replaced, never modified: alerts that were handed out share them.
type instance struct {
	cell        *cell
	key         string
	labels      alert.Labels
	annotations map[string]string
	value       *float64
	condition   *alert.Condition
	state       state.Instance
	mute        alert.Mute
	// sources and targets are the inhibitions whose source or target the labels match.
	sources, targets []int
	// isWaiting is set for a restored alert until its object is seen. uids are the pods that it was about.
	isWaiting bool
	uids      []podid.UID
}

func (i *instance) isFiring() bool {
	return i.state.State == alert.Firing || i.state.State == alert.Recovering
}

// alert returns the alert as others see it.
func (i *instance) alert() alert.Alert {
	return alert.Alert{
		Labels: i.labels, Annotations: i.annotations, State: i.state.State, Value: i.value,
		ActiveAt: i.state.ActiveAt, StartsAt: i.state.StartsAt, EndsAt: i.state.EndsAt, Episode: i.state.Episode, Flaps: i.state.Flaps,
		Reason: i.state.Reason, Freeze: i.state.Freeze, Mute: i.mute, Condition: i.condition,
	}
}

// createAlert creates the alert of a cell unless there are too many, and reports whether it did.
func (e *Engine) createAlert(c *cell) bool {
	if len(e.alerts) >= e.config.MaxAlerts || c.rule.alerts >= e.config.MaxPerRule {
		return false
	}
	labels := e.labelsOf(c)
	key := labels.Key()
	if e.alerts[key] != nil {
		return false // two rules with the same labels; package rule refuses them
	}
	e.addAlert(&instance{cell: c, key: key, labels: labels, condition: c.rule.rule.Condition})
	return true
}

func (e *Engine) addAlert(i *instance) {
	i.cell.alert = i
	i.cell.rule.alerts++
	e.alerts[i.key] = i
	e.mutes.match(i)
}

// labelsOf returns the labels of an alert: those of the rule, and those that identify the object, which no rule can change.
func (e *Engine) labelsOf(c *cell) alert.Labels {
	r := c.rule.rule
	labels := make(alert.Labels, len(r.Labels)+8)
	maps.Copy(labels, r.Labels)
	for name, value := range map[string]string{
		alert.LabelName: r.Name, alert.LabelJob: "herald", alert.LabelInstance: e.config.Instance, alert.LabelNode: e.config.NodeName,
		alert.LabelScope: string(r.Scope), alert.LabelNamespace: c.name.Namespace, alert.LabelPod: c.name.Pod,
		alert.LabelContainer: c.name.Container,
	} {
		if delete(labels, name); value != "" {
			labels[name] = value
		}
	}
	return labels
}

// change sets the state of an alert, and notes the edge if there is one. out is the evaluation that led to it; nil if time did.
func (e *Engine) change(i *instance, after state.Instance, out *outcome, at time.Time) {
	before := i.state
	if before == after {
		return
	}
	i.state = after
	e.saving.note(i.key)
	hasNewState := before.State != after.State
	if hasNewState && before.State != alert.Recovering && (after.State == alert.Pending || after.State == alert.Firing) {
		e.describe(i, out, at)
	}
	if hasNewState && (after.State == alert.Pending || i.isFiring()) {
		i.mute = e.mutes.of(i, at)
	}
	if after.State == "" {
		e.removeAlert(i)
		i.state = before
		i.state.State, i.state.Freeze = "", nil // the edge shows what is forgotten
	}
	if hasNewState || (before.Freeze == nil) != (after.Freeze == nil) {
		e.addEdge(i, before.State, at)
	}
	e.noteFiring(i, at)
}

// isPartlySeen reports whether a restored alert was about several pods of a name, some of which have not been seen.
func (i *instance) isPartlySeen() bool {
	return i.isWaiting && slices.ContainsFunc(i.uids, func(uid podid.UID) bool { return i.cell.object.find(uid) < 0 })
}

func (e *Engine) removeAlert(i *instance) {
	i.cell.alert = nil
	i.cell.rule.alerts--
	delete(e.alerts, i.key)
}

func (e *Engine) addEdge(i *instance, before alert.State, at time.Time) {
	e.edges = append(e.edges, Edge{Alert: i.alert(), Rule: i.cell.rule.rule, Before: before, At: at})
}

// describe sets the annotations, and the value if the rule was evaluated.
func (e *Engine) describe(i *instance, out *outcome, at time.Time) {
	r := i.cell.rule.rule
	if r == nil {
		return
	}
	in := e.input(i, at)
	if out != nil {
		in, i.value = out.in, out.Value
	}
	i.annotations = r.Annotate(i.labels, i.value, in)
}

// input returns what the rule of an alert would be evaluated with now.
func (e *Engine) input(i *instance, now time.Time) rule.Input {
	in := rule.Input{Now: now, Container: i.cell.name.Container, Node: e.node, Recent: &e.recent}
	versions := i.cell.object.versions
	if len(versions) == 0 {
		return in
	}
	in.Pod = versions[0].view
	for k := range versions {
		if i.cell.name.Container != "" && versions[k].hasContainer(i.cell.name.Container) {
			in.Pod = versions[k].view
			break
		}
	}
	return in
}

// Input returns what the rule of an alert would be evaluated with now, for rule.Rule.Allows, and false if there is no such alert. It must
// not be used after another call of the engine.
func (e *Engine) Input(key string, now time.Time) (rule.Input, bool) {
	i := e.alerts[key]
	if i == nil {
		return rule.Input{}, false
	}
	return e.input(i, now), true
}

// Annotate adds annotations to an alert, for example the last lines of a log. They stay until it fires again. There is no edge.
func (e *Engine) Annotate(key string, annotations map[string]string) {
	i := e.alerts[key]
	if i == nil || len(annotations) == 0 {
		return
	}
	all := make(map[string]string, len(i.annotations)+len(annotations))
	maps.Copy(all, i.annotations)
	maps.Copy(all, annotations)
	i.annotations = all
	e.saving.note(key)
}
