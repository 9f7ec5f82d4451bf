package diff_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/status"
)

// onTwins shows something on the kubelet's status manager and on ours, side by side.
func onTwins(t *testing.T, change func(*status.Config), show func(t *testing.T, w *twins, kubelet, herald *twin)) {
	t.Helper()
	calm(t)
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t, change)
		defer w.stop()
		show(t, w, w.nodes[0], w.nodes[1])
	})
}

// running makes a pod all of whose containers run.
func (w *twins) running(name string) *life {
	w.appear(name)
	l := w.newest(name)
	for number := range len(l.inits) + len(l.regulars) {
		l.goOn(number, 0)
	}
	return l
}

// shown is what the API server says of the pod, once all is quiet.
func (n *twin) shown(name string) v1.PodStatus {
	synctest.Wait()
	if p := n.cluster.pod(name); p != nil {
		return p.Status
	}
	return v1.PodStatus{}
}

// isReadyNow tells whether the pod's first container is ready, as far as the node says.
func (n *twin) isReadyNow(l *life) bool {
	s, _ := n.GetPodStatus(n.pods[l].UID)
	return s.ContainerStatuses[0].Ready
}

func countShown(n *twin, lives []*life, phase v1.PodPhase) (count int) {
	for _, l := range lives {
		if n.shown(l.name).Phase == phase {
			count++
		}
	}
	return count
}

func TestBUG1ASlowServerDelaysManyPodsNoMoreThanOne(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		var lives []*life
		for i := range 16 {
			lives = append(lives, w.running(fmt.Sprintf("web-%d", i)))
		}
		w.script(func() *fault.Rule { return fault.On("PATCH", "/pods/").Delay(time.Second) })
		for _, l := range lives {
			w.tell(l)
		}
		time.Sleep(1500 * time.Millisecond)
		if told := countShown(kubelet, lives, v1.PodRunning); told != 1 {
			t.Errorf("the kubelet no longer has this fault: it told of %d pods", told)
		}
		if told := countShown(herald, lives, v1.PodRunning); told != len(lives) {
			t.Errorf("%d of %d pods were told of", told, len(lives))
		}
	})
}

func TestBUG2AChangeIsOneRequest(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		w.tell(w.running(jobPod))
		time.Sleep(quiet)
		if asked := kubelet.tally(); asked != (tally{gets: 1, patches: 1}) {
			t.Errorf("the kubelet no longer has this fault: %+v", asked)
		}
		if asked := herald.tally(); asked != (tally{patches: 1}) {
			t.Errorf("a change took %+v", asked)
		}
	})
}

func TestBUG3AnEndOvertakesWhatIsLessUrgent(t *testing.T) {
	oneAtATime := func(c *status.Config) { c.Workers = 1 }
	onTwins(t, oneAtATime, func(t *testing.T, w *twins, kubelet, herald *twin) {
		job := w.running(jobPod)
		var lives []*life
		for i := range 20 {
			lives = append(lives, w.running(fmt.Sprintf("web-%d", i)))
		}
		w.script(func() *fault.Rule { return fault.On("PATCH", "/pods/").Delay(time.Second) })
		for _, l := range lives {
			w.tell(l)
		}
		time.Sleep(1500 * time.Millisecond)
		w.each(job, func(n *twin, p *v1.Pod) { n.could.set(p.UID, false) })
		job.goOn(0, 0)
		job.goOn(1, 1)
		w.tell(job)
		time.Sleep(2 * time.Second)
		if phase := kubelet.shown(jobPod).Phase; phase == v1.PodFailed {
			t.Error("the kubelet no longer has this fault")
		}
		if phase := herald.shown(jobPod).Phase; phase != v1.PodFailed {
			t.Errorf("the end waits behind %d changes: the pod is %s", len(lives), phase)
		}
	})
}

func TestBUG6AFailedRequestIsTriedAgainSoon(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		l := w.running(jobPod)
		time.Sleep(time.Second) // after a full pass, and long before the next
		w.script(func() *fault.Rule { return fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusInternalServerError) })
		w.tell(l)
		time.Sleep(time.Second)
		if phase := kubelet.shown(jobPod).Phase; phase != v1.PodPending {
			t.Errorf("the kubelet no longer has this fault: the pod is %s", phase)
		}
		if phase := herald.shown(jobPod).Phase; phase != v1.PodRunning {
			t.Errorf("a second after one failure the pod is %s", phase)
		}
	})
}

func TestBUG7AStatusFromBeforeAProbeDoesNotUndoIt(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		l := w.running("web-0")
		w.tell(l)
		w.sayLate(l, 0)
		if kubelet.isReadyNow(l) {
			t.Error("the kubelet no longer has this fault")
		}
		if !herald.isReadyNow(l) {
			t.Error("an older status undid the probe")
		}
	})
}

func TestBUG8AStaticPodKeepsItsStatusWhenItsMirrorIsMadeAnewUnseen(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		l := w.running(staticPod)
		w.tell(l)
		w.script(func() *fault.Rule { return fault.On("watch", "/pods").Stall() })
		w.kubectlDelete(l, 0)
		w.appear(staticPod)
		l.goOn(0, 1)
		w.tell(l)
		if _, found := kubelet.GetPodStatus(kubelet.pods[l].UID); found {
			t.Error("the kubelet no longer has this fault: it keeps the status")
		}
		if _, found := herald.GetPodStatus(herald.pods[l].UID); !found {
			t.Error("a live pod's status was dropped")
		}
		for _, heal := range w.heal {
			heal()
		}
		time.Sleep(quiet)
		if shown := kubelet.shown(staticPod); len(shown.ContainerStatuses) != 0 {
			t.Error("the kubelet no longer has this fault: it tells the new mirror")
		}
		if shown := herald.shown(staticPod); len(shown.ContainerStatuses) != 1 {
			t.Errorf("the new mirror shows %+v", shown)
		}
	})
}

func TestBUG9AWatchThatLagsIsNotReadAsInterference(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		l := w.running(jobPod)
		w.script(func() *fault.Rule { return fault.On("watch", "/pods").Stall() })
		w.tell(l)
		for _, n := range w.nodes {
			n.faults.Forget()
		}
		time.Sleep(35 * time.Second)
		if asked := kubelet.tally(); asked.gets != 3 {
			t.Errorf("the kubelet no longer has this fault: in three full passes it asked %+v", asked)
		}
		if asked := herald.tally(); asked != (tally{}) {
			t.Errorf("what was acknowledged was asked for again: %+v", asked)
		}
	})
}
