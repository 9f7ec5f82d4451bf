package source

import (
	"time"

	"github.com/heraldnode/herald/podid"
)

// Health says whether a source can be used.
type Health string

// The values.
const (
	HealthOK      Health = "ok"
	HealthWaiting Health = "waiting" // the source has not reported its pods yet
	HealthError   Health = "error"   // the source has problems
)

// State is the state of a source.
type State struct {
	Name podid.Source
	// Origin is the path, the URL without secrets, or the API server. Empty if the source does not name it.
	Origin string
	Health Health
	// Pods is the number of pods that the source has. Of two with the same name, only one runs.
	Pods int
	// LastChange is when the set of pods was first complete, or last changed. Zero if neither.
	LastChange time.Time
	// Problems holds the current problems, sorted by location and line.
	Problems []Problem
	// Ignored holds the files of a directory that are not read.
	Ignored []IgnoredFile
}

// States returns the state of each source, in the order of MuxConfig.Sources.
func (m *Mux) States() []State {
	problems := map[podid.Source][]Problem{}
	for _, problem := range m.problems.list() {
		problems[problem.Source] = append(problems[problem.Source], problem)
	}
	states := make([]State, len(m.sources))
	for i, source := range m.sources {
		state := &states[i]
		state.Name, state.Problems = source.Name(), problems[source.Name()]
		if named, ok := source.(interface{ Origin() string }); ok {
			state.Origin = named.Origin()
		}
		if directory, ok := source.(interface{ Ignored() []IgnoredFile }); ok {
			state.Ignored = directory.Ignored()
		}
		var complete bool
		state.Pods, state.LastChange, complete = m.states[i].summary()
		switch {
		case len(state.Problems) > 0:
			state.Health = HealthError
		case complete:
			state.Health = HealthOK
		default:
			state.Health = HealthWaiting
		}
	}
	return states
}

// summary returns the number of pods, when the set last changed, and whether it is complete.
func (s *sourceState) summary() (pods int, changedAt time.Time, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.desired), s.changedAt, s.complete
}
