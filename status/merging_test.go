package status_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/podid"
)

func TestSM11AndSM63WhatOthersWroteSurvivesEveryWrite(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		seen := record(t, n.server)
		p := n.bound("web", func(p *v1.Pod) {
			p.Labels = map[string]string{"team": "shop"}
			p.Status.NominatedNodeName = "n2"
			p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu"}} // SM-66
			p.Status.Conditions = []v1.PodCondition{{Type: "example.com/gate", Status: v1.ConditionTrue, Reason: "Theirs"}}
		})
		n.SetPodStatus(p, runningStatus())
		s := runningStatus()
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: "example.com/gate", Status: v1.ConditionFalse, Reason: "Not ours to say"})
		n.SetPodStatus(p, s)
		n.SetPodStatus(p, succeededStatus())
		got := n.shown(p)
		if gate := conditionOf(got, "example.com/gate"); gate.Status != v1.ConditionTrue || gate.Reason != "Theirs" {
			t.Errorf("their condition is %+v", gate)
		}
		if got.Phase != v1.PodSucceeded || got.NominatedNodeName != "n2" || len(got.ResourceClaimStatuses) != 1 {
			t.Errorf("the API server shows %+v", got)
		}
		seen.mustBeClean(t)
	})
}

func TestSM64AnOwnedConditionThatIsGoneDisappears(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		s := runningStatus()
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred})
		n.SetPodStatus(p, s)
		if conditionOf(n.shown(p), v1.PodResizePending).Type == "" {
			t.Fatal("the condition is not shown")
		}
		n.SetPodStatus(p, runningStatus())
		if conditionOf(n.shown(p), v1.PodResizePending).Type != "" {
			t.Fatal("the condition is still shown")
		}
	})
}

func TestSM65ADisruptionIsToldOnlyWithTheEndThatItExplains(t *testing.T) {
	disrupted := func(s v1.PodStatus) v1.PodStatus {
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"})
		return s
	}
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.cleanup.setRunning(p.UID, true)
		for _, s := range []v1.PodStatus{disrupted(runningStatus()), disrupted(succeededStatus())} {
			n.SetPodStatus(p, s)
			if got := conditionOf(n.shown(p), v1.DisruptionTarget); got.Type != "" {
				t.Fatalf("told too early, with the phase %s: %+v", s.Phase, got)
			}
		}
		n.cleanup.setRunning(p.UID, false)
		time.Sleep(10 * time.Second)
		if got := conditionOf(n.shown(p), v1.DisruptionTarget); got.Status != v1.ConditionTrue {
			t.Fatalf("not told with the end: %+v", n.shown(p))
		}
	})
}

func TestSM67ATerminalPhaseWaitsUntilNothingCanRun(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("job", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever })
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.cleanup.setRunning(p.UID, true)
		n.SetPodStatus(p, succeededStatus())
		got := n.shown(p)
		if got.Phase != v1.PodRunning || got.ContainerStatuses[0].State.Terminated == nil {
			t.Fatalf("phase %s, container %+v; want all but the phase", got.Phase, got.ContainerStatuses[0].State)
		}
		n.faults.Forget()
		time.Sleep(time.Minute)
		if n.writes("PATCH") != 0 {
			t.Fatal("requests while the phase is held back")
		}
		n.cleanup.setRunning(p.UID, false) // nobody tells the manager
		time.Sleep(10 * time.Second)
		if got := n.shown(p); got.Phase != v1.PodSucceeded {
			t.Fatalf("phase is %s after a full pass", got.Phase)
		}
	})
}

func TestSM68ATerminalPhaseThatSomebodyElseSetStays(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) { p.Status.Phase, p.Status.Reason = v1.PodFailed, "NodeLost" })
		synctest.Wait()
		s := runningStatus()
		s.PodIP, s.PodIPs = "10.0.0.8", []v1.PodIP{{IP: "10.0.0.8"}}
		n.SetPodStatus(n.held(p), s)
		got := n.shown(p)
		if got.Phase != v1.PodFailed || got.Reason != "NodeLost" || got.PodIP != "10.0.0.8" {
			t.Fatalf("the API server shows %+v", got)
		}
		if ready := conditionOf(got, v1.PodReady); ready.Status != v1.ConditionFalse || ready.Reason != "PodFailed" { // SM-70
			t.Fatalf("it is %s and %+v", got.Phase, ready)
		}
	})
}

func TestSM69AStaticPodsPhaseWaitsToo(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		static, mirror := n.mirrored("etcd-n1")
		n.cleanup.setRunning(static.UID, true)
		n.SetPodStatus(static, succeededStatus())
		if got := n.shown(mirror); got.Phase != v1.PodPending || len(got.ContainerStatuses) == 0 {
			t.Fatalf("the mirror shows %s and %d containers while some could run", got.Phase, len(got.ContainerStatuses))
		}
		n.cleanup.setRunning(static.UID, false)
		time.Sleep(10 * time.Second)
		if got := n.shown(mirror); got.Phase != v1.PodSucceeded {
			t.Fatalf("the mirror shows %s", got.Phase)
		}
	})
}

func TestSM70NobodyEverSeesAPodThatHasEndedAndIsReady(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		seen := record(t, n.server)
		seen.more = func(_, p *v1.Pod) []string {
			if isEnd(p.Status.Phase) && conditionOf(p.Status, v1.PodReady).Status == v1.ConditionTrue {
				return []string{"it has ended and is ready"}
			}
			return nil
		}
		p := n.bound("job")
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		s := runningStatus() // with Ready True
		s.Phase = v1.PodFailed
		n.SetPodStatus(p, s)
		if got := conditionOf(n.shown(p), v1.PodReady); got.Status != v1.ConditionFalse || got.Reason != "PodFailed" {
			t.Fatalf("Ready is %+v", got)
		}
		seen.mustBeClean(t)
	})
}

