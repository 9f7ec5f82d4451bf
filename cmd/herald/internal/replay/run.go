package replay

import (
	"maps"
	"regexp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/engine"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
	"github.com/heraldnode/herald/view"
)

// Report says what rules would have done.
type Report struct {
	Since, Until time.Time
	// Records and Pods count what was read.
	Records, Pods int
	// Folded counts records that stand for several versions of a status: what was in between is not known. Incomplete counts pods whose
	// beginning is not kept any more.
	Folded, Incomplete int
	Rules              []RuleReport
	// Skipped has the rules that read what is not in the history, with what that is.
	Skipped []Skipped
}

// RuleReport has the episodes of a rule.
type RuleReport struct {
	Rule     *rule.Rule
	Episodes []Episode
}

// Episode is a time in which an alert fired.
type Episode struct {
	Labels alert.Labels
	// EndsAt is zero if it still fires.
	StartsAt, EndsAt time.Time
	Flaps            int
}

// Skipped is a rule that cannot be replayed.
type Skipped struct {
	Rule  *rule.Rule
	Reads string
}

// Longest returns the longest episode, and Total the sum of all, up to the end of the report.
func (r *RuleReport) Longest(until time.Time) (longest time.Duration) {
	for i := range r.Episodes {
		longest = max(longest, r.Episodes[i].duration(until))
	}
	return longest
}

// Total returns how long alerts of the rule fired in all.
func (r *RuleReport) Total(until time.Time) (total time.Duration) {
	for i := range r.Episodes {
		total += r.Episodes[i].duration(until)
	}
	return total
}

// Firing counts the episodes that have not ended.
func (r *RuleReport) Firing() (firing int) {
	for i := range r.Episodes {
		if r.Episodes[i].EndsAt.IsZero() {
			firing++
		}
	}
	return firing
}

func (e *Episode) duration(until time.Time) time.Duration {
	if e.EndsAt.IsZero() {
		return until.Sub(e.StartsAt)
	}
	return e.EndsAt.Sub(e.StartsAt)
}

// unavailable are the fields that records do not have. Those of other triggers than status, node and time are found by Rule.Triggers.
var unavailable = []struct {
	pattern *regexp.Regexp
	what    string
}{
	{regexp.MustCompile(`\bpod\.(overdue|stage|trouble|ok|why)\b`), "the state of the pod's worker"},
	{regexp.MustCompile(`\bnode\.(runtime_|network_|api_|cluster|history_|cert_|pods|max_pods)`), "the state of the node"},
	{regexp.MustCompile(`\bnode\.count\(.runtime`), "failures of the runtime"},
	{regexp.MustCompile(`\bnode\.(rules_|rule_|sinks_|alerts_|remedies_)`), "the state of the agent"},
}

// missing returns what a rule reads and records do not have, or "".
func missing(r *rule.Rule) string {
	for _, trigger := range []struct {
		trigger rule.Trigger
		what    string
	}{
		{rule.OnLoad, "the load"}, {rule.OnProbe, "answers of probes"}, {rule.OnSync, "what the API server has"},
		{rule.OnSource, "sources of pods"},
	} {
		if r.Triggers&trigger.trigger != 0 {
			return trigger.what
		}
	}
	for _, fields := range unavailable {
		if fields.pattern.MatchString(r.Text.Expr) {
			return fields.what
		}
	}
	return ""
}

// Run replays the book with the rules.
func (b *Book) Run(set *rule.Set) *Report {
	report := &Report{Since: b.Since, Until: b.Until, Records: len(b.Records)}
	possible := &rule.Set{Inhibit: set.Inhibit}
	for _, r := range set.Rules {
		if what := missing(r); what != "" {
			report.Skipped = append(report.Skipped, Skipped{r, what})
		} else {
			possible.Rules = append(possible.Rules, r)
		}
	}
	name := b.Node.Metadata.Name
	p := &player{
		book: b, report: report, engine: engine.New(engine.Config{NodeName: name, Instance: name}), pods: map[string]*podState{},
		episodes: map[string]*Episode{},
	}
	p.play(possible)
	for _, r := range possible.Rules {
		report.Rules = append(report.Rules, RuleReport{Rule: r, Episodes: p.episodesOf(r)})
	}
	return report
}

// player plays a book.
type player struct {
	book   *Book
	report *Report
	engine *engine.Engine
	now    time.Time
	pods   map[string]*podState
	node   v1.Node
	// episodes are those that fire, by the key of their alert; ended has the others.
	episodes map[string]*Episode
	ended    []Episode
}

func (p *player) play(set *rule.Set) {
	p.now = p.book.Since
	if len(p.book.Records) > 0 && p.book.Records[0].Time.Before(p.now) {
		p.now = p.book.Records[0].Time
	}
	p.node.Name = p.book.Node.Metadata.Name
	p.node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	p.engine.SetRules(set, p.now)
	p.engine.EndStartup(p.now)
	p.nodeChanged()
	for i := range p.book.Records {
		record := &p.book.Records[i]
		if record.Time.After(p.now) { // a clock that was set back does not turn time back
			p.now = record.Time
		}
		p.engine.Advance(p.now)
		p.apply(record)
		p.take()
	}
	if p.book.Until.After(p.now) {
		p.now = p.book.Until
	}
	p.engine.Advance(p.now)
	p.take()
	p.report.Pods = len(p.pods)
	for _, pod := range p.pods {
		if !pod.isComplete {
			p.report.Incomplete++
		}
	}
}

