package source_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

func TestStates_Health(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.File, podid.HTTP)
		file := m.sinks[podid.File]
		want := func(health source.Health, pods int, lastChange time.Time) {
			t.Helper()
			states := m.mux.States()
			if len(states) != 2 || states[0].Name != podid.File || states[1].Name != podid.HTTP || states[1].Health != source.HealthWaiting {
				t.Fatalf("got %+v, want the sources in order, the second one waiting", states)
			}
			if got := states[0]; got.Health != health || got.Pods != pods || !got.LastChange.Equal(lastChange) {
				t.Fatalf("got %s, %d pods, last change %v, want %s, %d, %v", got.Health, got.Pods, got.LastChange, health, pods, lastChange)
			}
		}
		want(source.HealthWaiting, 0, time.Time{})
		time.Sleep(time.Second)
		complete := time.Now()
		file.Replace(nil)
		want(source.HealthOK, 0, complete)
		time.Sleep(time.Second)
		changed := time.Now()
		web := newPod("web", "u1")
		file.Replace([]*v1.Pod{web})
		want(source.HealthOK, 1, changed)
		time.Sleep(time.Second)
		file.Replace([]*v1.Pod{web}) // unchanged
		file.Report([]source.Problem{{Location: "/m/a.yaml", Message: "unknown field"}})
		want(source.HealthError, 1, changed)
		if problems := m.mux.States()[0].Problems; len(problems) != 1 || !problems[0].Since.Equal(time.Now()) {
			t.Fatalf("got problems %+v, want one since now", problems)
		}
		file.Report(nil)
		want(source.HealthOK, 1, changed)
		m.receiveUpdates()
	})
}

func TestStates_LastGood(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/web.yaml", "web 1")
	write(t, dir+"/two.yaml", "a 1\nb 1")
	write(t, dir+"/new.yaml", "bad")
	write(t, dir+"/web.yaml.bak", "web 0")
	begin := time.Now()
	mux, err := source.NewMux(source.MuxConfig{Sources: []source.Source{newFile(t, dir)}})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for update := range mux.Updates() {
			update.Ack()
		}
	}()
	var running sync.WaitGroup
	running.Go(func() { _ = mux.Run(t.Context()) })
	t.Cleanup(running.Wait)
	state := waitState(t, mux, func(s source.State) bool { return s.Pods == 3 && len(s.Problems) == 1 })
	if state.Origin != dir || state.Health != source.HealthError || !state.Problems[0].LastGood.IsZero() || state.Problems[0].Line != 1 {
		t.Fatalf("got %+v, want the path and a problem without an earlier version", state)
	}
	if len(state.Ignored) != 1 || state.Ignored[0] != (source.IgnoredFile{Path: dir + "/web.yaml.bak", Reason: "backup"}) {
		t.Fatalf("got ignored %v", state.Ignored)
	}
	write(t, dir+"/web.yaml", "bad")
	write(t, dir+"/two.yaml", "bad")
	state = waitState(t, mux, func(s source.State) bool { return len(s.Problems) == 3 })
	for _, problem := range state.Problems {
		isNew, isWeb := strings.HasSuffix(problem.Location, "new.yaml"), strings.HasSuffix(problem.Location, "web.yaml")
		if isNew != problem.LastGood.IsZero() || (!isNew && problem.LastGood.Before(begin)) {
			t.Errorf("%s: got last good version of %v", problem, problem.LastGood)
		}
		if isWeb != (problem.Pod.Name == "web") {
			t.Errorf("%s: got pod %q", problem, problem.Pod)
		}
	}
	if state.Pods != 3 {
		t.Errorf("got %d pods, want those of the last good versions", state.Pods)
	}
}

// waitState returns the state of the only source once it matches.
func waitState(t *testing.T, mux *source.Mux, match func(source.State) bool) source.State {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		state := mux.States()[0]
		if match(state) {
			return state
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out: got %+v", state)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestMux_OnProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		m := newMuxHarness(t, func(c *source.MuxConfig) {
			c.OnProblem = func(problem source.Problem, resolved bool) {
				if problem.Since.IsZero() {
					t.Errorf("%s: got no time", problem)
				}
				got = append(got, problem.String()+map[bool]string{true: " resolved"}[resolved])
			}
		}, podid.File)
		file := m.sinks[podid.File]
		for range 2 {
			file.Report([]source.Problem{{Location: "a", Message: "bad"}})
		}
		file.Report(nil)
		synctest.Wait()
		if want := "a: bad|a: bad resolved"; strings.Join(got, "|") != want {
			t.Fatalf("got %q, want %q", strings.Join(got, "|"), want)
		}
	})
}
