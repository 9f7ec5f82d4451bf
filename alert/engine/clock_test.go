package engine_test

import (
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/engine"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/view"
)

// clock is one with a monotonic reading that can be set, as that of a machine.
type clock struct {
	begin  time.Time
	passed time.Duration
	set    time.Duration // multiple of a second
}

func newClock() *clock { return &clock{begin: time.Now()} }

// now returns the time. The package time has no way to set only the wall clock of a Time; in its first word, the seconds begin at bit 30.
func (c *clock) now() time.Time {
	now := c.begin.Add(c.passed)
	*(*uint64)(unsafe.Pointer(&now)) += uint64(c.set/time.Second) << 30
	return now
}

func TestClockFixture(t *testing.T) {
	c := newClock()
	before := c.now()
	c.passed, c.set = time.Minute, -time.Hour
	now := c.now()
	if got := now.Sub(before); got != time.Minute {
		t.Errorf("got %s by the monotonic clock", got)
	}
	if got := now.Round(0).Sub(before.Round(0)); got != time.Minute-time.Hour {
		t.Errorf("got %s by the wall clock", got)
	}
}

// TestClockSet checks that setting the clock changes no duration of this run, and that new times are those of the new clock.
func TestClockSet(t *testing.T) {
	for name, jump := range map[string]time.Duration{"forward": 3 * time.Hour, "back": -3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			s := newSimulationAt(t, parseRules(t, notReadyRule+oomRule), engine.Config{}, c.now())
			s.status(c.now(), "web", nil)
			s.status(c.now(), "web", ready(false))
			s.status(c.now(), "web", end("OOMKilled"))
			s.edges = nil
			c.passed, c.set = time.Minute, jump
			s.engine.NodeEvent(engine.KindClock, c.now())
			s.take()
			if len(s.edges) > 0 {
				t.Fatalf("the jump changed %v", s.edges)
			}
			for c.passed < 12*time.Minute {
				c.passed += time.Second
				s.advance(c.now())
				want := map[time.Duration]int{5 * time.Minute: 1, 10 * time.Minute: 2}
				if count, found := want[c.passed]; found && len(s.edges) != count {
					t.Fatalf("after %s: got %d edges, want %d", c.passed, len(s.edges), count)
				}
			}
			if len(s.edges) != 2 {
				t.Fatalf("got %d edges", len(s.edges))
			}
			fired := s.edges[0].Alert
			if want := c.begin.Round(0).Add(5*time.Minute + jump); fired.State != alert.Firing || !fired.StartsAt.Round(0).Equal(want) {
				t.Errorf("got %s at %s, want firing at %s of the new clock", fired.State, fired.StartsAt, want)
			}
		})
	}
}

// TestClockSet_Silence checks that a silence ends by the wall clock.
func TestClockSet_Silence(t *testing.T) {
	c := newClock()
	s := newSimulationAt(t, parseRules(t, "- alert: NotReady\n  on: pod\n  expr: '!pod.ready'"), engine.Config{}, c.now())
	s.status(c.now(), "web", ready(false))
	s.engine.AddSilence(silence(t, "a", `pod="web"`, c.now(), c.now().Add(time.Hour)))
	s.advance(c.now())
	c.passed, c.set = time.Minute, 2*time.Hour
	s.engine.NodeEvent(engine.KindClock, c.now())
	s.take()
	if got := s.engine.Silences(); len(got) != 0 {
		t.Errorf("got %v after its end", got)
	}
	s.engine.AddSilence(silence(t, "b", `pod="web"`, c.now(), c.now().Add(time.Hour)))
	s.advance(c.now())
	c.passed, c.set = 3*time.Minute, 90*time.Minute // back by half an hour
	s.engine.NodeEvent(engine.KindClock, c.now())
	c.passed += 80 * time.Minute
	s.advance(c.now())
	if got := s.engine.Silences(); len(got) != 1 {
		t.Error("the silence ended early")
	}
	c.passed += 9 * time.Minute
	s.advance(c.now())
	if got := s.engine.Silences(); len(got) != 0 {
		t.Errorf("got %v after its end", got)
	}
}

// TestClockSet_Older checks that what depends on the age of a pod is looked at after the clock was set.
func TestClockSet_Older(t *testing.T) {
	c := newClock()
	s := newSimulationAt(t, parseRules(t, "- alert: Old\n  on: pod\n  expr: older(pod, '1h')"), engine.Config{}, c.now())
	pod := &simulatedPod{uid: "web", name: "web", status: running()}
	created := pod.view()
	created.Metadata.CreationTimestamp = view.NewTime(c.now())
	s.engine.PodChanged(engine.PodChange{UID: "web", View: created, Trigger: rule.OnStatus, At: c.now()})
	if next := s.engine.Next(); !strings.Contains(next.String(), " m=") || next.Sub(c.now()) > time.Hour {
		t.Errorf("got the next instant %s", next)
	}
	c.passed, c.set = time.Minute, 2*time.Hour
	s.engine.NodeEvent(engine.KindClock, c.now())
	s.take()
	if len(s.edges) != 1 || s.edges[0].Alert.State != alert.Firing {
		t.Errorf("got %v, want firing", s.edges)
	}
}
