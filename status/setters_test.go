package status_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/status"
)

func containerID(id string) observed.ContainerID {
	return observed.ContainerID{Runtime: "test", ID: id}
}

func TestSM1WithoutAnAPIServerEverythingButSendingWorks(t *testing.T) {
	onNode(t, func(c *status.Config) { c.API, c.Deletion = nil, nil }, func(t *testing.T, n *node) {
		p := n.bound("web", func(p *v1.Pod) { p.Spec.Containers[0].ReadinessProbe = &v1.Probe{} })
		n.faults.Forget()
		n.SetPodStatus(p, runningStatus())
		n.SetContainerReadiness(p.UID, containerID("1"), false)
		time.Sleep(time.Minute)
		got, known := n.GetPodStatus(p.UID)
		if !known || got.Phase != v1.PodRunning || got.ContainerStatuses[0].Ready {
			t.Fatalf("the node says %+v, %v", got, known)
		}
		if sent := n.writes("PATCH"); sent != 0 {
			t.Fatalf("%d requests without an API server", sent)
		}
	})
}

func TestSM7AnUnknownPodHasNoStatus(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		if got, known := n.GetPodStatus("nobody"); known || !cmp.Equal(got, v1.PodStatus{}) {
			t.Fatalf("the node says %+v, %v", got, known)
		}
	})
}

func TestSM9TheCallerMayGoOnChangingItsStatus(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		for _, image := range []string{"one", "two"} { // the second shares memory with the first where it is equal
			mine := runningStatus()
			mine.ContainerStatuses[0].Image = image
			n.SetPodStatus(p, mine)
			mine.ContainerStatuses[0].Image = "changed"
			*mine.ContainerStatuses[0].Started = false
			mine.ContainerStatuses[0].State.Running.StartedAt = metav1.Time{}
			mine.Conditions[0].Status = v1.ConditionUnknown
			mine.PodIPs[0].IP = "changed"
			got, _ := n.GetPodStatus(p.UID)
			c := got.ContainerStatuses[0]
			if c.Image != image || !*c.Started || c.State.Running.StartedAt.IsZero() || got.Conditions[0].Status != v1.ConditionTrue || got.PodIPs[0].IP != "10.0.0.7" {
				t.Fatalf("the caller's changes reached the cache: %+v", got)
			}
		}
	})
}

func TestSM8AStatusThatWasReadStaysAsItWas(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web", func(p *v1.Pod) { p.Spec.Containers[0].ReadinessProbe = &v1.Probe{} })
		n.SetPodStatus(p, runningStatus())
		before, _ := n.GetPodStatus(p.UID)
		copied := before.DeepCopy()
		n.SetContainerReadiness(p.UID, containerID("1"), false)
		n.SetPodStatus(p, succeededStatus())
		if diff := cmp.Diff(copied, &before); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestSM10AnUnchangedStatusOfADeletedPodIsLookedAtAgain(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		_, first := n.SetPodStatus(p, runningStatus())
		_, again := n.SetPodStatus(p, runningStatus())
		p = p.DeepCopy()
		p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		_, deleted := n.SetPodStatus(p, runningStatus())
		if !first || again || !deleted {
			t.Fatalf("new: %v, unchanged: %v, unchanged and deleted: %v; want true, false, true", first, again, deleted)
		}
	})
}

func TestSM12AProbeResultThatFindsNobodyIsIgnored(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web", func(p *v1.Pod) { p.Spec.Containers[0].ReadinessProbe = &v1.Probe{} })
		n.SetContainerReadiness("nobody", containerID("1"), false)
		n.SetContainerReadiness(p.UID, containerID("1"), false) // nothing cached yet
		if _, known := n.GetPodStatus(p.UID); known {
			t.Fatal("a result made a status")
		}
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.faults.Forget()
		n.SetContainerReadiness(p.UID, containerID("of another life"), false) // SM-14
		n.SetContainerReadiness(p.UID, containerID("1"), true)                // as it is
		if got, _ := n.GetPodStatus(p.UID); !got.ContainerStatuses[0].Ready || n.writes("PATCH") != 0 {
			t.Fatalf("a result for nobody changed something: %+v", got)
		}
	})
}

