package state_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/state"
)

var start = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

// run plays answers: "0s true", "1m false", "2m unknown", "3m resolve", "9m" for time alone. It returns the states that were reached with
// their instants.
func run(timing state.Timing, script ...string) (state.Instance, []string) {
	var i state.Instance
	var seen []string
	set := func(next state.Instance, at time.Time) {
		if next.State != i.State {
			seen = append(seen, fmt.Sprintf("%s %s", at.Sub(start), cmpOr(string(next.State), "inactive")))
		}
		i = next
	}
	for _, line := range script {
		offset, answer, _ := strings.Cut(line, " ")
		duration, err := time.ParseDuration(offset)
		if err != nil {
			panic(err)
		}
		at := start.Add(duration)
		for {
			due := i.Due(timing)
			next, changed := i.Elapse(timing, at)
			if !changed {
				break
			}
			set(next, due)
		}
		switch answer {
		case "true":
			set(i.True(timing, at), at)
		case "false":
			set(i.False(timing, at, ""), at)
		case "unknown":
			set(i.Unknown(at, "runtime"), at)
		case "resolve":
			set(i.Resolve(at, "rule removed"), at)
		}
	}
	return i, seen
}

func cmpOr(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

func TestInstance(t *testing.T) {
	m := time.Minute
	tests := map[string]struct {
		timing state.Timing
		script []string
		want   []string
	}{
		"fires at once and resolves": {
			script: []string{"0s true", "3ms false", "20m"},
			want:   []string{"0s firing", "3ms resolved", "15m0.003s inactive"},
		},
		"for": {
			timing: state.Timing{For: 5 * m},
			script: []string{"0s true", "1m true", "6m false"},
			want:   []string{"0s pending", "5m0s firing", "6m0s resolved"},
		},
		"for is not reached": {
			timing: state.Timing{For: 5 * m},
			script: []string{"0s true", "4m59s false", "10m"},
			want:   []string{"0s pending", "4m59s inactive"},
		},
		"true again while recovering": {
			timing: state.Timing{Keep: 10 * m},
			script: []string{"0s true", "1m false", "5m true", "6m false", "20m"},
			want:   []string{"0s firing", "1m0s recovering", "5m0s firing", "6m0s recovering", "16m0s resolved"},
		},
		"unknown stops the clock of for": {
			timing: state.Timing{For: 5 * m},
			script: []string{"0s true", "2m unknown", "1h unknown", "1h true", "1h4m"},
			want:   []string{"0s pending", "1h3m0s firing"},
		},
		"unknown stops the clock of keep": {
			timing: state.Timing{Keep: 5 * m},
			script: []string{"0s true", "1m false", "2m unknown", "1h false", "1h5m"},
			want:   []string{"0s firing", "1m0s recovering", "1h4m0s resolved"},
		},
		"unknown stops the clock of the memory": {
			script: []string{"0s true", "0s false", "5m unknown", "1h false", "2h"},
			want:   []string{"0s firing", "0s resolved", "1h10m0s inactive"},
		},
		"unknown resolves nothing": {
			script: []string{"0s true", "1m unknown", "24h unknown"},
			want:   []string{"0s firing"},
		},
		"unknown starts nothing": {
			script: []string{"0s unknown", "1h"},
		},
		"removed while unknown": {
			timing: state.Timing{Keep: 5 * m},
			script: []string{"0s true", "1m unknown", "2m resolve"},
			want:   []string{"0s firing", "2m0s resolved"},
		},
		"pending after resolved is resolved again": {
			timing: state.Timing{For: 3 * m},
			script: []string{"0s true", "3m false", "4m true", "5m false", "18m"},
			want:   []string{"0s pending", "3m0s firing", "3m0s resolved", "4m0s pending", "5m0s resolved", "18m0s inactive"},
		},
		"pending after resolved for longer than the memory": {
			timing: state.Timing{For: time.Hour},
			script: []string{"0s true", "1h false", "61m true", "80m false"},
			want:   []string{"0s pending", "1h0m0s firing", "1h0m0s resolved", "1h1m0s pending", "1h20m0s inactive"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, got := run(test.timing, test.script...); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestInstance_Flaps(t *testing.T) {
	first, _ := run(state.Timing{}, "0s true", "1m false")
	again, _ := run(state.Timing{}, "0s true", "1m false", "5m59s true")
	if again.Episode != first.Episode || !again.StartsAt.Equal(start) || again.Flaps != 1 || !again.EndsAt.IsZero() {
		t.Errorf("got %+v, want the same episode with a flap", again)
	}
	later, _ := run(state.Timing{}, "0s true", "1m false", "6m true")
	if later.Episode == first.Episode || !later.StartsAt.Equal(start.Add(6*time.Minute)) || later.Flaps != 0 {
		t.Errorf("got %+v, want another episode", later)
	}
	forgotten, _ := run(state.Timing{}, "0s true", "1m false", "20m", "20m true")
	if forgotten.Episode == first.Episode || forgotten.Episode == later.Episode {
		t.Errorf("got %+v, want an episode that is not %d", forgotten, first.Episode)
	}
	if _, states := run(state.Timing{}, "0s true", "1m false", "2m true", "3m false", "9m"); !slices.Equal(states,
		[]string{"0s firing", "1m0s resolved", "2m0s firing", "3m0s recovering", "8m0s resolved"}) {
		t.Errorf("got %q, want a recovery of 5 minutes after a flap", states)
	}
}

// TestInstance_ClockSetBack checks that the number of an episode rises although the clock does not.
func TestInstance_ClockSetBack(t *testing.T) {
	i := state.Instance{}.True(state.Timing{}, start).False(state.Timing{}, start.Add(time.Minute), "")
	again := i.True(state.Timing{}, start.Add(-time.Hour))
	if again.Flaps != 1 { // it ended less than five minutes ago
		t.Errorf("got %+v", again)
	}
	i.EndsAt = start.Add(-2 * time.Hour)
	if again = i.True(state.Timing{}, start.Add(-time.Hour)); again.Episode <= i.Episode {
		t.Errorf("got episode %d after %d", again.Episode, i.Episode)
	}
}

// TestInstance_FlappingIsBounded checks with random answers that an alert is told at most twice in five minutes, but for its first flap.
func TestInstance_FlappingIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		timing := state.Timing{Keep: time.Duration(rapid.IntRange(0, 400).Draw(t, "keep")) * time.Second}
		var i state.Instance
		var told []time.Time
		at := start
		set := func(next state.Instance, at time.Time) {
			isTold := func(s alert.State) bool { return s == alert.Firing || s == alert.Recovering }
			if isTold(next.State) != isTold(i.State) && (next.State != "" || i.State == alert.Resolved) {
				told = append(told, at)
			}
			i = next
		}
		for range rapid.IntRange(10, 200).Draw(t, "steps") {
			at = at.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "wait")) * time.Second)
			for {
				due := i.Due(timing)
				next, changed := i.Elapse(timing, at)
				if !changed {
					break
				}
				set(next, due)
			}
			if rapid.Bool().Draw(t, "answer") {
				set(i.True(timing, at), at)
			} else {
				set(i.False(timing, at, ""), at)
			}
		}
		for k := 4; k < len(told); k++ {
			if told[k].Sub(told[k-4]) < 5*time.Minute {
				t.Fatalf("told 5 times from %s to %s", told[k-4].Sub(start), told[k].Sub(start))
			}
		}
	})
}

