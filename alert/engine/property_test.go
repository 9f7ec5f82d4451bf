package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/engine"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/view"
)

// operation is something that happens at a time. It concerns the pods of one name, or the node if that is empty.
type operation struct {
	at   time.Time
	pod  string
	text string
	do   func(s *simulation, at time.Time)
}

// uid returns the UID of the newest pod of a name; empty if there is none.
func (s *simulation) uid(name string) string {
	newest := ""
	for _, uid := range s.uids() {
		if prefix, _, _ := strings.Cut(uid, "#"); prefix == name {
			newest = uid
		}
	}
	return newest
}

// operations are those that change objects.
var operations = map[string]func(name string, number int) func(*simulation, time.Time){
	"oom":   changePod(func(s *simulation, at time.Time, uid string) { s.status(at, uid, end("OOMKilled")) }),
	"error": changePod(func(s *simulation, at time.Time, uid string) { s.status(at, uid, end("Error")) }),
	"flip": changePod(func(s *simulation, at time.Time, uid string) {
		s.status(at, uid, ready(s.pods[uid].status.Conditions[0].Status != "True"))
	}),
	"high":    changePod(func(s *simulation, at time.Time, uid string) { s.load(at, uid, new(0.95)) }),
	"low":     changePod(func(s *simulation, at time.Time, uid string) { s.load(at, uid, new(0.5)) }),
	"unknown": changePod(func(s *simulation, at time.Time, uid string) { s.load(at, uid, nil) }),
	"remove":  changePod(func(s *simulation, at time.Time, uid string) { s.remove(at, uid) }),
	"replace": func(name string, number int) func(*simulation, time.Time) {
		return func(s *simulation, at time.Time) {
			s.status(at, fmt.Sprintf("%s#%03d", name, number), ready(number%2 == 0))
		}
	},
	"stale": changeNode(func(v *view.NodeView) { v.Runtime.Stale = !v.Runtime.Stale }),
	"runtime": changeNode(func(v *view.NodeView) {
		if v.Runtime.Problem += "down"; v.Runtime.Problem != "down" {
			v.Runtime.Problem = ""
		}
	}),
	"clock": func(string, int) func(*simulation, time.Time) {
		return func(s *simulation, at time.Time) {
			s.engine.NodeEvent("clock", at)
			s.take()
		}
	},
}

// changePod is an operation on the newest pod of the name, which is created if there is none.
func changePod(do func(s *simulation, at time.Time, uid string)) func(string, int) func(*simulation, time.Time) {
	return func(name string, number int) func(*simulation, time.Time) {
		return func(s *simulation, at time.Time) {
			uid := s.uid(name)
			if uid == "" {
				uid = fmt.Sprintf("%s#%03d", name, number)
				s.status(at, uid, nil)
			}
			do(s, at, uid)
		}
	}
}

func changeNode(change func(*view.NodeView)) func(string, int) func(*simulation, time.Time) {
	return func(string, int) func(*simulation, time.Time) {
		return func(s *simulation, at time.Time) { s.changeNode(at, rule.OnNode, change) }
	}
}

var (
	podOperations  = []string{"oom", "oom", "error", "flip", "flip", "flip", "high", "high", "low", "unknown", "remove", "replace"}
	nodeOperations = []string{"stale", "runtime", "clock"}
)

// drawTimeline draws what happens, in the order of time. Gaps are multiples of the unit.
func drawTimeline(t *rapid.T, unit time.Duration, length, maxGap int) []operation {
	var timeline []operation
	at := start
	for number := range rapid.IntRange(1, length).Draw(t, "length") {
		at = at.Add(time.Duration(rapid.IntRange(0, maxGap).Draw(t, "gap")) * unit)
		kind, pod := rapid.SampledFrom(podOperations).Draw(t, "operation"), rapid.SampledFrom([]string{"a", "b", "d"}).Draw(t, "pod")
		if rapid.IntRange(0, 5).Draw(t, "is node") == 0 {
			kind, pod = rapid.SampledFrom(nodeOperations).Draw(t, "node operation"), ""
		}
		timeline = append(timeline, operation{at: at, pod: pod, text: kind, do: operations[kind](pod, number)})
	}
	return timeline
}