func TestSM15TheFirstStartupResultIsRecorded(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web", func(p *v1.Pod) { p.Spec.Containers[0].StartupProbe = &v1.Probe{} })
		s := runningStatus()
		s.ContainerStatuses[0].Started = nil
		s.ContainerStatuses[0].Ready = false
		n.SetPodStatus(p, s)
		for _, started := range []bool{false, true} {
			n.SetContainerStartup(p.UID, containerID("1"), started)
			if got, _ := n.GetPodStatus(p.UID); got.ContainerStatuses[0].Started == nil || *got.ContainerStatuses[0].Started != started {
				t.Fatalf("started is %v, want %v", got.ContainerStatuses[0].Started, started)
			}
		}
	})
}

func TestSM21AfterARestartHistoryGoesOnFromThePublishedStatus(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		long := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
		p := n.bound("web").DeepCopy()
		p.Status = runningStatus()
		p.Status.StartTime = &long
		for i := range p.Status.Conditions {
			p.Status.Conditions[i].LastTransitionTime = long
		}
		n.SetPodStatus(p, runningStatus())
		got, _ := n.GetPodStatus(p.UID)
		if !got.StartTime.Equal(&long) || conditionOf(got, v1.PodReady).LastTransitionTime != long {
			t.Fatalf("start %v, ready since %v; want %v (SM-24, SM-25)", got.StartTime, conditionOf(got, v1.PodReady).LastTransitionTime, long)
		}
	})
}

func TestSM22OnlyAStaticPodMayComeBackFromBeingFinished(t *testing.T) {
	for name, static := range map[string]bool{"API pod": false, "static pod": true} {
		t.Run(name, func(t *testing.T) {
			onNode(t, nil, func(t *testing.T, n *node) {
				changes := collectChanges(t, n)
				p := n.bound("web").DeepCopy()
				if static {
					p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
				}
				n.SetPodStatus(p, runningStatus())
				n.TerminatePod(p)
				s := runningStatus()
				s.ContainerStatuses[0].ContainerID = "test://2"
				n.SetPodStatus(p, s)
				all := changes()
				if last := all[len(all)-1]; last.Finished == static {
					t.Fatalf("finished is %v after a new status", last.Finished)
				}
			})
		})
	}
}

func TestSM23AContainerThatCannotDoThatKeepsItsStatus(t *testing.T) {
	var log strings.Builder
	logTo := func(c *status.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
	onNode(t, logTo, func(t *testing.T, n *node) {
		p := n.bound("job", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever })
		n.SetPodStatus(p, succeededStatus())
		synctest.Wait()
		n.faults.Forget()
		if _, changed := n.SetPodStatus(p, runningStatus()); changed || n.shown(p).Phase != v1.PodSucceeded || n.writes("PATCH") != 0 {
			t.Fatal("a run-once container runs again")
		}
		if !strings.Contains(log.String(), "shop/job") {
			t.Fatalf("the log does not name the pod: %s", log.String())
		}
	})
}

func TestSM31EachEndOfAContainerIsCountedOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	onNode(t, func(c *status.Config) { c.Metrics = registry }, func(t *testing.T, n *node) {
		p := n.bound("job")
		n.SetPodStatus(p, runningStatus())
		for range 3 {
			n.SetPodStatus(p, succeededStatus())
		}
		want := `
			# HELP kubelet_terminated_containers_total Terminated containers.
			# TYPE kubelet_terminated_containers_total counter
			kubelet_terminated_containers_total{container_type="container",exit_code="0",reason="Completed"} 1
		`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubelet_terminated_containers_total"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSM33AnEqualStatusIsNoNewVersionAndNoRequest(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		changes := collectChanges(t, n)
		p := n.bound("web")
		for range 10 {
			n.SetPodStatus(p, runningStatus())
		}
		if sent := n.writes("PATCH"); sent != 1 || len(changes()) != 1 {
			t.Fatalf("%d requests, %d changes; want 1 each", sent, len(changes()))
		}
	})
}

