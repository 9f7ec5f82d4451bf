// Package handover_test lets a node change hands: the real kubelet runs pods, stops, Herald takes over, and hands the node back.
// Users must not notice: containers keep running, volumes keep their files, and statuses do not change.
package handover_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHandover(t *testing.T) {
	n := newNode(t)
	n.start(n.kubelet)
	for _, pod := range staticPods() {
		n.writeManifest(pod)
	}
	for _, pod := range apiPods() {
		n.create(pod)
	}
	names := n.awaitPods(append(apiPods(), staticPods()...)...)
	n.herald = n.newHerald()
	n.restartContainer("crashed")
	n.writeScratchFiles("kubelet", "scratch", "web-3", "user", "crashed", deletedByHerald)

	t.Run("to Herald", func(t *testing.T) {
		n.handOver(t, n.kubelet, n.herald, names)
		n.requireScratchFiles(t, "kubelet", "scratch", "web-3", "user", "crashed")
		n.restartAndCheck(t, "kubelet", "scratch", "web-3", "user", "crashed")
		n.deleteAndCheck(t, deletedByHerald)
	})
	byHerald := []*v1.Pod{newPod("by-herald", scratch, files, probed), newPod("by-herald-initialized", initialized)}
	for _, pod := range byHerald {
		n.create(pod)
	}
	names = append(without(names, deletedByHerald), n.awaitPods(byHerald...)...)
	n.writeScratchFiles("herald", "by-herald")
	n.awaitAge(names)

	t.Run("back to the kubelet", func(t *testing.T) {
		n.handOver(t, n.herald, n.kubelet, names)
		n.requireScratchFiles(t, "kubelet", "scratch", "web-3", "user", "crashed")
		n.requireScratchFiles(t, "herald", "by-herald")
		n.restartAndCheck(t, "herald", "by-herald")
		n.restartAndCheck(t, "kubelet", "scratch")
		n.deleteAndCheck(t, deletedByKubelet, "by-herald")
	})
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(other string) bool { return other == name })
}

// observation is how long a pod is watched after the new agent has synced it: longer than relists and probes take.
const observation = 4 * time.Second

// handOver stops one agent, starts the other, and fails the test if a pod has changed.
func (n *node) handOver(t *testing.T, from, to *agent, names []string) {
	t.Helper()
	n.awaitQuiet()
	n.stop(from)
	before, tokens, versions := n.snapshot(names), n.tokens(names), n.versionCounts(names)
	n.start(to)
	n.awaitNewTokens(t, names, tokens)
	time.Sleep(observation)
	after := n.snapshot(names)
	for _, name := range names {
		problems := before[name].compare(after[name])
		all := n.Versions(name)
		for _, version := range all[min(versions[name], len(all)):] {
			status := &version.Status
			if to == n.kubelet {
				status = ignoreKubelet(before[name].pod, status)
			}
			problems = append(problems, compareStatus(&before[name].pod.Status, status)...)
		}
		if len(problems) > 0 {
			t.Errorf("pod %s changed hands and changed:\n%s\nhistory:\n%s", name, lines(problems), n.History(name))
		}
	}
	if t.Failed() {
		t.Logf("log of %s:\n%s", to.name, to.LogTail())
	}
	t.Logf("%s %s runs the node", time.Now().Format(time.TimeOnly), to.name)
}

// restartAndCheck ends the main container of each pod. The next one must find the files of the last one, and both logs remain.
func (n *node) restartAndCheck(t *testing.T, author string, names ...string) {
	t.Helper()
	for _, name := range names {
		before := n.latest(name)
		n.restartContainer(name)
		after := n.latest(name)
		if got, want := n.sandboxes(after), n.sandboxes(before); !slices.Equal(got, want) {
			t.Errorf("pod %s: sandboxes were %v, are %v", name, want, got)
		}
		restarts := after.Status.ContainerStatuses[0].RestartCount
		n.awaitLog(t, after, restarts-1)
		n.awaitLog(t, after, restarts)
	}
	n.requireScratchFiles(t, author, names...)
	t.Logf("%s restarted %v", time.Now().Format(time.TimeOnly), names)
}

// deleteAndCheck deletes pods and waits until nothing of them is left on the machine.
func (n *node) deleteAndCheck(t *testing.T, names ...string) {
	t.Helper()
	var pods []*v1.Pod
	for _, name := range names {
		pods = append(pods, n.latest(name))
		if err := n.Admin.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, pod := range pods {
		n.AwaitDeleted(pod.Name)
		n.awaitGone(t, pod)
		t.Logf("%s pod %s is gone", time.Now().Format(time.TimeOnly), pod.Name)
	}
}

// scratchFiles returns the files that writeScratchFiles writes, with their text.
func scratchFiles(author string) map[string]string {
	result := map[string]string{}
	for _, dir := range []string{"/disk", "/memory", "/disk-sub", "/memory-sub"} {
		result[dir+"/by-"+author] = author + " in " + dir
	}
	return result
}

// writeScratchFiles writes to the volumes of the pods, in their containers.
func (n *node) writeScratchFiles(author string, names ...string) {
	n.t.Helper()
	for _, name := range names {
		for file, text := range scratchFiles(author) {
			if _, err := n.exec(n.latest(name), "note", file, text); err != nil {
				n.t.Fatal(err)
			}
		}
	}
}

func (n *node) requireScratchFiles(t *testing.T, author string, names ...string) {
	t.Helper()
	for _, name := range names {
		want := scratchFiles(author)
		for _, file := range slices.Sorted(maps.Keys(want)) {
			if got, err := n.exec(n.latest(name), "cat", file); err != nil || got != want[file]+"\n" {
				t.Errorf("pod %s: got %q in %s, %v, want %q", name, got, file, err, want[file])
			}
		}
	}
}

// isSettled reports whether the pod has the state that it keeps.
func isSettled(pod *v1.Pod) bool {
	switch pod.Status.Phase {
	case v1.PodSucceeded, v1.PodFailed:
		return true
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == v1.PodReady {
			return condition.Status == v1.ConditionTrue
		}
	}
	return false
}

func lines(problems []string) (text string) {
	for _, problem := range problems {
		text += fmt.Sprintln(problem)
	}
	return text
}
