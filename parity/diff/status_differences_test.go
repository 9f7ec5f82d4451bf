package diff_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

func TestSM15AContainerWithoutReadinessProbeIsReadyWhenItHasStarted(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		l := w.running(webPod)
		w.tell(l)
		w.each(l, func(n *twin, p *v1.Pod) { n.SetContainerStartup(p.UID, l.inits[0].ContainerID, true) })
		ready := func(n *twin) bool { return n.shown(webPod).InitContainerStatuses[0].Ready }
		if ready(kubelet) {
			t.Error("the kubelet no longer differs")
		}
		if !ready(herald) {
			t.Error("a sidecar that has started is not ready")
		}
	})
}

func TestSM17AStaticPodThatEndsAtOnceKeepsWhatItsMirrorSays(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		l := w.running(staticPod)
		w.tell(l)
		w.restart()
		w.each(l, func(n *twin, p *v1.Pod) { n.TerminatePod(p) })
		time.Sleep(quiet)
		if shown := kubelet.shown(staticPod); shown.Phase != "" || len(shown.ContainerStatuses) != 0 {
			t.Errorf("the kubelet no longer differs: %+v", shown)
		}
		if shown := herald.shown(staticPod); shown.Phase != v1.PodRunning || shown.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("the mirror shows %+v", shown)
		}
	})
}

func TestSM18ALostContainerIsNeitherStartedNorReady(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		l := w.running(staticPod)
		w.tell(l)
		w.probe(l, 0, true)
		w.each(l, func(n *twin, p *v1.Pod) { n.TerminatePod(p) })
		if c := kubelet.shown(staticPod).ContainerStatuses[0]; c.State.Terminated == nil || !c.Ready || !*c.Started {
			t.Errorf("the kubelet no longer differs: %+v", c)
		}
		if c := herald.shown(staticPod).ContainerStatuses[0]; c.State.Terminated == nil || c.Ready || *c.Started {
			t.Errorf("the container shows %+v", c)
		}
	})
}

func TestSM24AConditionThatSomebodyElseTurnedIsNotTurnedBackInTime(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		l := w.running("web-0")
		w.tell(l)
		w.probe(l, 0, true)
		time.Sleep(time.Minute)
		w.interfere(l.name, interferences[turnsReady])
		turned := time.Now()
		time.Sleep(quiet)
		ready := func(n *twin) *v1.PodCondition { return conditionOf(n.shown(l.name), v1.PodReady) }
		if c := ready(kubelet); c.Status != v1.ConditionTrue || !c.LastTransitionTime.Time.Before(turned) {
			t.Errorf("the kubelet no longer differs: %+v", c)
		}
		if c := ready(herald); c.Status != v1.ConditionTrue || c.LastTransitionTime.Time.Before(turned) {
			t.Errorf("Ready shows %+v", c)
		}
	})
}

func TestSM53WhatSomebodyElseWroteIsPutRightAtOnce(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		l := w.running(jobPod)
		w.tell(l)
		time.Sleep(time.Second)
		w.interfere(l.name, func(p *v1.Pod) { p.Status.Phase = v1.PodPending })
		if phase := kubelet.shown(jobPod).Phase; phase != v1.PodPending {
			t.Errorf("the kubelet no longer differs: the pod is %s", phase)
		}
		if phase := herald.shown(jobPod).Phase; phase != v1.PodRunning {
			t.Errorf("the pod is %s", phase)
		}
	})
}

func TestSM65SendingChangesNothingInTheCache(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		l := w.running(jobPod)
		l.disrupted = true
		w.tell(l)
		cachedAt := func(n *twin) time.Time {
			s, _ := n.GetPodStatus(n.pods[l].UID)
			return conditionOf(s, v1.DisruptionTarget).LastTransitionTime.Time
		}
		began := cachedAt(herald)
		time.Sleep(1500 * time.Millisecond)
		w.end(l)
		if at := cachedAt(kubelet); !at.After(began) || at.Nanosecond() == 0 {
			t.Errorf("the kubelet no longer differs: the time in its cache is %v", at)
		}
		if at := cachedAt(herald); !at.Equal(began) {
			t.Errorf("the time in the cache went from %v to %v", began, at)
		}
	})
}

