package eviction

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// State is what passes remember. The zero value is that of a node that was never observed.
type State struct {
	// since is when each threshold that is met was first met without a break.
	since map[thresholdKey]time.Time
	// met has the thresholds that were met for their grace period. They stay met until their minimum reclaim is available.
	met map[thresholdKey]bool
	// reported is when each condition was last observed, enforced the same without thresholds that are only reported.
	reported, enforced map[v1.NodeConditionType]time.Time
	// measured is when the figures of the last pass were measured.
	measured map[Signal]time.Time
}

type thresholdKey struct {
	signal Signal
	isSoft bool
}

func (t *Threshold) key() thresholdKey { return thresholdKey{t.Signal, t.IsSoft} }

// Restore lets the conditions that an earlier agent has reported count as observed now, so that a restart does not end a pressure too
// early (EVI-30).
func (s State) Restore(conditions []v1.NodeCondition, now time.Time) State {
	for _, condition := range conditions {
		if condition.Status != v1.ConditionTrue || !slices.Contains(conditionTypes, condition.Type) {
			continue
		}
		for _, observed := range []*map[v1.NodeConditionType]time.Time{&s.reported, &s.enforced} {
			if _, found := (*observed)[condition.Type]; !found {
				*observed = with(*observed, condition.Type, now)
			}
		}
	}
	return s
}

// with returns a copy of the map with the entry.
func with[K comparable, V any](m map[K]V, key K, value V) map[K]V {
	result := make(map[K]V, len(m)+1)
	for k, v := range m {
		result[k] = v
	}
	result[key] = value
	return result
}

// Input is what a pass observes.
type Input struct {
	Observations Observations
	Layout       Layout
	Now          time.Time
}

// Verdict is what follows from a pass.
type Verdict struct {
	// Conditions are those that the Node reports, Enforced those because of which pods are not admitted (ADM-22).
	Conditions, Enforced []v1.NodeConditionType
	// Starved is the resource that must become available, nil if there is none.
	Starved *Starved
	// Unobserved are the signals with thresholds that were not measured (EVI-9).
	Unobserved []Signal
}

// Starved is a resource of which too little is available.
type Starved struct {
	Threshold Threshold
	// Observation is why the threshold is met.
	Observation Observation
	// Resource is the name of the resource in messages.
	Resource v1.ResourceName
	// Reclaim is what may make evictions unnecessary, in the order in which it is tried.
	Reclaim []Reclaim

	layout            Layout
	maxPodGracePeriod time.Duration
}

// Observe returns the state after a pass, and what follows from it. Thresholds that are met determine the conditions at once; pods are
// evicted for them after their grace period, and only if figures are newer than those of the pass before (EVI-10 to EVI-13).
func (p *Policy) Observe(state State, in Input) (State, Verdict) {
	next := State{since: map[thresholdKey]time.Time{}, met: map[thresholdKey]bool{}, measured: map[Signal]time.Time{}}
	var reported, enforced []v1.NodeConditionType
	var verdict Verdict
	var acting []Threshold
	for _, threshold := range p.thresholdsFor(in.Layout) {
		key := threshold.key()
		info, _, _ := threshold.Signal.info()
		observed, found := in.Observations[threshold.Signal]
		if !found {
			if info.derivedFrom == "" {
				verdict.Unobserved = append(verdict.Unobserved, threshold.Signal)
			}
			continue
		}
		if !threshold.isMet(observed, state.met[key]) {
			continue
		}
		next.since[key] = in.Now
		if since, wasMet := state.since[key]; wasMet {
			next.since[key] = since
		}
		reported = append(reported, info.condition)
		if !threshold.ReportOnly {
			enforced = append(enforced, info.condition)
		}
		if in.Now.Sub(next.since[key]) < threshold.GracePeriod {
			continue
		}
		next.met[key] = true
		if isNew := observed.At.IsZero() || observed.At.After(state.measured[threshold.Signal]); isNew && in.mayAct(&threshold) {
			acting = append(acting, threshold)
		}
	}
	for signal, observed := range in.Observations {
		next.measured[signal] = observed.At
	}
	next.reported, verdict.Conditions = p.hold(state.reported, reported, in.Now)
	next.enforced, verdict.Enforced = p.hold(state.enforced, enforced, in.Now)
	verdict.Starved = p.choose(acting, in)
	return next, verdict
}

// mayAct reports whether pods may be evicted for the threshold.
func (in *Input) mayAct(threshold *Threshold) bool {
	info, _, _ := threshold.Signal.info()
	return !threshold.ReportOnly && (info.condition != v1.NodeDiskPressure || in.Layout != LayoutUnknown)
}

// hold returns when each condition was last observed, and the conditions that hold: until the transition period is over (EVI-12).
func (p *Policy) hold(
	before map[v1.NodeConditionType]time.Time, observed []v1.NodeConditionType, now time.Time,
) (map[v1.NodeConditionType]time.Time, []v1.NodeConditionType) {
	after := map[v1.NodeConditionType]time.Time{}
	var held []v1.NodeConditionType
	for _, condition := range conditionTypes {
		at, found := before[condition]
		if slices.Contains(observed, condition) {
			at, found = now, true
		}
		if found && (at.Equal(now) || now.Sub(at) < p.TransitionPeriod) {
			after[condition] = at
			held = append(held, condition)
		}
	}
	return after, held
}

// Held returns the conditions that hold without a new observation, see Verdict.
func (p *Policy) Held(state State, now time.Time) (conditions, enforced []v1.NodeConditionType) {
	_, conditions = p.hold(state.reported, nil, now)
	_, enforced = p.hold(state.enforced, nil, now)
	return conditions, enforced
}

// choose returns the threshold to act on: one in each pass (EVI-13). Hard thresholds come before soft ones of the same signal.
func (p *Policy) choose(acting []Threshold, in Input) *Starved {
	if len(acting) == 0 {
		return nil
	}
	threshold := slices.MinFunc(acting, func(a, b Threshold) int {
		_, orderA, _ := a.Signal.info()
		_, orderB, _ := b.Signal.info()
		return cmp.Or(cmp.Compare(orderA, orderB), cmp.Compare(a.GracePeriod, b.GracePeriod))
	})
	info, _, _ := threshold.Signal.info()
	return &Starved{
		Threshold: threshold, Observation: in.Observations[threshold.Signal], Resource: info.resource,
		Reclaim: in.Layout.reclaims(threshold.Signal), layout: in.Layout, maxPodGracePeriod: p.MaxPodGracePeriod,
	}
}

// IsResolved reports whether no pod must be evicted after something was reclaimed: the threshold is not met any more, with its minimum
// reclaim. Other thresholds do not matter (BUG-144). Without a figure, the next pass decides.
func (s *Starved) IsResolved(after Observations) bool {
	observed, found := after[s.Threshold.Signal]
	return !found || !s.Threshold.isMet(observed, true)
}

// IsNear reports whether a threshold is met, or less than half as much again is available: then figures must be recent.
func (p *Policy) IsNear(observations Observations, layout Layout) bool {
	for _, threshold := range p.thresholdsFor(layout) {
		observed, found := observations[threshold.Signal]
		if !found || threshold.ReportOnly {
			continue
		}
		limit := threshold.Value.of(observed.Capacity)
		if observed.Available < limit.Value()+limit.Value()/2 {
			return true
		}
	}
	return false
}
