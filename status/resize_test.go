package status_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

func verdict(reason, message string, generation int64) derive.ResizeVerdict {
	return derive.ResizeVerdict{Reason: reason, Message: message, Generation: generation}
}

func TestSM88AWaitingResizeIsNewsWhenItsReasonOrGenerationIs(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		steps := []struct {
			why        derive.ResizeVerdict
			news       bool
			reason     string
			deferred   bool
			infeasible bool
		}{
			{verdict("whatever", "one", 1), true, v1.PodReasonDeferred, true, false},
			{verdict(v1.PodReasonDeferred, "another message", 1), false, v1.PodReasonDeferred, true, false},
			{verdict(v1.PodReasonDeferred, "another message", 2), true, v1.PodReasonDeferred, true, false},
			{verdict(v1.PodReasonInfeasible, "never", 2), true, v1.PodReasonInfeasible, false, true},
		}
		for i, step := range steps {
			time.Sleep(time.Minute)
			if news := n.SetPodResizePendingCondition("u", step.why); news != step.news {
				t.Fatalf("step %d: news %v", i, news)
			}
			got := n.GetPodResizeConditions("u")
			if len(got) != 1 || got[0].Reason != step.reason || got[0].Status != v1.ConditionTrue {
				t.Fatalf("step %d: %+v", i, got)
			}
			if n.IsPodResizeDeferred("u") != step.deferred || n.IsPodResizeInfeasible("u") != step.infeasible { // SM-91
				t.Fatalf("step %d: deferred %v, infeasible %v", i, n.IsPodResizeDeferred("u"), n.IsPodResizeInfeasible("u"))
			}
		}
		n.ClearPodResizePendingCondition("u") // SM-90
		n.ClearPodResizePendingCondition("u")
		if left := n.Size(); len(left) != 0 {
			t.Fatalf("a resize that is over is remembered: %v", left)
		}
	})
}

func TestSM89AResizeUnderWayKeepsItsGeneration(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		if generation, news := n.SetPodResizeInProgressCondition("u", verdict("", "", 3)); generation != 3 || !news {
			t.Fatalf("begun: %d, %v", generation, news)
		}
		if generation, news := n.SetPodResizeInProgressCondition("u", verdict("Error", "no luck", 4)); generation != 3 || !news {
			t.Fatalf("relabelled: %d, %v", generation, news)
		}
		if _, news := n.SetPodResizeInProgressCondition("u", verdict("", "", 4)); news {
			t.Fatal("the same again is news")
		}
		if generation, done := n.ClearPodResizeInProgressCondition("u"); generation != 3 || !done { // SM-90
			t.Fatalf("finished: %d, %v", generation, done)
		}
		if _, done := n.ClearPodResizeInProgressCondition("u"); done {
			t.Fatal("finished twice")
		}
	})
}

func TestSM93AResizeConditionWaitsForTheNextStatus(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.faults.Forget()
		uid := podid.UID(p.UID)
		n.SetPodResizeInProgressCondition(uid, verdict("", "", 1))
		n.SetPodResizePendingCondition(uid, verdict(v1.PodReasonDeferred, "no room", 1))
		time.Sleep(time.Minute)
		if n.writes("PATCH") != 0 {
			t.Fatal("setting a resize condition sent something")
		}
		s := runningStatus()
		s.Conditions = append(s.Conditions, n.GetPodResizeConditions(uid)...)
		n.SetPodStatus(p, s)
		got := n.shown(p)
		if conditionOf(got, v1.PodResizePending).Message != "no room" || conditionOf(got, v1.PodResizeInProgress).Status != v1.ConditionTrue {
			t.Fatalf("the API server shows %+v", got.Conditions)
		}
		if pending := n.GetPodResizeConditions(uid)[0]; pending.Type != v1.PodResizePending {
			t.Fatalf("first is %s", pending.Type)
		}
	})
}

func TestSM92AfterARestartResizesAreWhatThePodsShow(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		since := metav1.NewTime(time.Now().Add(-time.Hour))
		pods := []*v1.Pod{
			{ObjectMeta: metav1.ObjectMeta{UID: "waits"}, Status: v1.PodStatus{Conditions: []v1.PodCondition{{
				Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonInfeasible, LastTransitionTime: since,
			}}}},
			{ObjectMeta: metav1.ObjectMeta{UID: "calm"}},
		}
		n.BackfillPodResizeConditions(pods)
		if got := n.GetPodResizeConditions("waits"); len(got) != 1 || got[0].LastTransitionTime != since || !n.IsPodResizeInfeasible("waits") {
			t.Fatalf("%+v", got)
		}
		if size := n.Size(); size["resizes"] != 1 {
			t.Fatalf("remembered: %v", size)
		}
	})
}

func TestSM94AResizeOfAPodWithoutAStatusIsForgottenToo(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		n.SetPodResizePendingCondition("gone", verdict("", "", 1))
		n.SetPodResizePendingCondition("here", verdict("", "", 1))
		n.RemoveOrphanedStatuses(map[types.UID]bool{"here": true})
		if n.IsPodResizeDeferred("gone") || !n.IsPodResizeDeferred("here") {
			t.Fatalf("gone: %v, here: %v", n.IsPodResizeDeferred("gone"), n.IsPodResizeDeferred("here"))
		}
	})
}