func TestSM69TheEndOfAStaticPodWaitsForItsContainersToo(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		l := w.running(staticPod)
		w.tell(l)
		l.goOn(0, 1)
		l.phase = v1.PodFailed
		w.tell(l)
		time.Sleep(quiet)
		if phase := kubelet.shown(staticPod).Phase; phase != v1.PodFailed {
			t.Errorf("the kubelet no longer differs: the mirror is %s", phase)
		}
		if phase := herald.shown(staticPod).Phase; phase != v1.PodRunning {
			t.Errorf("the mirror is %s while containers could run", phase)
		}
		w.each(l, func(n *twin, p *v1.Pod) { n.could.set(p.UID, false) })
		time.Sleep(quiet)
		if phase := herald.shown(staticPod).Phase; phase != v1.PodFailed {
			t.Errorf("nothing runs, and the mirror is %s", phase)
		}
	})
}

func TestSM79AStaticPodThatComesBackIsToldOfAtOnce(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		l := w.running(staticPod)
		for range 3 {
			w.tell(l)
			l.goOn(0, 1)
		}
		time.Sleep(11 * time.Second) // just after a full pass
		for _, n := range w.nodes {
			n.RemoveOrphanedStatuses(nil)
		}
		w.tell(l)
		restarts := func(n *twin) int32 { return n.shown(staticPod).ContainerStatuses[0].RestartCount }
		state := func(n *twin) bool { return n.shown(staticPod).ContainerStatuses[0].State.Terminated != nil }
		if restarts(kubelet) == l.regulars[0].RestartCount && state(kubelet) == (l.regulars[0].State.Terminated != nil) {
			t.Error("the kubelet no longer differs")
		}
		if restarts(herald) != l.regulars[0].RestartCount || state(herald) != (l.regulars[0].State.Terminated != nil) {
			t.Errorf("the mirror shows %+v", herald.shown(staticPod).ContainerStatuses)
		}
	})
}

func TestSM94AResizeOfAPodWithoutStatusIsForgottenWithThePod(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, _ *twins, kubelet, herald *twin) {
		theirs, ours := kubelet.logbook.(*theirLogbook), herald.logbook.(*ourLogbook)
		theirs.SetPodResizePendingCondition("gone", v1.PodReasonDeferred, "", 1)
		ours.SetPodResizePendingCondition("gone", derive.ResizeVerdict{Reason: v1.PodReasonDeferred, Generation: 1})
		theirs.RemoveOrphanedStatuses(nil)
		ours.RemoveOrphanedStatuses(nil)
		if left := theirs.GetPodResizeConditions("gone"); len(left) == 0 {
			t.Error("the kubelet no longer differs")
		}
		if left := ours.GetPodResizeConditions(podid.UID("gone")); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestSM72ADeletedPodGoesWhenItHasEndedAndNotBefore(t *testing.T) {
	onTwins(t, nil, func(t *testing.T, w *twins, kubelet, herald *twin) {
		l := w.running(jobPod)
		w.tell(l)
		w.kubectlDelete(l, 30)
		w.stopContainers(l)
		time.Sleep(quiet)
		if diff := w.compare(); diff != "" || herald.shown(jobPod).Phase != v1.PodFailed {
			t.Fatalf("the pod is %s; the kubelet (-) and Herald (+) differ:\n%s", herald.shown(jobPod).Phase, diff)
		}
		w.end(l)
		time.Sleep(quiet)
		if kubelet.cluster.pod(jobPod) != nil || herald.cluster.pod(jobPod) != nil {
			t.Error("a pod that has ended is still there")
		}
	})
}
