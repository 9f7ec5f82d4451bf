package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// watcher turns what changed since it last looked into lines. Looks are so close to each other that little is missed, and
// always at moments when everybody waits for something: what it sees does not depend on who was scheduled first.
type watcher struct {
	began     time.Time
	timeless  bool // the clock is left out, for what is spread over time at random
	seen      map[podid.FullName]sighting
	runtime   int // how much of the engine's transcript was told
	lines     []line
	heard     []string // events since the last look
	fromAgent string   // where statuses come from when there is no API server to look at
}

// line is one thing that happened to one pod.
type line struct{ at, who, pod, what string }

func (l line) String() string { return fmt.Sprintf("%8s  %-7s  %s", l.at, l.who, l.what) }

// told are the lines since the last call. What is spread over time at random comes pod by pod.
func (w *watcher) told() []string {
	if w.timeless {
		slices.SortStableFunc(w.lines, func(a, b line) int { return strings.Compare(a.pod, b.pod) })
	}
	told := make([]string, 0, len(w.lines))
	for _, l := range w.lines {
		told = append(told, l.String())
	}
	w.lines = nil
	return told
}

// sighting is what was last seen of a pod.
type sighting struct {
	uid        types.UID
	line       string
	conditions map[v1.PodConditionType]v1.ConditionStatus
	start      *metav1.Time
	message    string
}

// look adds a line for each change. Of what happens at one moment, the runtime comes first, then pods by name, then events.
func (w *watcher) look(transcript []string, pods []*v1.Pod) {
	for _, deed := range settled(transcript[w.runtime:]) {
		w.tell("runtime", podOf(deed), deed)
	}
	w.runtime = len(transcript)
	here := map[podid.FullName]bool{}
	for _, p := range pods {
		here[podid.FullNameOf(p)] = true
	}
	for _, name := range sortedNames(w.seen) {
		if !here[name] {
			w.tell(w.place(), name.Name, name.Name+" is gone")
			delete(w.seen, name)
		}
	}
	for _, p := range pods {
		w.lookAt(p)
	}
	slices.Sort(w.heard)
	for _, event := range slices.Compact(w.heard) {
		w.tell("event", strings.Fields(event)[0], event)
	}
	w.heard = nil
}

func (w *watcher) place() string {
	if w.fromAgent != "" {
		return w.fromAgent
	}
	return "api"
}

func (w *watcher) tell(who, pod, what string) {
	at := ""
	if !w.timeless {
		at = fmt.Sprintf("%.1fs", time.Since(w.began).Truncate(time.Second/10).Seconds())
	}
	w.lines = append(w.lines, line{at, who, pod, what})
}

// isHalfTold reports whether all of the pod has stopped and its end is about to be told: a look may find it so or not.
func isHalfTold(p *v1.Pod) bool {
	if p.Status.Phase != v1.PodRunning || podid.IsMirror(p) || len(p.Status.ContainerStatuses) == 0 {
		return false
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated == nil {
			return false
		}
	}
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReadyToStartContainers && c.Status == v1.ConditionFalse
	})
}

func (w *watcher) lookAt(p *v1.Pod) {
	name := podid.FullNameOf(p)
	before := w.seen[name]
	if isHalfTold(p) && before.uid == p.UID {
		return
	}
	if before.uid != "" && before.uid != p.UID {
		w.tell(w.place(), name.Name, name.Name+" is another pod now")
		before = sighting{}
	}
	now := sighting{
		uid: p.UID, line: describe(p), conditions: map[v1.PodConditionType]v1.ConditionStatus{}, start: p.Status.StartTime,
		message: p.Status.Message,
	}
	line := now.line
	if !now.start.Equal(before.start) {
		line += fmt.Sprintf(", since %.0fs", now.start.Sub(w.began).Seconds())
	}
	for _, c := range p.Status.Conditions {
		now.conditions[c.Type] = c.Status
		if before.conditions[c.Type] != c.Status {
			line += turned(c)
		}
	}
	for kind := range before.conditions {
		if _, still := now.conditions[kind]; !still {
			line += " without " + string(kind)
		}
	}
	if now.message != before.message && now.message != "" {
		line += fmt.Sprintf(" %q", now.message)
	}
	if line != before.line {
		w.tell(w.place(), name.Name, name.Name+": "+line)
	}
	w.seen[name] = now
}

func turned(c v1.PodCondition) string {
	sign := map[v1.ConditionStatus]string{v1.ConditionTrue: " +", v1.ConditionFalse: " -"}[c.Status]
	return sign + string(c.Type)
}

// settled puts stops that happen at once, which are made side by side, in an order of their own.
func settled(deeds []string) []string {
	deeds = slices.Clone(deeds)
	for from := 0; from < len(deeds); {
		to := from
		for to < len(deeds) && strings.HasPrefix(deeds[to], "stop ") && !strings.HasPrefix(deeds[to], "stop sandbox") {
			to++
		}
		slices.Sort(deeds[from:to])
		from = to + 1
	}
	return deeds
}

// podOf is the pod that a deed of the runtime is about: "stop web_shop/main".
func podOf(deed string) string {
	for word := range strings.FieldsSeq(deed) {
		if name, _, found := strings.Cut(word, "_"); found {
			return name
		}
	}
	return ""
}

func sortedNames(seen map[podid.FullName]sighting) []podid.FullName {
	names := make([]podid.FullName, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b podid.FullName) int { return strings.Compare(a.String(), b.String()) })
	return names
}