func (p *player) apply(record *history.Record) {
	if record.Count > 1 {
		p.report.Folded++
	}
	switch record.Kind {
	case history.KindPod:
		p.applyPod(record)
	case history.KindNode:
		p.applyNode(record)
	}
}

func (p *player) applyPod(record *history.Record) {
	pod := p.pods[record.UID]
	if pod == nil {
		var known *view.PodView
		if current, found := p.book.Pods[record.UID]; found {
			known = &current
		}
		pod = newPodState(record, known)
		p.pods[record.UID] = pod
	}
	pod.apply(record.Changes, p.now)
	uid := podid.UID(record.UID)
	if pod.isRemoved {
		p.engine.PodRemoved(uid, p.now)
		return
	}
	p.engine.PodChanged(engine.PodChange{UID: uid, View: pod.view(p.now), Changes: record.Changes, Trigger: rule.OnStatus, At: p.now})
}

// nodeEvents are the kinds for node.count by the fields of the changes.
var nodeEvents = map[transition.Field]string{
	transition.FieldClock: "clock", transition.FieldBootID: "boot", transition.FieldLease: "lease", transition.FieldLoad: "load",
}

func (p *player) applyNode(record *history.Record) {
	for i := range record.Changes {
		change := &record.Changes[i]
		switch kind, isEvent := nodeEvents[change.Field]; {
		case isEvent:
			p.engine.NodeEvent(kind, p.now)
		case change.Field == transition.FieldUnschedulable:
			p.node.Spec.Unschedulable = change.To == "true"
		default:
			p.setNodeCondition(change)
		}
	}
	p.nodeChanged()
}

func (p *player) setNodeCondition(change *transition.Change) {
	conditions := slices.Clone(p.node.Status.Conditions)
	conditions = slices.DeleteFunc(conditions, func(c v1.NodeCondition) bool { return string(c.Type) == string(change.Field) })
	if change.To != "" {
		conditions = append(conditions, v1.NodeCondition{
			Type: v1.NodeConditionType(change.Field), Status: v1.ConditionStatus(change.To), LastTransitionTime: metav1.NewTime(p.now),
		})
	}
	p.node.Status.Conditions = conditions
}

func (p *player) nodeChanged() {
	node := p.node
	v := view.NewNode(view.NodeFacts{Node: &node, At: p.now})
	p.engine.NodeChanged(&v, rule.OnNode, p.now)
}

// take turns edges into episodes.
func (p *player) take() {
	for _, edge := range p.engine.Take() {
		key := edge.Alert.Key()
		episode := p.episodes[key]
		switch {
		case edge.Alert.IsFiring() && episode == nil:
			p.episodes[key] = &Episode{Labels: edge.Alert.Labels, StartsAt: edge.Alert.StartsAt, Flaps: edge.Alert.Flaps}
		case edge.Alert.IsFiring():
			episode.Flaps = edge.Alert.Flaps
		case edge.Alert.State == alert.Resolved && episode != nil:
			episode.EndsAt = edge.Alert.EndsAt
			p.end(episode)
			delete(p.episodes, key)
		}
	}
}

// end keeps an episode that has ended. One that continues an earlier one replaces it.
func (p *player) end(episode *Episode) {
	for i := range slices.Backward(p.ended) {
		if p.ended[i].StartsAt.Equal(episode.StartsAt) && maps.Equal(p.ended[i].Labels, episode.Labels) {
			p.ended[i] = *episode
			return
		}
	}
	p.ended = append(p.ended, *episode)
}

// episodesOf returns the episodes of a rule that did not end before the book begins, in order.
func (p *player) episodesOf(r *rule.Rule) (episodes []Episode) {
	isOf := func(e *Episode) bool {
		if e.Labels[alert.LabelName] != r.Name || e.Labels[alert.LabelScope] != string(r.Scope) {
			return false
		}
		for name, value := range r.Labels {
			if e.Labels[name] != value {
				return false
			}
		}
		return true
	}
	for i := range p.ended {
		if e := &p.ended[i]; isOf(e) && e.EndsAt.After(p.book.Since) && p.continued(e) == nil {
			episodes = append(episodes, *e)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.episodes)) {
		if e := p.episodes[key]; isOf(e) {
			episodes = append(episodes, *e)
		}
	}
	slices.SortStableFunc(episodes, func(a, b Episode) int { return a.StartsAt.Compare(b.StartsAt) })
	return episodes
}

// continued returns the episode that fires and continues one that had ended, or nil.
func (p *player) continued(ended *Episode) *Episode {
	if e := p.episodes[ended.Labels.Key()]; e != nil && e.StartsAt.Equal(ended.StartsAt) {
		return e
	}
	return nil
}

// WithFor returns the rules with another duration for which their expressions must be true.
func WithFor(set *rule.Set, duration time.Duration) *rule.Set {
	changed := *set
	changed.Rules = nil
	for _, r := range set.Rules {
		edited := *r
		edited.For = duration
		changed.Rules = append(changed.Rules, &edited)
	}
	return &changed
}
