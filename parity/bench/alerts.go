package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/alert/engine"
	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
	"github.com/heraldnode/herald/view"
)

// alertPods is the number of pods of a full node.
const alertPods = 110

// AlertCases returns the cases of rules and alerts, which the kubelet does not have. Their values are absolute.
func AlertCases() []Case { return []Case{evaluateRules, alertEdge} }

// ruleView returns the view that the agent passes to rules.
func ruleView(pod *v1.Pod, status *v1.PodStatus, now time.Time) *view.PodView {
	local := *pod
	local.Status = *status
	v := view.NewRulePod(explain.Facts{
		Now: now, Name: podid.FullNameOf(pod), Pod: &local, Source: explain.Source{Name: podid.SourceOf(pod)},
	})
	return &v
}

func podChange(version history.Version) engine.PodChange {
	return engine.PodChange{
		UID: version.UID, View: ruleView(version.Pod, version.After, version.Time), Trigger: rule.OnStatus, At: version.Time,
		Changes: transition.AppendPod(nil, version.Before, version.After),
	}
}

// evaluateRules measures one rule, all default rules at a transition, and a full node to which nothing happens.
func evaluateRules(_ context.Context, env *Environment) ([]Result, error) {
	env.logf("evaluate the default rules")
	set, err := rule.Merge(nil, rule.Default())
	if err != nil {
		return nil, err
	}
	one, name, err := slowestRule(env, set)
	if err != nil {
		return nil, err
	}
	pack, idle := evaluatePack(env, set), idleEvaluations(set)
	return []Result{
		alertResult("alert_eval_rule_us", "alerts: the slowest default rule ("+name+"), in us", formatNanoseconds(one), one/1e3, AtMost(3)),
		alertResult("alert_eval_pack_us", "alerts: the default rules at a transition of a pod, in us", formatNanoseconds(pack),
			pack/1e3, AtMost(60)),
		alertResult("alert_idle_evaluations", fmt.Sprintf("alerts: rules evaluated in a day without changes, %d pods", alertPods),
			fmt.Sprintf("%.0f", idle), idle, AtMost(0)),
	}, nil
}

func alertResult(name, description, text string, value float64, goal Goal) Result {
	return Result{Name: name, Description: description, Kubelet: "-", Herald: text, Value: value, Goal: goal}
}

// slowestRule returns the time of the slowest evaluation of a rule for a crash-looping container, in nanoseconds of CPU time.
func slowestRule(env *Environment, set *rule.Set) (slowest float64, name string, err error) {
	in := crashLoopInput()
	for _, r := range set.Rules {
		in.Container = ""
		if r.Scope == rule.Container {
			in.Container = in.Pod.Spec.Containers[0].Name
		}
		took, err := timeRule(env, r, in)
		if err != nil {
			return 0, "", err
		}
		if took > slowest {
			slowest, name = took, r.Name
		}
	}
	return slowest, name, nil
}

// crashLoopInput returns the input of rules for a pod that has failed ten times.
func crashLoopInput() rule.Input {
	pods := newCrashLoop(1, time.Now())
	counter := &recent.Counter{}
	var last history.Version
	for range 30 {
		last = pods.round()[0]
		counter.Observe(last.Pod.Namespace, last.Pod.Name, string(last.Pod.UID), transition.AppendPod(nil, last.Before, last.After), last.Time)
	}
	return rule.Input{Now: last.Time, Pod: ruleView(last.Pod, last.After, last.Time), Node: &view.NodeView{}, Recent: counter}
}

func timeRule(env *Environment, r *rule.Rule, in rule.Input) (float64, error) {
	const n = 1000
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var times []float64
	for range env.Profile.CallRounds {
		start := threadCPUTime()
		for range n {
			if result := r.Eval(in); result.Err != nil {
				return 0, fmt.Errorf("rule %s: %w", r.Name, result.Err)
			}
		}
		times = append(times, float64((threadCPUTime()-start).Nanoseconds())/n)
	}
	return median(times), nil
}

// evaluatePack returns the time of a transition of one of the pods, in nanoseconds of CPU time.
func evaluatePack(env *Environment, set *rule.Set) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pods := newCrashLoop(alertPods, time.Now())
	e := newEngine(set, pods.now)
	var times []float64
	for range 10 * env.Profile.CallRounds {
		var changes []engine.PodChange
		for _, version := range pods.round() {
			changes = append(changes, podChange(version))
		}
		start := threadCPUTime()
		for _, change := range changes {
			e.PodChanged(change)
		}
		times = append(times, float64((threadCPUTime()-start).Nanoseconds())/float64(len(changes)))
		e.Take()
	}
	return median(times)
}

func newEngine(set *rule.Set, now time.Time) *engine.Engine {
	e := engine.New(engine.Config{NodeName: "n1", Instance: "n1"})
	e.NodeChanged(&view.NodeView{}, rule.OnNode, now)
	e.SetRules(set, now)
	return e
}

// idleEvaluations returns the number of evaluations in a day in which nothing happens to a full node of pods that are well.
func idleEvaluations(set *rule.Set) float64 {
	now := time.Now()
	e := newEngine(set, now)
	for i, pod := range newCrashLoop(alertPods, now).pods {
		status := crashStatus(0, i, now)
		e.PodChanged(engine.PodChange{
			UID: podid.UID(pod.UID), View: ruleView(pod, status, now), Trigger: rule.OnStatus, At: now,
			Changes: transition.AppendPod(nil, nil, status),
		})
	}
	before := e.Evaluations()
	for end := now.Add(24 * time.Hour); !e.Next().IsZero() && e.Next().Before(end); {
		e.Advance(e.Next())
		e.Take()
	}
	return float64(e.Evaluations() - before)
}