// expressions are those of random rules; 1u is the unit of time.
var expressions = []string{
	"container: container.ended('OOMKilled', '60u') >= 2",
	"container: container.ended('OOMKilled', '20u') >= 1",
	"container: container.restarted('90u') >= 3",
	"container: container.load.memory_limit > 0.9",
	"container: container.load.memory_limit > 0.9 || container.restarted('30u') >= 1",
	"pod: pod.flipped('Ready', '60u') >= 2",
	"pod: '!pod.ready'",
	"pod: older(pod, '150u') && !pod.ready",
	"pod: '!pod.ready && node.runtime_ready'",
	"pod: node.count('clock', '45u') >= 1 && pod.ready",
	"node: node.count('clock', '60u') >= 2",
	"node: '!node.runtime_ready'",
}

// drawRules draws a rule file as text.
func drawRules(t *rapid.T, unit string) string {
	var text strings.Builder
	for i, expression := range expressions {
		if rapid.IntRange(0, 2).Draw(t, "is used") == 0 {
			continue
		}
		scope, expr, _ := strings.Cut(expression, ": ")
		wait, keep := rapid.SampledFrom([]int{0, 0, 1, 10, 60}).Draw(t, "for"), rapid.SampledFrom([]int{0, 0, 1, 30, 120}).Draw(t, "keep")
		rule := fmt.Sprintf("\n- alert: R%d\n  on: %s\n  expr: %s\n  for: %du\n  keep_firing_for: %du", i, scope, expr, wait, keep)
		text.WriteString(strings.NewReplacer("0u", "0"+unit, "1u", "1"+unit, "5u", "5"+unit).Replace(rule))
	}
	return text.String()
}

// play carries out a timeline. Timers run at the instants that the engine names, and at some of the operations.
func (s *simulation) play(timeline []operation, until time.Time, before func(index int, at time.Time)) {
	for index, o := range timeline {
		if index%2 == 0 { // else the operation itself runs what is due for its object
			s.runTimers(o.at)
		}
		if before != nil {
			before(index, o.at)
		}
		o.do(s, o.at)
	}
	s.runTimers(until)
}

func (s *simulation) runTimers(until time.Time) {
	for next := s.engine.Next(); !next.IsZero() && !next.After(until); next = s.engine.Next() {
		s.advance(next)
	}
}

// perAlert returns the changes of each alert in order: states, reasons, whether it is frozen.
func (s *simulation) perAlert() map[string][]string {
	changes := map[string][]string{}
	for _, edge := range s.edges {
		a := edge.Alert
		changes[a.Key()] = append(changes[a.Key()], fmt.Sprintf("%s %s>%s active %s starts %s ends %s flaps %d episode %d %q frozen %v",
			edge.At.Sub(start), word(edge.Before), word(a.State), since(a.ActiveAt), since(a.StartsAt), since(a.EndsAt), a.Flaps, a.Episode,
			a.Reason, a.Freeze != nil))
	}
	return changes
}

func since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Sub(start).String()
}

// final returns the alerts in the end, without what mutes them.
func (s *simulation) final() []string {
	var all []string
	for _, a := range s.engine.Alerts() {
		text := fmt.Sprintf("%s %s active %s starts %s ends %s flaps %d episode %d %q", a.Key(), a.State, since(a.ActiveAt), since(a.StartsAt),
			since(a.EndsAt), a.Flaps, a.Episode, a.Reason)
		if a.Freeze != nil {
			text += " frozen since " + since(a.Freeze.Since) + ": " + a.Freeze.Reason
		}
		all = append(all, text)
	}
	return all
}

