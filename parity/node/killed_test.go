package node_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// victim is what is killed while pods start, run and end.
type victim struct {
	kill, revive func() error
}

func (tr *trial) theAgent() victim {
	return victim{func() error { return tr.machine.end(syscall.SIGKILL) }, tr.begin}
}

func (tr *trial) theRuntime() victim {
	tr.runtimeKilled = true
	return victim{tr.containerd.Kill, func() error { return tr.containerd.Restart(tr.t.Context()) }}
}

func (tr *trial) theServer() victim {
	server := tr.cluster.APIServer
	return victim{server.Kill, func() error { return server.Start(tr.t.Context()) }}
}

// strike kills the victim, lets a moment pass and revives it.
func (tr *trial) strike(v victim, pause time.Duration) {
	tr.t.Helper()
	if err := v.kill(); err != nil {
		tr.t.Fatal(err)
	}
	time.Sleep(pause) // nothing is there that could be waited for
	if err := v.revive(); err != nil {
		tr.t.Fatal(err)
	}
}

// worker is a pod that writes down each start and end of its two containers.
func (tr *trial) worker(name string) *v1.Pod {
	diary := diaryPath + "/" + name
	p := newPod(name, runs("main", "work", diary, "main", "--on-term", "1500ms"))
	p.Spec.InitContainers = []v1.Container{runs("init", "work", diary, "init", "--after", "200ms")}
	return tr.keepsDiary(p)
}

// goThrough has pods start, run and end, and the victim killed meanwhile.
func (tr *trial) goThrough(v victim) {
	tr.t.Helper()
	const pods = 3
	names := make([]string, pods)
	for i := range names {
		names[i] = fmt.Sprintf("starting-%d", i)
		tr.bind(tr.worker(names[i]))
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // the moment is any
	}
	tr.strike(v, 0)
	before := map[string]v1.PodStatus{}
	for _, name := range names {
		before[name] = tr.Await(name, "ready", isReady).Status
		tr.mustHaveDone(name, "init started", "init ended", "main started")
	}

	tr.strike(v, time.Second)
	tr.bind(tr.worker("later"))
	tr.Await("later", "ready", isReady)
	for _, name := range names {
		if diff := cmp.Diff(before[name], tr.Await(name, "ready", isReady).Status); diff != "" {
			tr.t.Errorf("%s changed although nothing happened to it (-before +after):\n%s", name, diff)
		}
		tr.mustHaveDone(name, "init started", "init ended", "main started")
	}

	for _, name := range names {
		tr.delete(name)
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // the moment is any
	}
	tr.strike(v, 0)
	for _, name := range names {
		tr.AwaitDeleted(name)
		tr.mustHaveDone(name, "init started", "init ended", "main started", "main ended")
	}
}

// mustHaveDone waits until the pod's containers have done exactly this. containerd takes a start back when whoever asked for
// it has gone, and then a program may have come as far as its first line; killed itself, it may forget how an init container
// ended, which then runs again. Such a start is no restart in secret: it counts.
func (tr *trial) mustHaveDone(name string, want ...string) {
	tr.t.Helper()
	recorder.Eventually(tr.t, "what containers of "+name+" did", func() (string, bool) {
		got := tr.written(name)
		return fmt.Sprintf("%q, want %q", got, want), slices.Equal(withoutRepeats(got), want)
	})
	counted := 0
	for _, version := range tr.Versions(name) {
		restarts := 0
		for _, c := range recorder.ContainerStatuses(&version.Status) {
			restarts += int(c.RestartCount)
		}
		counted = max(counted, restarts)
	}
	if repeated := starts(tr.written(name)) - starts(want); repeated > counted {
		tr.t.Errorf("%s: %d starts were repeated and %d counted: %q", name, repeated, counted, tr.written(name))
	}
}

// withoutRepeats leaves out lines that say what the one before them says, or the two before them.
func withoutRepeats(lines []string) []string {
	var kept []string
	for _, line := range lines {
		kept = append(kept, line)
		for n := 1; n <= 2; n++ {
			if end := len(kept); end >= 2*n && slices.Equal(kept[end-n:], kept[end-2*n:end-n]) {
				kept = kept[:end-n]
			}
		}
	}
	return kept
}

func starts(lines []string) (number int) {
	for _, line := range lines {
		if strings.HasSuffix(line, " started") {
			number++
		}
	}
	return number
}

func TestF1TheAPIServerIsKilledWhilePodsStartRunAndEnd(t *testing.T) {
	tr := tryAlone(t, "severed")
	tr.goThrough(tr.theServer())
}

func TestF15TheAgentIsKilledWhilePodsStartRunAndEnd(t *testing.T) {
	t.Parallel()
	tr := tryAlone(t, "headless")
	tr.goThrough(tr.theAgent())
}

func TestF22ContainerdIsKilledWhilePodsStartRunAndEnd(t *testing.T) {
	t.Parallel()
	tr := tryAlone(t, "bodiless")
	tr.goThrough(tr.theRuntime())
}

func TestF15ManyKillsAtRandomMomentsStartNothingTwice(t *testing.T) {
	t.Parallel()
	const lives = 25
	tr := tryAlone(t, "immortal")
	policies := []v1.RestartPolicy{v1.RestartPolicyNever, v1.RestartPolicyOnFailure}
	for life := range lives {
		name := fmt.Sprintf("job-%d", life)
		job := newPod(name, runs("main", "work", diaryPath+"/"+name, "main", "--after", "500ms"))
		job.Spec.RestartPolicy = policies[life%2]
		tr.bind(tr.keepsDiary(job))
		time.Sleep(time.Duration(rand.IntN(700)) * time.Millisecond) // the moment is any
		tr.strike(tr.theAgent(), 0)
	}
	unlucky := 0
	for life := range lives {
		name := fmt.Sprintf("job-%d", life)
		p := tr.Await(name, "ended", func(p *v1.Pod) bool { return derive.IsTerminal(p.Status.Phase) })
		if end := containerOf(p, "main").State.Terminated; p.Status.Phase == v1.PodFailed && wasNeverRun(end) {
			unlucky++
			if did := tr.written(name); slices.Contains(did, "main ended") {
				t.Errorf("%s did %q, and is said not to have run", name, did)
			}
			continue
		}
		tr.mustHaveDone(name, "main started", "main ended")
	}
	if unlucky > lives/5 {
		t.Errorf("%d jobs did not run", unlucky)
	}
}

