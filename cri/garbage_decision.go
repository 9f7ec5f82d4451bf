package cri

import (
	"time"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// settling is how long what is new is left alone: whoever makes it may not have said so yet.
const settling = time.Minute

// garbage is what may be removed, containers before the sandboxes that they are in.
type garbage struct {
	containers []deadContainer
	sandboxes  []observed.Sandbox
}

type deadContainer struct {
	observed.Container
	pod *observed.Pod
}

// findGarbage decides what of the pods is of no more use, as the kubelet does by default: of a pod that is wanted stay the
// newest ended instance of each container, which is its last state, and the newest sandbox; of any other, nothing. What
// runs, or is new, is never garbage.
func findGarbage(pods []*observed.Pod, wanted func(podid.UID) bool, now time.Time) garbage {
	var found garbage
	for _, pod := range pods {
		if wanted(pod.UID) {
			found.addSurplus(pod)
		} else {
			found.addAll(pod, now.Add(-settling))
		}
	}
	return found
}

// addSurplus leaves alone what was made and never ran: whoever starts the container will see to it.
func (g *garbage) addSurplus(pod *observed.Pod) {
	kept, occupied := map[string]bool{}, map[string]bool{}
	for _, c := range pod.Containers { // newest first
		if c.State == observed.Exited && kept[c.Name] {
			g.containers = append(g.containers, deadContainer{c, pod})
			continue
		}
		kept[c.Name] = kept[c.Name] || c.State == observed.Exited
		occupied[c.SandboxID] = true
	}
	for i, s := range pod.Sandboxes { // newest first
		if i > 0 && !s.Ready && !occupied[s.ID] {
			g.sandboxes = append(g.sandboxes, s)
		}
	}
}

func (g *garbage) addAll(pod *observed.Pod, before time.Time) {
	occupied := map[string]bool{}
	for _, c := range pod.Containers {
		if c.State == observed.Running || c.CreatedAt.After(before) {
			occupied[c.SandboxID] = true
			continue
		}
		g.containers = append(g.containers, deadContainer{c, pod})
	}
	for _, s := range pod.Sandboxes {
		if !s.Ready && !occupied[s.ID] && !s.CreatedAt.After(before) {
			g.sandboxes = append(g.sandboxes, s)
		}
	}
}