func compare(t *rapid.T, timeline []operation, got, want *simulation) {
	t.Helper()
	story := func() string {
		var text strings.Builder
		for _, o := range timeline {
			fmt.Fprintf(&text, "  %s %s %s\n", o.at.Sub(start), o.text, o.pod)
		}
		return text.String()
	}
	a, b := got.perAlert(), want.perAlert()
	for key := range b {
		a[key] = append(a[key], []string(nil)...)
	}
	for key := range a {
		if !slices.Equal(a[key], b[key]) {
			t.Fatalf("%s: got\n  %s\nwant\n  %s\nin\n%s", key, strings.Join(a[key], "\n  "), strings.Join(b[key], "\n  "), story())
		}
	}
	if a, b := got.final(), want.final(); !slices.Equal(a, b) {
		t.Fatalf("in the end got\n  %s\nwant\n  %s\nin\n%s", strings.Join(a, "\n  "), strings.Join(b, "\n  "), story())
	}
}

// TestA3_TimersSuffice compares an engine that evaluates rules only at changes and at the instants that it named itself with one that
// evaluates all rules for all objects at every millisecond, or second.
func TestA3_TimersSuffice(t *testing.T) {
	for unit, d := range map[string]time.Duration{"ms": time.Millisecond, "s": time.Second} {
		t.Run(unit, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				rules := drawRules(t, unit)
				timeline := drawTimeline(t, d, 30, 40)
				until := timeline[len(timeline)-1].at.Add(300 * d)
				sparse := newSimulation(t, parseRules(t, rules), engine.Config{})
				sparse.play(timeline, until, nil)

				// Rules that were read again are evaluated again.
				sets := [2]*rule.Set{parseRules(t, rules), parseRules(t, rules)}
				dense := newSimulation(t, sets[0], engine.Config{})
				index := 0
				for at, tick := start, 1; !at.After(until); at, tick = at.Add(d), tick+1 {
					dense.engine.SetRules(sets[tick%2], at)
					dense.take()
					for ; index < len(timeline) && timeline[index].at.Equal(at); index++ {
						timeline[index].do(dense, at)
					}
				}
				compare(t, timeline, sparse, dense)
				if few, many := sparse.engine.Evaluations(), dense.engine.Evaluations(); few > many && len(timeline) > 5 {
					t.Fatalf("got %d evaluations, the other has %d", few, many)
				}
			})
		})
	}
}

// TestA4_UnknownChangesNothing checks that no alert about containers changes its state while the runtime does not answer, unless its pod is
// gone, and that no alert that is frozen does.
func TestA4_UnknownChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := drawRules(t, "s")
		timeline := drawTimeline(t, time.Second, 40, 60)
		s := newSimulation(t, parseRules(t, rules), engine.Config{})
		for _, o := range timeline {
			s.runTimers(o.at)
			wasStale, count := s.node.Runtime.Stale, len(s.edges)
			o.do(s, o.at)
			s.runTimers(o.at)
			for _, edge := range s.edges[count:] {
				isAboutContainer := edge.Alert.Labels[alert.LabelScope] == "container"
				if wasStale && o.text != "stale" && o.text != "remove" && isAboutContainer && edge.Before != edge.Alert.State {
					t.Fatalf("%s changed %s", o.text, describe(edge))
				}
			}
		}
		for _, edge := range s.edges {
			if edge.Alert.Freeze != nil && edge.Before != edge.Alert.State {
				t.Fatalf("changed while frozen: %s", describe(edge))
			}
		}
	})
}

// TestA5_RestartChangesNothing restarts the agent at random points: no time and no episode changes. Half of the restarts read what
// SaveChanged has returned after each change.
func TestA5_RestartChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := drawRules(t, "s")
		timeline := drawTimeline(t, time.Second, 40, 120)
		until := timeline[len(timeline)-1].at.Add(300 * time.Second)
		restarts := rapid.SliceOfN(rapid.IntRange(0, 4), len(timeline), len(timeline)).Draw(t, "restarts")
		set := parseRules(t, rules)
		want := newSimulation(t, set, engine.Config{})
		want.play(timeline, until, nil)
		got := newSimulation(t, set, engine.Config{})
		log := []engine.Saved{got.engine.SaveChanged()}
		got.play(timeline, until, func(index int, at time.Time) {
			got.runTimers(at)
			log = append(log, got.engine.SaveChanged())
			switch restarts[index] {
			case 0:
				got.restart(at, engine.Config{})
				log = []engine.Saved{got.engine.SaveChanged()}
			case 1:
				got.restore(at, engine.Config{}, log...)
				got.resumeAll(at)
				log = []engine.Saved{got.engine.SaveChanged()}
			}
		})
		compare(t, timeline, got, want)
	})
}