func TestI6TransitionTimesGoOnFromWhatTheObjectShowsWhoeverWroteIt(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		seen := record(t, n.server)
		p := n.bound("web", func(p *v1.Pod) { p.Spec.Containers[0].ReadinessProbe = &v1.Probe{} })
		n.SetPodStatus(p, runningStatus())
		time.Sleep(61 * time.Second)
		n.muted.Store(true) // so that the next full pass finds it, in 9 s
		n.server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) {
			setCondition(p, v1.PodReady, v1.ConditionFalse)
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, foreignMark, "1")
		})
		theirs := time.Now()
		time.Sleep(time.Minute)
		ready := conditionOf(n.shown(p), v1.PodReady)
		if ready.Status != v1.ConditionTrue || ready.LastTransitionTime.Sub(theirs) < 5*time.Second {
			t.Fatalf("after a repair Ready is %+v; it was turned at %v", ready, theirs)
		}
		n.muted.Store(false)
		s := runningStatus()
		s.Message = "another change"
		n.SetPodStatus(p, s)
		if again := conditionOf(n.shown(p), v1.PodReady); again.LastTransitionTime != ready.LastTransitionTime {
			t.Fatalf("the time moved from %v to %v", ready.LastTransitionTime, again.LastTransitionTime)
		}
		n.server.SetDown(true)
		n.SetContainerReadiness(p.UID, containerID("1"), false)
		turned := metav1.NewTime(time.Now().Truncate(time.Second))
		time.Sleep(time.Hour)
		n.server.SetDown(false)
		time.Sleep(time.Minute)
		if late := conditionOf(n.shown(p), v1.PodReady); late.Status != v1.ConditionFalse || !late.LastTransitionTime.Equal(&turned) {
			t.Fatalf("told an hour late, Ready is %+v; it turned at %v", late, turned)
		}
		seen.mustBeClean(t)
	})
}

func TestSM25AnEditedStaticPodDoesNotInheritTheStartOfItsPredecessor(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		static, mirror := n.mirrored("etcd-n1")
		n.SetPodStatus(static, runningStatus())
		synctest.Wait()
		before := n.shown(mirror).StartTime
		time.Sleep(time.Hour)
		successor := staticPod("etcd-n1")
		successor.UID, successor.Annotations[podid.HashAnnotation] = "static-edited", "h2"
		n.book.RemovePod(static)
		n.book.AddPod(successor) // the predecessor's mirror is still there
		status := runningStatus()
		status.StartTime = nil
		if kept, _ := n.SetPodStatus(successor, status); kept.StartTime.Equal(before) {
			t.Errorf("it began at %v, as its predecessor did", kept.StartTime)
		}
	})
}

func TestI4AnAgentThatStartsWithoutTheAPIServerAdoptsTheStartTime(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		static, mirror := n.mirrored("etcd-n1")
		n.SetPodStatus(static, runningStatus())
		began := n.shown(mirror).StartTime
		n.stop()
		time.Sleep(time.Hour)
		n.server.SetDown(true)
		n = newNode(t, n.server, nil)
		defer n.stop()
		n.book.AddPod(static)
		n.SetPodStatus(static, runningStatus())
		time.Sleep(time.Minute)
		n.server.SetDown(false)
		time.Sleep(time.Minute)
		cached, _ := n.GetPodStatus(static.UID)
		if shown := n.shown(mirror).StartTime; !shown.Equal(began) || !cached.StartTime.Equal(began) {
			t.Fatalf("the API server shows %v and the node %v; it began at %v", shown, cached.StartTime, began)
		}
	})
}

func TestF14AClockThatWentBackMovesNoTransitionTimeBack(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		seen := record(t, n.server)
		ahead := metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second))
		p := n.bound("web", func(p *v1.Pod) { // written before the clock was put right
			p.Status = unreadyStatus()
			for i := range p.Status.Conditions {
				p.Status.Conditions[i].LastTransitionTime = ahead
			}
		})
		n.SetPodStatus(p, runningStatus())
		for _, c := range n.shown(p).Conditions {
			if c.LastTransitionTime.Before(&ahead) {
				t.Errorf("%s has %v, and had %v", c.Type, c.LastTransitionTime, ahead)
			}
		}
		seen.mustBeClean(t)
	})
}

func TestBUG16AMessageIsCutSoThatWhatIsStoredIsWhatIsCached(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("job")
		s := succeededStatus()
		s.ContainerStatuses[0].State.Terminated.Message = strings.Repeat("é", 10_000) + "\xff"
		s.Message = "not UTF-8: \xff"
		n.SetPodStatus(p, s)
		synctest.Wait()
		n.faults.Forget()
		n.SetPodStatus(n.held(p), s)
		time.Sleep(time.Minute)
		message := n.shown(p).ContainerStatuses[0].State.Terminated.Message
		if len(message) != 12288 || !utf8.ValidString(message) {
			t.Errorf("%d bytes are stored, valid %v", len(message), utf8.ValidString(message))
		}
		if sent := len(n.faults.Requests().Of("*", "/pods/")); sent != 0 {
			t.Errorf("%d requests at rest", sent)
		}
	})
}

func TestSM30TheOrderOfListsMakesNoVersions(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p, s := threeContainers("u")
		p.Spec.NodeName, p.UID = nodeName, ""
		n.server.AddPod(p)
		synctest.Wait()
		held, _ := n.book.GetPodByName("shop", "u")
		n.SetPodStatus(held, s)
		slices.Reverse(s.ContainerStatuses)
		slices.Reverse(s.Conditions)
		if _, changed := n.SetPodStatus(held, s); changed {
			t.Fatal("another order is a change")
		}
	})
}
