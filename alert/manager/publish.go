package manager

import (
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/view"
)

// nodeState is what rules read of the node besides its load. Rules are evaluated when it changes.
type nodeState struct {
	isKnown                   bool
	conditions, sources       string
	isUnschedulable           bool
	runtime, network, history bool // there is a problem
	isStale                   bool
	sync                      string
	isFailing                 bool
	pods                      int
	maxPods, certificate      int64
	alerting                  view.Alerting // without what rules do not read
}

func newNodeState(v *view.NodeView) nodeState {
	s := nodeState{
		isKnown:         true,
		isUnschedulable: v.Spec.Unschedulable, runtime: v.Runtime.Problem != "", network: v.Runtime.Network != "",
		history: v.History.Problem != "", isStale: v.Runtime.Stale, sync: string(v.Lag.State),
		isFailing: v.Lag.Failures > 0 || v.Lease != nil && v.Lease.Problem != "",
		pods:      v.Pods.Total, maxPods: v.Pods.Max,
	}
	if v.CertificateExpires != nil {
		s.certificate = v.CertificateExpires.Unix()
	}
	var conditions, sources strings.Builder
	for i := range v.Local.Status.Conditions {
		condition := &v.Local.Status.Conditions[i]
		conditions.WriteString(string(condition.Type) + "=" + string(condition.Status) + " ")
	}
	for i := range v.Sources {
		for j := range v.Sources[i].Problems {
			sources.WriteString(v.Sources[i].Problems[j].Message + "\n")
		}
	}
	s.conditions, s.sources = conditions.String(), sources.String()
	if a := v.Alerting; a != nil {
		s.alerting = *a
		s.alerting.Rules, s.alerting.Firing, s.alerting.Pending = 0, 0, 0
	}
	return s
}

// evaluateNode evaluates rules if the node has changed, or its load was measured.
func (w *worker) evaluateNode(trigger rule.Trigger, now time.Time) {
	v := w.config.Views.NodeNow()
	state := newNodeState(v)
	trigger &= rule.OnLoad
	if state != w.node {
		trigger |= rule.OnNode
	}
	if state.sources != w.node.sources {
		trigger |= rule.OnSource
	}
	w.node = state
	if trigger == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.engine.NodeChanged(v, trigger, now)
}

// publish updates what Alerting returns.
func (w *worker) publish() {
	health, before := w.engine.Health(), *w.alerting.Load()
	after := view.Alerting{
		Rules: health.Rules, RulesBroken: health.RulesBroken, RulesUnknown: health.RulesUnknown, Firing: health.Firing,
		Pending: health.Pending, Suppressed: health.Suppressed, SinksFailing: w.config.Notifier.Failing(), FilesBroken: w.rules.broken(),
	}
	after.RemediesExhausted, after.ActionsSuspended = w.config.Remedies()
	w.alerting.Store(&after)
	before.Firing, before.Pending, before.Rules = after.Firing, after.Pending, after.Rules // rules do not read them
	if before != after {
		w.NodeChanged()
	}
}

// publishConditions updates what Conditions returns.
func (w *worker) publishConditions(now time.Time) {
	if conditions := w.newConditions(now); !slices.Equal(conditions, *w.conditions.Load()) {
		w.conditions.Store(&conditions)
		w.config.OnConditions()
	}
}

// Reasons of conditions that no alert makes true.
const (
	reasonNotFiring = "NoAlert"
	reasonUnknown   = "AlertUnknown"
	// unknownDelay keeps a condition as it is while an answer is not known for a short time, for example after a start.
	unknownDelay = time.Minute
)