// TestA5_AbsenceChangesNothing restarts the agent at random points, and lets it see its pods again up to two minutes later, one by one. If
// nothing happens to them meanwhile, alerts fire and end as if the agent had been there: for and keep go on by the wall clock.
func TestA5_AbsenceChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rules strings.Builder
		for i, expr := range []string{"pod: '!pod.ready'", "container: container.load.memory_limit > 0.9", "node: '!node.runtime_ready'"} {
			scope, expr, _ := strings.Cut(expr, ": ")
			fmt.Fprintf(&rules, "\n- alert: R%d\n  on: %s\n  expr: %s\n  for: %ds\n  keep_firing_for: %ds", i, scope, expr,
				rapid.SampledFrom([]int{0, 30, 100, 300}).Draw(t, "for"), rapid.SampledFrom([]int{0, 20, 90, 200}).Draw(t, "keep"))
		}
		timeline := drawTimeline(t, time.Second, 30, 200)
		until := timeline[len(timeline)-1].at.Add(time.Hour)
		set := parseRules(t, rules.String())
		want := newSimulation(t, set, engine.Config{})
		want.play(timeline, until, nil)
		got := newSimulation(t, set, engine.Config{})
		for index, o := range timeline {
			got.runTimers(o.at)
			o.do(got, o.at)
			if index+1 == len(timeline) || rapid.IntRange(0, 3).Draw(t, "restart") > 0 {
				continue
			}
			saved := got.engine.Save()
			back := o.at // until the next operation
			pause := func() {
				back = back.Add(time.Duration(rapid.IntRange(0, max(0, int(min(timeline[index+1].at.Sub(back), 30*time.Second)/time.Second))).Draw(t, "pause")) * time.Second)
			}
			pause()
			got.restore(back, engine.Config{}, saved)
			got.changeNode(back, rule.OnNode, func(*view.NodeView) {})
			for _, uid := range got.uids() {
				pause()
				got.runTimers(back)
				got.resume(back, uid)
			}
			got.engine.EndStartup(back)
			got.take()
		}
		got.runTimers(until)
		compareEpisodes(t, got, want)
	})
}

// compareEpisodes compares when alerts fired and ended, not when that was noticed.
func compareEpisodes(t *rapid.T, got, want *simulation) {
	t.Helper()
	episodes := func(s *simulation) []string {
		var all []string
		for _, edge := range s.edges {
			a := edge.Alert
			if a.State == alert.Resolved && edge.Before != alert.Pending {
				all = append(all, fmt.Sprintf("%s starts %s ends %s flaps %d episode %d", a.Key(), since(a.StartsAt), since(a.EndsAt), a.Flaps, a.Episode))
			}
		}
		slices.Sort(all)
		return append(all, s.final()...)
	}
	if a, b := episodes(got), episodes(want); !slices.Equal(a, b) {
		t.Fatalf("got\n  %s\nwant\n  %s", strings.Join(a, "\n  "), strings.Join(b, "\n  "))
	}
}