// wasNeverRun tells that containerd gave up a start because the caller had gone. A job that may not be tried again has failed
// then, as the kubelet's would have.
func wasNeverRun(end *v1.ContainerStateTerminated) bool {
	return end != nil && end.Reason == "StartError" && end.StartedAt.IsZero()
}

func TestWhatHappensWhileTheAgentIsAwayIsMadeUpFor(t *testing.T) {
	t.Parallel()
	tr := tryAlone(t, "absent")
	tr.bind(tr.worker("doomed"))
	tr.bind(tr.keepsDiary(newPod("fragile", runs("main", "work", diaryPath+"/fragile", "main", "--after", "3s", "--exit", "1"))))
	tr.Await("doomed", "ready", isReady)
	before := tr.Await("fragile", "ready", isReady)
	tr.awaitLine("doomed", "main started")
	if err := tr.theAgent().kill(); err != nil {
		t.Fatal(err)
	}
	tr.delete("doomed")
	tr.mustHaveWritten("fragile", "main started", "main ended")
	tr.bind(tr.worker("new"))
	if err := tr.theAgent().revive(); err != nil {
		t.Fatal(err)
	}
	tr.AwaitDeleted("doomed")
	tr.mustHaveWritten("doomed", "init started", "init ended", "main started", "main ended")
	tr.Await("new", "ready", isReady)
	after := tr.Await("fragile", "started again", func(p *v1.Pod) bool { return containerOf(p, "main").RestartCount == 1 })
	if !after.Status.StartTime.Equal(before.Status.StartTime) || after.Status.PodIP != before.Status.PodIP {
		t.Errorf("it became %+v", after.Status)
	}
}

func TestAnAgentThatIsRestartedLeavesPodsAsTheyWere(t *testing.T) {
	t.Parallel()
	tr := tryAlone(t, "restarted")
	job := newPod("job", runs("main", "flip", diaryPath+"/coin"))
	job.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	job.Spec.Containers = append(job.Spec.Containers, runs("steady", "work", diaryPath+"/job", "steady"))
	tr.bind(tr.keepsDiary(job))
	tr.bind(tr.worker("service"))
	ended := newPod("ended", runs("main", "exit", "3", "--message", "no luck"))
	ended.Spec.RestartPolicy = v1.RestartPolicyNever
	tr.bind(ended)
	before := map[string]*v1.Pod{
		"job": tr.Await("job", "restarted once", func(p *v1.Pod) bool {
			main := containerOf(p, "main")
			return main.RestartCount == 1 && main.State.Terminated != nil && containerOf(p, "steady").State.Running != nil
		}),
		"service": tr.Await("service", "ready", isReady),
		"ended":   tr.Await("ended", "failed", hasPhase(v1.PodFailed)),
	}
	for i, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := tr.machine.end(signal); err != nil {
			t.Fatal(err)
		}
		if err := tr.begin(); err != nil {
			t.Fatal(err)
		}
		witness := fmt.Sprintf("witness-%d", i)
		tr.bind(tr.worker(witness))
		tr.Await(witness, "ready", isReady)
		for name, was := range before {
			now := tr.Await(name, "there", func(*v1.Pod) bool { return true })
			if diff := cmp.Diff(was.Status, now.Status); diff != "" {
				t.Errorf("after %v, %s is another (-before +after):\n%s", signal, name, diff)
			}
		}
	}
	tr.mustHaveWritten("job", "steady started")
	tr.mustHaveWritten("service", "init started", "init ended", "main started")
}

func TestAPodThatWasDeletedByForceWhileTheAgentWasAwayEnds(t *testing.T) {
	t.Parallel()
	tr := tryAlone(t, "forced")
	tr.bind(tr.worker("forced"))
	tr.Await("forced", "ready", isReady)
	tr.awaitLine("forced", "main started")
	if err := tr.theAgent().kill(); err != nil {
		t.Fatal(err)
	}
	byForce := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if err := tr.Admin.CoreV1().Pods(tr.Namespace).Delete(t.Context(), "forced", byForce); err != nil {
		t.Fatal(err)
	}
	if err := tr.theAgent().revive(); err != nil {
		t.Fatal(err)
	}
	tr.mustHaveWritten("forced", "init started", "init ended", "main started", "main ended")
	tr.mustLeaveNothing()
}

func TestF26APodWhoseShimIsKilledRunsAgain(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	tr.bind(tr.keepsDiary(newPod("shimless", runs("main", "work", diaryPath+"/main", "main"))))
	p := tr.Await("shimless", "ready", isReady)
	tr.mustHaveWritten("main", "main started")
	if err := tr.containerd.KillShim(tr.sandboxOf(p)); err != nil {
		t.Fatal(err)
	}
	again := tr.Await("shimless", "running again", func(p *v1.Pod) bool {
		return isReady(p) && containerOf(p, "main").RestartCount == 1
	})
	if last := containerOf(again, "main").LastTerminationState.Terminated; last == nil || last.ExitCode == 0 {
		t.Errorf("its first life ended with %+v", last)
	}
	tr.mustHaveWritten("main", "main started", "main started")
}
