package ruletest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/engine"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

// Result is the result of one test.
type Result struct {
	Test *Test
	// Failures are the expectations that were not met, and why the test could not run. Each has file and line.
	Failures []error
	// Took is the virtual time.
	Took time.Duration
}

// lookPeriod is how often the agent looks whether facts have been unknown for too long.
const lookPeriod = time.Minute

// epoch is when every test begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Run runs all tests of a file with the rules.
func Run(file *File, set *rule.Set) []Result {
	results := make([]Result, 0, len(file.Tests))
	for _, test := range file.Tests {
		results = append(results, runTest(file.Path, test, set))
	}
	return results
}

// runner runs one test.
type runner struct {
	path   string
	set    *rule.Set
	engine *engine.Engine
	now    time.Time
	pods   []*podModel
	node   nodeModel
	// alerting is what the rules were told about the agent itself.
	alerting view.Alerting
	// isStopped is set while the agent does not run.
	isStopped bool
	saved     []byte
	sinks     sinks
}

func runTest(path string, test *Test, set *rule.Set) Result {
	result := Result{Test: test}
	fail := func(line int, err error) {
		result.Failures = append(result.Failures, &Error{Path: path, Line: line, Field: test.Name, Err: err})
	}
	r := &runner{path: path, set: set, now: epoch, sinks: newSinks()}
	if err := r.begin(test); err != nil {
		fail(test.Line, err)
		return result
	}
	steps, expectations := test.Timeline, slices.Clone(test.Expect)
	slices.SortStableFunc(expectations, func(a, b *Expect) int { return int(a.At - b.At) })
	for len(steps) > 0 || len(expectations) > 0 {
		if len(expectations) == 0 || len(steps) > 0 && steps[0].At <= expectations[0].At {
			r.advance(epoch.Add(steps[0].At))
			if err := r.step(steps[0]); err != nil {
				fail(steps[0].Line, err)
			}
			steps = steps[1:]
			continue
		}
		r.advance(epoch.Add(expectations[0].At))
		if err := r.sinks.check(expectations[0]); err != nil {
			fail(expectations[0].Line, err)
		}
		expectations = expectations[1:]
	}
	result.Took = r.now.Sub(epoch)
	return result
}

// begin creates the objects of the test and tells the rules.
func (r *runner) begin(test *Test) error {
	r.node = nodeModel{name: test.Node.Name, isAlone: test.Node.Alone, pressure: map[string]bool{}, alerting: map[string]int{}}
	if r.node.name == "" {
		r.node.name = "n1"
	}
	for i, pod := range test.Pods {
		model, err := newPod(pod, i, epoch)
		if err != nil {
			return err
		}
		r.pods = append(r.pods, model)
	}
	r.engine = r.newEngine()
	r.engine.EndStartup(r.now)
	r.nodeChanged(rule.OnNode)
	for _, pod := range r.pods {
		r.podChanged(pod, rule.OnStatus)
	}
	r.collect()
	return nil
}

func (r *runner) newEngine() *engine.Engine {
	e := engine.New(engine.Config{NodeName: r.node.name, Instance: r.node.name})
	e.SetRules(r.set, r.now)
	return e
}

// advance lets time pass. The rules are told of the agent's own state whenever it changes.
func (r *runner) advance(to time.Time) {
	for !r.isStopped {
		next := r.engine.Next()
		if look := r.now.Add(lookPeriod); (r.node.stale || r.node.loadUnknown) && (next.IsZero() || next.After(look)) {
			next = look
		}
		if next.IsZero() || next.After(to) {
			break
		}
		if next.Before(r.now) {
			next = r.now
		}
		r.now = next
		r.engine.Advance(next)
		r.collect()
	}
	r.now = to
	if !r.isStopped {
		r.engine.Advance(to)
		r.collect()
	}
}

// collect takes the edges, and tells the rules of the agent's state if they changed it.
func (r *runner) collect() {
	for range 3 { // an alert about the agent changes the number of alerts, but not what the rule reads
		r.sinks.take(r.engine.Take(), r.engine.Alerts())
		health := r.engine.Health()
		alerting := view.Alerting{
			Rules: health.Rules, RulesBroken: health.RulesBroken, RulesUnknown: health.RulesUnknown, Firing: health.Firing,
			Pending: health.Pending, Suppressed: health.Suppressed,
		}
		if alerting == r.alerting {
			return
		}
		r.alerting = alerting
		r.nodeChanged(rule.OnNode)
	}
}

