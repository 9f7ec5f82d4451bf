package status_test

import (
	"sync"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/podid"
)

func TestSM17APodEndsFromWhatIsKnownOfIt(t *testing.T) {
	tests := map[string]func(n *node) *v1.Pod{
		"from the cache": func(n *node) *v1.Pod {
			p := n.bound("web")
			n.SetPodStatus(p, runningStatus())
			return p
		},
		"from the pod, when nothing is cached": func(n *node) *v1.Pod {
			p := n.bound("web").DeepCopy()
			p.Status = runningStatus()
			return p
		},
		"from the address book, when its copy is newer": func(n *node) *v1.Pod {
			p := n.bound("web")
			n.server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) { p.Status = runningStatus(); p.Status.QOSClass = v1.PodQOSBestEffort })
			synctest.Wait()
			return p
		},
	}
	for name, make := range tests {
		t.Run(name, func(t *testing.T) {
			onNode(t, nil, func(t *testing.T, n *node) {
				p := make(n)
				n.TerminatePod(p)
				got := n.shown(p)
				if got.Phase != v1.PodFailed || len(got.ContainerStatuses) != 1 || got.ContainerStatuses[0].State.Terminated == nil {
					t.Fatalf("the API server shows %+v", got)
				}
				if end := got.ContainerStatuses[0]; end.State.Terminated.ExitCode != 137 || end.State.Terminated.Reason != "ContainerStatusUnknown" || end.Ready { // SM-18
					t.Fatalf("a container that nobody saw end is %+v", end)
				}
			})
		})
	}
}

func TestSM20AnEndThatWasSeenStays(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("job")
		n.SetPodStatus(p, succeededStatus())
		n.TerminatePod(p)
		got := n.shown(p)
		if got.Phase != v1.PodSucceeded || got.ContainerStatuses[0].State.Terminated.ExitCode != 0 {
			t.Fatalf("it shows %s and %+v", got.Phase, got.ContainerStatuses[0].State)
		}
	})
}

func TestSM20AStaticPodKeepsItsPhase(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		static, mirror := n.mirrored("etcd-n1")
		n.SetPodStatus(static, runningStatus())
		n.TerminatePod(static)
		if got := n.shown(mirror); got.Phase != v1.PodRunning || got.ContainerStatuses[0].State.Terminated == nil {
			t.Fatalf("the mirror shows %s and %+v", got.Phase, got.ContainerStatuses[0].State)
		}
	})
}

func TestSM17AnEndIsMadeOfTheNewestStatusHoweverManySetTheirs(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		for range 100 {
			p := n.bound("web")
			var setters sync.WaitGroup
			setters.Go(func() {
				for i := range 10 {
					s := withReason("%d", i)
					s.ContainerStatuses[0].RestartCount = int32(i)
					n.SetPodStatus(p, s)
				}
			})
			setters.Go(func() { n.TerminatePod(p) })
			changes := collectChanges(t, n)
			setters.Wait()
			restarts := int32(0)
			for _, c := range changes() {
				for _, status := range c.Status.ContainerStatuses {
					if c.UID == podid.UID(p.UID) && status.RestartCount < restarts {
						t.Fatalf("an end was made of an older status: %d restarts after %d", status.RestartCount, restarts)
					}
					restarts = max(restarts, status.RestartCount)
				}
			}
			n.server.DeletePod(podid.FullNameOf(p), 0)
			synctest.Wait()
		}
	})
}

func TestSM21AStaticPodGoesOnFromItsMirror(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		static, mirror := n.mirrored("etcd-n1")
		long := metav1.Date(1999, 1, 1, 0, 0, 0, 0, metav1.Now().Location())
		n.server.UpdatePod(podid.FullNameOf(mirror), func(p *v1.Pod) { p.Status.StartTime = &long })
		synctest.Wait()
		n.SetPodStatus(static, runningStatus())
		if got, _ := n.GetPodStatus(static.UID); !got.StartTime.Equal(&long) {
			t.Fatalf("it started at %v, its mirror says %v", got.StartTime, long)
		}
	})
}

func TestALateProbeResultDoesNotBringAFinishedStaticPodBack(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		changes := collectChanges(t, n)
		static, _ := n.mirrored("etcd-n1")
		static = static.DeepCopy()
		static.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
		n.book.AddPod(static)
		n.SetPodStatus(static, runningStatus())
		n.TerminatePod(static)
		n.SetContainerReadiness(static.UID, containerID("1"), false)
		n.SetContainerReadiness(static.UID, containerID("1"), true)
		all := changes()
		if last := all[len(all)-1]; !last.Finished {
			t.Fatalf("%+v", last)
		}
	})
}

func TestAStatusWithoutProbeResultsIsTakenAtItsWord(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web") // no probe is declared: who calls the manager knows what ready means
		for range 2 {
			if n.SetPodStatus(p, unreadyStatus()); n.shown(p).ContainerStatuses[0].Ready {
				t.Fatal("the container was made ready")
			}
		}
		if sent := n.writes("PATCH"); sent != 1 {
			t.Fatalf("%d requests", sent)
		}
	})
}