// newConditions returns the conditions of the Node: True while an alert fires that has the condition, Unknown if it is not known whether
// one does, False otherwise. Those that have no rule any more are removed.
func (w *worker) newConditions(now time.Time) []v1.NodeCondition {
	byType := map[v1.NodeConditionType]v1.NodeCondition{}
	isKept := map[v1.NodeConditionType]bool{}
	for _, state := range w.engine.Rules() {
		if state.Rule.Condition == nil {
			continue
		}
		conditionType := v1.NodeConditionType(state.Rule.Condition.Type)
		condition, found := byType[conditionType]
		if !found {
			condition = v1.NodeCondition{Type: conditionType, Status: v1.ConditionFalse, Reason: reasonNotFiring, Message: "no alert fires"}
		}
		switch {
		case condition.Status == v1.ConditionTrue:
		case state.Firing > 0:
			condition.Status, condition.Reason = v1.ConditionTrue, state.Rule.Condition.Reason
			condition.Message = w.summaryOf(state.Rule)
		case !w.node.isKnown, state.Unknown > 0 && now.Sub(state.UnknownSince) < unknownDelay:
			isKept[conditionType] = true
		case state.Unknown > 0:
			condition.Status, condition.Reason = v1.ConditionUnknown, reasonUnknown
			condition.Message = "it is not known whether alert " + state.Rule.Name + " fires"
		}
		byType[conditionType] = condition
	}
	var conditions []v1.NodeCondition
	for _, conditionType := range w.owned.update(byType) {
		condition, found := byType[conditionType]
		switch {
		case !found:
			conditions = append(conditions, v1.NodeCondition{Type: conditionType}) // is removed
		case !isKept[conditionType] || condition.Status == v1.ConditionTrue:
			conditions = append(conditions, condition)
		}
	}
	return conditions
}

// summaryOf returns the summary of the oldest alert of the rule that fires.
func (w *worker) summaryOf(r *rule.Rule) string {
	var oldest *alert.Alert
	for _, a := range w.engine.Alerts() {
		if a.IsFiring() && w.ruleOf(&a) == r && (oldest == nil || a.StartsAt.Before(oldest.StartsAt)) {
			oldest = &a
		}
	}
	if oldest == nil || oldest.Annotations[alert.AnnotationSummary] == "" {
		return "alert " + r.Name + " fires"
	}
	return oldest.Annotations[alert.AnnotationSummary]
}

// Conditions returns the conditions of the Node that rules have. One with an empty status is to be removed. It does not block.
func (m *Manager) Conditions() []v1.NodeCondition { return slices.Clone(*m.conditions.Load()) }

// Alerting returns the state of rules and alerts. It does not block.
func (m *Manager) Alerting() *view.Alerting { return m.alerting.Load() }

// ownedConditions are the types of conditions that this agent has set, also in earlier runs: it may remove them.
type ownedConditions struct {
	store  *checkpoint.Store[[]v1.NodeConditionType] // nil without Config.State
	logger *slog.Logger
	types  []v1.NodeConditionType
}

// maxOwned bounds the conditions that are remembered.
const maxOwned = 256

func newOwnedConditions(state *checkpoint.Dir, logger *slog.Logger) (ownedConditions, error) {
	store, err := checkpoint.NewStore[[]v1.NodeConditionType](state, "alert-conditions", 1)
	if err != nil {
		return ownedConditions{}, err
	}
	types, err := store.Load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the store has set a corrupt file aside
		logger.Error("Failed to load the conditions of alerts", "err", err)
	}
	return ownedConditions{store: store, logger: logger, types: types}, nil
}

// update adds types and returns all, sorted.
func (o *ownedConditions) update(byType map[v1.NodeConditionType]v1.NodeCondition) []v1.NodeConditionType {
	before := len(o.types)
	for conditionType := range byType {
		if !slices.Contains(o.types, conditionType) && len(o.types) < maxOwned {
			o.types = append(o.types, conditionType)
		}
	}
	slices.Sort(o.types)
	if len(o.types) != before && o.store != nil {
		if err := o.store.Save(o.types); err != nil {
			o.logger.Error("Failed to store the conditions of alerts", "err", err)
		}
	}
	return o.types
}