func (r *runner) step(step *Step) error {
	r.node.apply(step, r.now)
	var changed *podModel
	if step.Pod != "" {
		changed = r.pods[slices.IndexFunc(r.pods, func(m *podModel) bool { return m.pod.Name == step.Pod })]
		changed.apply(step, r.now)
	}
	if step.Agent != "" {
		if err := r.agent(step.Agent); err != nil {
			return err
		}
	}
	if r.isStopped {
		return nil
	}
	if len(step.Silence) > 0 {
		if err := r.silence(step); err != nil {
			return err
		}
	}
	if step.Event != "" {
		r.engine.NodeEvent(step.Event, r.now)
	}
	if trigger := step.nodeTrigger(); trigger != 0 {
		r.nodeChanged(trigger)
	}
	if len(step.Unknown)+len(step.Known) > 0 { // the loads of pods are known or not
		for _, pod := range r.pods {
			r.podChanged(pod, rule.OnLoad)
		}
	}
	if changed != nil {
		r.podChanged(changed, step.podTrigger())
	}
	r.collect()
	return nil
}

// nodeTrigger returns what a step changes about the node.
func (s *Step) nodeTrigger() (trigger rule.Trigger) {
	if s.API != "" || s.Runtime != "" || s.Network != "" || s.History != "" || s.CertificateExpires != nil ||
		len(s.Unknown)+len(s.Known)+len(s.Pressure)+len(s.Alerting) > 0 {
		trigger |= rule.OnNode
	}
	if s.NodeLoad != nil || len(s.Unknown)+len(s.Known) > 0 {
		trigger |= rule.OnLoad
	}
	if s.SourcesBad != nil {
		trigger |= rule.OnSource
	}
	return trigger
}

// podTrigger returns what a step changes about a pod beyond its status.
func (s *Step) podTrigger() (trigger rule.Trigger) {
	if s.Probe != nil {
		trigger |= rule.OnProbe
	}
	if s.Load != nil {
		trigger |= rule.OnLoad
	}
	if s.Behind != nil || s.Refused != nil {
		trigger |= rule.OnSync
	}
	if s.Deleting != nil {
		trigger |= rule.OnStatus
	}
	return trigger
}

// podChanged tells the rules of a pod.
func (r *runner) podChanged(m *podModel, trigger rule.Trigger) {
	uid := podid.UID(m.pod.UID)
	if m.removed {
		r.engine.PodRemoved(uid, r.now)
		m.told = nil
		return
	}
	seen, changes, hasChanged := m.tell(r.now, !r.node.isAlone, !r.node.loadUnknown)
	if hasChanged {
		trigger |= rule.OnStatus
	}
	if trigger != 0 {
		r.engine.PodChanged(engine.PodChange{UID: uid, View: seen, Changes: changes, Trigger: trigger, At: r.now})
	}
}

func (r *runner) nodeChanged(trigger rule.Trigger) {
	pods := make([]view.PodView, 0, len(r.pods))
	for _, m := range r.pods {
		if !m.removed {
			pods = append(pods, view.PodView{})
		}
	}
	r.engine.NodeChanged(r.node.view(pods, r.alerting, r.now), trigger, r.now)
}

// agent restarts, stops or starts the agent. What it knows goes through the checkpoint.
func (r *runner) agent(what string) error {
	if what != "start" && !r.isStopped {
		var err error
		if r.saved, err = json.Marshal(r.engine.Save()); err != nil {
			return fmt.Errorf("save the alerts: %w", err)
		}
		r.isStopped = true
	}
	if what == "stop" || !r.isStopped {
		return nil
	}
	var saved engine.Saved
	if err := json.Unmarshal(r.saved, &saved); err != nil {
		return fmt.Errorf("restore the alerts: %w", err)
	}
	r.isStopped = false
	r.engine = r.newEngine()
	r.engine.Restore(saved, r.now)
	r.nodeChanged(rule.OnNode)
	for _, pod := range r.pods {
		r.podChanged(pod, rule.OnStatus)
	}
	r.engine.EndStartup(r.now)
	return nil
}

func (r *runner) silence(step *Step) error {
	silence := alert.Silence{ID: fmt.Sprintf("line-%d", step.Line), StartsAt: r.now, EndsAt: r.now.Add(step.For), Comment: "test"}
	for _, text := range step.Silence {
		matcher, err := alert.ParseMatcher(text)
		if err != nil {
			return err
		}
		silence.Matchers = append(silence.Matchers, matcher)
	}
	r.engine.AddSilence(silence)
	return nil
}

// Summary returns a line about the result.
func (r *Result) Summary() string {
	if len(r.Failures) == 0 {
		return "ok    " + r.Test.Name
	}
	lines := []string{"FAIL  " + r.Test.Name}
	for _, failure := range r.Failures {
		lines = append(lines, "      "+strings.ReplaceAll(failure.Error(), "\n", "\n      "))
	}
	return strings.Join(lines, "\n")
}
