package remedy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/heraldnode/herald/remedy"
)

// clockModel is a machine: true time, a wall clock that somebody sets, boots, and runs of the agent.
type clockModel struct {
	now      time.Duration // true time
	wall     time.Duration // what the wall clock adds to it
	boot     int
	bootedAt time.Duration
	// runAt and runWall are the true time and the wall clock when the agent was started. Go compares times of a run by the monotonic clock.
	runAt time.Duration
	run   time.Time

	ledger remedy.Ledger
	deeds  []deed
}

type deed struct {
	at     time.Duration
	object remedy.Object
	kind   remedy.Type
}

func (m *clockModel) instant() remedy.Instant {
	return remedy.Instant{At: m.run.Add(m.now - m.runAt), Boot: "boot" + string(rune('a'+m.boot)), UptimeMs: (m.now - m.bootedAt).Milliseconds()}
}

// restart ends the agent and starts it again.
func (m *clockModel) restart(t *rapid.T, down time.Duration) {
	text, err := json.Marshal(m.ledger)
	if err != nil {
		t.Fatal(err)
	}
	m.now += down
	m.runAt, m.run = m.now, start.Add(m.now+m.wall)
	m.ledger = remedy.Ledger{}
	if err := json.Unmarshal(text, &m.ledger); err != nil {
		t.Fatal(err)
	}
	m.ledger.Restore(m.instant())
}

// TestR2_Limits checks that limits hold in true time, whatever happens to clocks and to the agent. Over a reboot there is only the wall
// clock: it may be set back, but not ahead.
func TestR2_Limits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &clockModel{run: start}
		minutes := rapid.IntRange(0, 20)
		objects := []remedy.Object{
			{Namespace: "shop", Pod: "a", Container: "app"}, {Namespace: "shop", Pod: "b", Container: "app"}, {Namespace: "shop", Pod: "c", Container: "app"},
		}
		act := func(t *rapid.T, kind remedy.Type) {
			facts := newFacts()
			facts.Object = rapid.SampledFrom(objects).Draw(t, "object")
			now := m.instant()
			facts.Node.StartedAt, facts.FiredAt = now.At.Add(-time.Hour), now.At.Add(-time.Hour)
			facts.Pod.StartedAt, facts.Pod.Container.StartedAt = facts.FiredAt, facts.FiredAt
			if remedy.Decide(enforced(kind), &m.ledger, facts, now.At).Verdict != remedy.Do {
				return
			}
			object := kind.Subject(facts.Object)
			outcome := rapid.SampledFrom([]remedy.Outcome{remedy.Helped, remedy.NotHelped, remedy.Done, remedy.Failed, remedy.Unknown}).Draw(t, "outcome")
			m.ledger.Apply(remedy.Ledger{Entries: []remedy.Entry{{ID: m.ledger.LastID + 1, Type: kind, Object: object, Instant: now, Outcome: outcome}}})
			m.deeds = append(m.deeds, deed{m.now, object, kind})
		}
		t.Repeat(map[string]func(*rapid.T){
			"wait":              func(t *rapid.T) { m.now += time.Duration(minutes.Draw(t, "minutes")) * time.Minute },
			"restart container": func(t *rapid.T) { act(t, remedy.RestartContainer) },
			"restart pod":       func(t *rapid.T) { act(t, remedy.RestartPod) },
			"prune":             func(*rapid.T) { m.ledger.Prune(m.instant().At) },
			"restart of the agent, the clock is set": func(t *rapid.T) {
				m.wall += time.Duration(rapid.IntRange(-5000, 5000).Draw(t, "minutes")) * time.Minute
				m.restart(t, time.Duration(minutes.Draw(t, "down"))*time.Minute)
			},
			"reboot, the clock is behind": func(t *rapid.T) {
				// What the clock was set by before is in the entries, too: the agent has run since.
				m.restart(t, 0)
				m.wall -= time.Duration(rapid.IntRange(0, 5000).Draw(t, "minutes")) * time.Minute
				m.boot++
				m.bootedAt = m.now
				m.restart(t, time.Duration(minutes.Draw(t, "down"))*time.Minute)
			},
			"": func(t *rapid.T) { m.check(t) },
		})
	})
}

// check compares the deeds with the limits.
func (m *clockModel) check(t *rapid.T) {
	for i, last := range m.deeds {
		inHour, inTen := 0, 0
		coolDown := map[remedy.Type]time.Duration{remedy.RestartContainer: 10 * time.Minute, remedy.RestartPod: 30 * time.Minute}[last.kind]
		for j, earlier := range m.deeds[:i+1] {
			age := last.at - earlier.at
			if j < i && earlier.kind == last.kind && earlier.object == last.object && age < coolDown {
				t.Fatalf("got %v after %v", last, earlier)
			}
			if age < 10*time.Minute {
				inTen++
			}
			if earlier.kind == last.kind && earlier.object == last.object && age < time.Hour {
				inHour++
			}
		}
		most := map[remedy.Type]int{remedy.RestartContainer: 3, remedy.RestartPod: 2}[last.kind]
		if inHour > most || inTen > 4 {
			t.Fatalf("got %d of %v within an hour, and %d deeds within 10 minutes", inHour, last, inTen)
		}
	}
}

// FuzzR3_Protected checks that no policy allows what is done to a protected pod.
func FuzzR3_Protected(f *testing.F) {
	for _, kind := range remedy.Types() {
		f.Add(string(kind), 3, int64(time.Hour), int64(0), int64(0), "shop/other", "x", int32(2_000_000_000), false, false)
		f.Add(string(kind), 1<<30, int64(1), int64(-1), int64(1), "kube-system/*,*/*,kube-system/", "", int32(0), true, false)
		f.Add(string(kind), 0, int64(0), int64(0), int64(0), "kube-system/web", "x", int32(0), false, true)
	}
	f.Fuzz(func(t *testing.T, kind string, most int, per, coolDown, within int64, pods, target string, priority int32, static, optedOut bool) {
		policy := remedy.Policy{
			Type: remedy.Type(kind), Enforce: true, Max: most, Per: time.Duration(per), CoolDown: time.Duration(coolDown),
			ResolvedWithin: time.Duration(within), Pods: strings.Split(pods, ","), Target: target,
		}
		facts := newFacts()
		facts.Object.Namespace = "kube-system"
		facts.Pod.Priority, facts.Pod.Static, facts.Pod.OptedOut = priority, static, optedOut
		got := remedy.Decide(policy, &remedy.Ledger{}, facts, start)
		if got.Verdict == remedy.Refuse {
			return
		}
		isNamed := false
		for _, pod := range policy.Pods {
			isNamed = isNamed || pod == "kube-system/web"
		}
		if optedOut || policy.Type.IsDisruptive() && (static || priority >= 2_000_000_000) && !isNamed {
			t.Fatalf("got %+v for %+v, want a refusal", got, policy)
		}
	})
}