// TestA6_OrderOfUnrelatedObjects lets an engine see what happened to different pods in another order, until the node changes.
func TestA6_OrderOfUnrelatedObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := parseRules(t, drawRules(t, "s"))
		timeline := drawTimeline(t, time.Second, 40, 60)
		until := timeline[len(timeline)-1].at.Add(300 * time.Second)
		order := rapid.Permutation([]string{"a", "b", "d"}).Draw(t, "order")
		want := newSimulation(t, set, engine.Config{})
		for _, o := range timeline {
			o.do(want, o.at)
		}
		want.runTimers(until)
		got := newSimulation(t, set, engine.Config{})
		for rest := timeline; len(rest) > 0; {
			node := slices.IndexFunc(rest, func(o operation) bool { return o.pod == "" })
			if node == 0 {
				rest[0].do(got, rest[0].at)
				rest = rest[1:]
				continue
			}
			if node < 0 {
				node = len(rest)
			}
			for _, name := range order {
				for _, o := range rest[:node] {
					if o.pod == name {
						o.do(got, o.at)
					}
				}
			}
			rest = rest[node:]
		}
		got.runTimers(until)
		compare(t, timeline, got, want)
	})
}

func (s *simulation) resumeAll(at time.Time) {
	s.changeNode(at, rule.OnNode, func(*view.NodeView) {})
	for _, uid := range s.uids() {
		s.resume(at, uid)
	}
	s.engine.EndStartup(at)
	s.take()
}

// TestA7_MuteChangesNothingElse compares an engine with silences and inhibitions with one without.
func TestA7_MuteChangesNothingElse(t *testing.T) {
	matchers := []string{`pod="a"`, `alertname=~"R1.*"`, `scope="container"`, `scope!="node"`, `alertname="R11"`, `alertname="R6"`}
	rapid.Check(t, func(t *rapid.T) {
		rules := drawRules(t, "s")
		timeline := drawTimeline(t, time.Second, 40, 60)
		until := timeline[len(timeline)-1].at.Add(1000 * time.Second)
		want := newSimulation(t, parseRules(t, rules), engine.Config{})
		want.play(timeline, until, nil)
		var inhibit []string
		for range rapid.IntRange(0, 3).Draw(t, "inhibitions") {
			inhibit = append(inhibit, fmt.Sprintf("{source: ['%s'], target: ['%s']}", rapid.SampledFrom(matchers).Draw(t, "source"), rapid.SampledFrom(matchers).Draw(t, "target")))
		}
		muted := newSimulation(t, parseRules(t, rules, inhibit...), engine.Config{})
		muted.play(timeline, until, func(_ int, at time.Time) {
			muted.runTimers(at)
			checkMutes(t, muted, at)
			if id := fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "id")); rapid.IntRange(0, 3).Draw(t, "add") == 0 {
				muted.engine.AddSilence(silence(t, id, rapid.SampledFrom(matchers).Draw(t, "matcher"),
					at.Add(time.Duration(rapid.IntRange(-20, 20).Draw(t, "from"))*time.Second), at.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "to"))*time.Second)))
			} else if rapid.IntRange(0, 9).Draw(t, "expire") == 0 {
				_ = muted.engine.ExpireSilence(id, at) // there may be none
			}
			muted.take()
		})
		checkMutes(t, muted, until)
		muted.edges = withoutMuteEdges(muted.edges)
		compare(t, timeline, muted, want)
	})
}

// withoutMuteEdges returns the edges at which the state changed, or whether the alert is frozen.
func withoutMuteEdges(edges []engine.Edge) []engine.Edge {
	var kept []engine.Edge
	isFrozen := map[string]bool{}
	for _, edge := range edges {
		key, isFrozenNow := edge.Alert.Key(), edge.Alert.Freeze != nil
		if edge.Before != edge.Alert.State || isFrozen[key] != isFrozenNow {
			kept = append(kept, edge)
		}
		isFrozen[key] = isFrozenNow
	}
	return kept
}

func silence(t fataler, id, matcher string, from, to time.Time) alert.Silence {
	t.Helper()
	m, err := alert.ParseMatcher(matcher)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return alert.Silence{ID: id, Matchers: []alert.Matcher{m}, StartsAt: from, EndsAt: to}
}