func TestSM34VersionsOnlyRiseAlsoAfterAPodWasForgotten(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		changes := collectChanges(t, n)
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		n.RemoveOrphanedStatuses(nil)
		n.SetPodStatus(p, runningStatus()) // SM-79
		n.SetPodStatus(p, succeededStatus())
		var last uint64
		for _, c := range changes() {
			if !c.Removed && c.Version <= last {
				t.Fatalf("version %d after %d", c.Version, last)
			}
			last = c.Version
		}
		if got := n.shown(p); got.Phase != v1.PodSucceeded {
			t.Fatalf("SM-79: the API server shows %s without waiting for the full pass", got.Phase)
		}
	})
}

func TestSM36ChangesReachEverySubscriberOnceAndInOrder(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		quick, slow := collectChanges(t, n), n.Changes(t.Context()) // nobody reads slow yet
		var setters sync.WaitGroup
		const pods, updates = 5, 20
		for i := range pods {
			p := n.bound(fmt.Sprintf("web-%d", i))
			setters.Go(func() {
				for u := range updates {
					s := runningStatus()
					s.Message = fmt.Sprint(u)
					n.SetPodStatus(p, s)
				}
			})
		}
		setters.Wait()
		synctest.Wait()
		var late []status.Change
		for c := range slow {
			if late = append(late, c); len(late) == pods*updates {
				break
			}
		}
		for name, got := range map[string][]status.Change{"quick": quick(), "slow": late} {
			seen := map[types.UID]int{}
			for _, c := range got {
				if want := fmt.Sprint(seen[types.UID(c.UID)]); c.Status.Message != want {
					t.Fatalf("the %s subscriber got change %s of a pod, want %s", name, c.Status.Message, want)
				}
				seen[types.UID(c.UID)]++
			}
			if len(got) != pods*updates {
				t.Fatalf("the %s subscriber got %d changes, want %d", name, len(got), pods*updates)
			}
		}
	})
}

func TestSM38TheStatusTellsWhichGenerationItIsAbout(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web").DeepCopy()
		p.Generation = 7
		n.SetPodStatus(p, runningStatus())
		older := p.DeepCopy()
		older.Generation = 6
		n.SetPodStatus(older, runningStatus()) // SM-27
		if got, _ := n.GetPodStatus(p.UID); got.ObservedGeneration != 7 {
			t.Fatalf("observed generation is %d", got.ObservedGeneration)
		}
	})
}

func TestSM78OrphansAreForgottenAndMirrorsKeepTheirStaticPods(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		gone := n.bound("gone")
		n.SetPodStatus(gone, runningStatus())
		static, mirror := n.mirrored("etcd-n1")
		n.SetPodStatus(static, runningStatus())
		n.RemoveOrphanedStatuses(map[types.UID]bool{mirror.UID: true})
		_, known := n.GetPodStatus(gone.UID)
		_, kept := n.GetPodStatus(mirror.UID) // SM-6
		if known || !kept {
			t.Fatalf("orphan known: %v, static pod known by its mirror's UID: %v", known, kept)
		}
	})
}

// collectChanges subscribes and returns what came so far.
func collectChanges(t *testing.T, n *node) func() []status.Change {
	t.Helper()
	var mu sync.Mutex
	var all []status.Change
	changes := n.Changes(t.Context())
	go func() {
		for c := range changes {
			mu.Lock()
			all = append(all, c)
			mu.Unlock()
		}
	}()
	return func() []status.Change {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return append([]status.Change(nil), all...)
	}
}
