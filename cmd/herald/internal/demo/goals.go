package demo

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// goals are what the pods should come to, in this order for each. The node's name is appended to a static pod's.
var goals = map[string][]goal{
	"web":   {{"becomes ready", isReady}, {"is not ready for a while", isRunningUnready}, {"is ready again", isReady}},
	"slow":  {{"runs without being ready", isRunningUnready}, {"becomes ready, behind its startup probe", isReady}},
	"job":   {{"runs", isRunning}, {"completes", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded }}},
	"crash": {{"backs off after a crash", isCrashLooping}},
}

type goal struct {
	text    string
	reached func(*v1.Pod) bool
}

func isRunning(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning }

func isReady(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

func isRunningUnready(p *v1.Pod) bool { return isRunning(p) && !isReady(p) }

func isCrashLooping(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
	})
}

// progress is how far each pod has come.
type progress map[string]int

func (r progress) see(p *v1.Pod) {
	for name, wanted := range goals {
		if at := r[name]; p.Name == name+"-"+nodeName && at < len(wanted) && wanted[at].reached(p) {
			r[name]++
		}
	}
}

// missing lists what has not happened yet.
func (r progress) missing() []string {
	var missing []string
	for name, wanted := range goals {
		for _, g := range wanted[r[name]:] {
			missing = append(missing, fmt.Sprintf("%s %s", name, g.text))
		}
	}
	slices.Sort(missing)
	return missing
}