// checkMutes compares what mutes the alerts now with silences and inhibitions, asked one by one.
func checkMutes(t *rapid.T, s *simulation, now time.Time) {
	t.Helper()
	alerts := s.engine.Alerts()
	for _, a := range alerts {
		if a.State == alert.Resolved {
			continue
		}
		var want alert.Mute
		for _, silence := range s.engine.Silences() {
			if silence.Matches(a.Labels, now) {
				want.SilencedBy = append(want.SilencedBy, silence.ID)
			}
		}
		slices.Sort(want.SilencedBy)
		for _, other := range alerts {
			isSource := slices.ContainsFunc(s.set.Inhibit, func(i rule.Inhibition) bool {
				return alert.MatchAll(i.Source, other.Labels) && alert.MatchAll(i.Target, a.Labels)
			})
			if isSource && other.IsFiring() && other.Key() != a.Key() {
				want.InhibitedBy = append(want.InhibitedBy, other.Key())
			}
		}
		if !slices.Equal(a.Mute.SilencedBy, want.SilencedBy) || !slices.Equal(a.Mute.InhibitedBy, want.InhibitedBy) {
			t.Fatalf("%s: got %+v, want %+v", a.Key(), a.Mute, want)
		}
	}
}

// TestA1_FiringIsFollowedByResolved checks the edges of each alert under restarts, reloads with other rules and durations, deletions and
// limits: they are a chain, what fires is resolved or fires now, and only what fired is resolved.
func TestA1_FiringIsFollowedByResolved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := engine.Config{MaxAlerts: rapid.IntRange(1, 12).Draw(t, "max"), MaxPerRule: rapid.IntRange(1, 4).Draw(t, "max per rule")}
		s := newSimulation(t, parseRules(t, drawRules(t, "s")), config)
		timeline := drawTimeline(t, time.Second, 40, 120)
		until := timeline[len(timeline)-1].at.Add(2 * time.Hour)
		s.play(timeline, timeline[len(timeline)-1].at, func(_ int, at time.Time) {
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				s.restart(at, config)
			case 1:
				s.set = parseRules(t, drawRules(t, "s"))
				s.engine.SetRules(s.set, at)
				s.take()
			case 2: // the file was edited while the agent did not run
				s.set = parseRules(t, drawRules(t, "s"))
				s.restart(at, config)
			}
			checkChain(t, s)
			if got := len(s.engine.Alerts()); got > config.MaxAlerts {
				t.Fatalf("got %d alerts, want at most %d", got, config.MaxAlerts)
			}
		})
		s.set = parseRules(t, "")
		s.engine.SetRules(s.set, until)
		s.take()
		checkChain(t, s)
		s.advance(until.Add(time.Hour))
		if alerts := s.engine.Alerts(); len(alerts) > 0 || !s.engine.Next().IsZero() {
			t.Fatalf("got %v without rules, next at %s", alerts, s.engine.Next())
		}
	})
}

func checkChain(t *rapid.T, s *simulation) {
	t.Helper()
	last := map[string]alert.Alert{}
	for _, edge := range s.edges {
		key := edge.Alert.Key()
		before := last[key]
		if before.State != edge.Before {
			t.Fatalf("%s after %s", describe(edge), word(before.State))
		}
		if before.IsFiring() && !edge.Alert.IsFiring() && edge.Alert.State != alert.Resolved {
			t.Fatalf("%s: a firing alert is not resolved", describe(edge))
		}
		if edge.Alert.IsFiring() && before.IsFiring() && (edge.Alert.Episode != before.Episode || !edge.Alert.StartsAt.Equal(before.StartsAt)) {
			t.Fatalf("%s: another episode without an end", describe(edge))
		}
		if edge.Alert.State == alert.Resolved && (edge.Alert.Episode == 0 || edge.Alert.EndsAt.IsZero() || edge.Alert.EndsAt.Before(edge.Alert.StartsAt)) {
			t.Fatalf("%s: resolved, but it was not firing: %+v", describe(edge), edge.Alert)
		}
		last[key] = edge.Alert
	}
	now := map[string]alert.State{}
	for _, a := range s.engine.Alerts() {
		now[a.Key()] = a.State
	}
	for key, a := range last {
		if now[key] != a.State {
			t.Fatalf("%s: %s now, %s after the last edge", key, word(now[key]), word(a.State))
		}
	}
}