func TestInstance_ForLengthened(t *testing.T) {
	before, after := state.Timing{For: time.Minute}, state.Timing{For: 10 * time.Minute}
	i, _ := run(before, "0s true", "2m true")
	at := start.Add(3 * time.Minute)
	if !i.MustWaitAgain(before, after, at) || i.MustWaitAgain(before, before, at) || i.MustWaitAgain(before, after, start.Add(10*time.Minute)) {
		t.Error("wrong answer")
	}
	i = i.Resolve(at, "").WaitAgain()
	if due := i.Due(after); i.State != alert.Pending || !i.ActiveAt.Equal(start) || !due.Equal(start.Add(10*time.Minute)) {
		t.Errorf("got %+v, due at %s", i, due)
	}
	i = i.Retime(before, at) // shortened again
	if due := i.Due(before); !due.Equal(at) {
		t.Errorf("got due at %s, want now", due)
	}
}

func TestInstance_RebaseClampsFuture(t *testing.T) {
	i, _ := run(state.Timing{For: time.Minute}, "0s true")
	if got := i.Rebase(start.Add(-time.Hour)); !got.ActiveAt.Equal(start.Add(-time.Hour)) || !got.Due(state.Timing{For: time.Minute}).Equal(start.Add(-59*time.Minute)) {
		t.Errorf("got %+v", got)
	}
	now := time.Now()
	got := state.Instance{State: alert.Pending, Since: now.Add(-time.Second).Round(0)}.Rebase(now)
	if !strings.Contains(got.Since.String(), " m=") || !got.Since.Equal(now.Add(-time.Second)) {
		t.Errorf("got %s, want a time with a monotonic reading", got.Since)
	}
}
