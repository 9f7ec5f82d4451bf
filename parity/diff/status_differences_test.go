package diff_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	kubeletmetrics "k8s.io/kubernetes/pkg/kubelet/metrics"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"

	"github.com/heraldnode/herald/allocation"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/pod"
	podmirror "github.com/heraldnode/herald/pod/mirror"
	"github.com/heraldnode/herald/podid"
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

// latencies is what a registry says of the time that changes took to be told.
func latencies(t *testing.T, registry prometheus.Gatherer) (samples uint64, seconds float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "kubelet_pod_status_sync_duration_seconds" {
			h := family.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	return 0, 0
}

func TestBUG5TheLatencyIsThatOfTheChangeAndNotTheAgeOfThePod(t *testing.T) {
	kubeletmetrics.Register()
	registry := prometheus.NewRegistry()
	measured := func(c *status.Config) { c.Metrics = registry }
	onTwins(t, measured, func(t *testing.T, w *twins, _, _ *twin) {
		_, before := latencies(t, kubeletmetrics.GetGather())
		l := w.running("web-0")
		for range 3 {
			w.tell(l)
			time.Sleep(2 * time.Second)
			l.goOn(0, 1)
		}
		if _, seconds := latencies(t, kubeletmetrics.GetGather()); seconds-before != 0+2+4 {
			t.Errorf("the kubelet no longer has this fault: three changes told at once took %v s", seconds-before)
		}
		if samples, seconds := latencies(t, registry); samples != 3 || seconds != 0 {
			t.Errorf("three changes told at once are %d samples of %v s", samples, seconds)
		}
	})
}

// keptFolder is where our node keeps what must survive it. It is opened in a bubble and must be closed there.
type keptFolder struct {
	t    *testing.T
	path string
	open *checkpoint.Dir
}

// reopen lets a start of our node find what the last one left.
func (f *keptFolder) reopen(c *status.Config) {
	f.close()
	var err error
	if f.open, err = checkpoint.Open(f.path, checkpoint.Options{}); err != nil {
		f.t.Fatal(err)
	}
	c.State = f.open
}

func (f *keptFolder) close() {
	if f.open != nil {
		_ = f.open.Close()
	}
}

func TestBUG10AnEndThatCouldNotBeToldIsToldAfterARestart(t *testing.T) {
	folder := &keptFolder{t: t, path: t.TempDir()}
	onTwins(t, folder.reopen, func(t *testing.T, w *twins, kubelet, herald *twin) {
		defer folder.close()
		defer w.stop()
		l := w.running(jobPod)
		w.tell(l)
		w.servers(func(m *memory) { m.SetDown(true) })
		w.end(l)
		w.restart()
		w.servers(func(m *memory) { m.SetDown(false) })
		time.Sleep(time.Minute)
		if phase := kubelet.shown(jobPod).Phase; phase != v1.PodRunning {
			t.Errorf("the kubelet no longer has this fault: the pod is %s", phase)
		}
		if phase := herald.shown(jobPod).Phase; phase != v1.PodFailed {
			t.Errorf("the pod is %s", phase)
		}
	})
}

func TestBUG12WithoutAnAPIServerStatusesSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLife(staticPod, 1), manifestOf(staticPod)
		theirBook, ourBook := kubeletpod.NewBasicPodManager(), pod.NewManager()
		theirBook.AddPod(p)
		ourBook.AddPod(p)
		folder := &keptFolder{t: t, path: t.TempDir()}
		defer folder.close()
		start := func() (*kubelet.StatusManager, *status.Manager, func()) {
			config := status.Config{Pods: ourBook}
			folder.reopen(&config)
			manager, err := status.New(config)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = manager.Run(ctx) })
			return kubelet.NewStatusManager(nil, theirBook, nil), manager, func() { cancel(); running.Wait() }
		}
		theirs, ours, stop := start()
		theirs.SetPodStatus(p, l.status(p))
		before, _ := ours.SetPodStatus(p, l.status(p))
		stop()
		time.Sleep(time.Hour)
		theirs, ours, stop = start()
		defer stop()
		if _, found := theirs.GetPodStatus(p.UID); found {
			t.Error("the kubelet no longer has this fault")
		}
		if after, found := ours.GetPodStatus(p.UID); !found || !after.StartTime.Equal(before.StartTime) {
			t.Errorf("after the restart the status is %+v", after)
		}
	})
}

// nodes reads the Node object as the kubelet's mirror client wants it.
type nodes struct{ *kubeapi.Client }

func (n nodes) Get(name string) (*v1.Node, error) { return n.GetNode(context.Background(), name) }

func TestBUG15AMirrorThatIsThereAlreadyIsNoConflict(t *testing.T) {
	calm(t)
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		owner := server.AddNode("n1")
		clientset, err := kubernetes.NewForConfig(server.Config())
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubeapi.New(server.Config())
		if err != nil {
			t.Fatal(err)
		}
		p := manifestOf(staticPod)
		p.Namespace, p.Spec.NodeName = "shop", owner.Name
		theirs := kubeletpod.NewBasicMirrorClient(clientset, owner.Name, nodes{client})
		if err := theirs.CreateMirrorPod(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if err := theirs.CreateMirrorPod(t.Context(), p); !apierrors.IsAlreadyExists(err) {
			t.Errorf("the kubelet no longer has this fault: %v", err)
		}
		book := pod.NewManager() // as after a restart: the watch has not shown the mirror yet
		book.AddPod(p)
		ours, err := podmirror.New(podmirror.Config{
			NodeName: owner.Name, Pods: book, API: client,
			Terminating: func(podid.FullName) bool { return false }, StaticSourcesReady: func() bool { return true },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = ours.Run(ctx) })
		time.Sleep(time.Second)
		if conflicts := ours.Conflicts(); len(conflicts) != 0 || len(server.Requests("create")) != 3 {
			t.Errorf("conflicts %v after %d requests to create", conflicts, len(server.Requests("create")))
		}
		cancel()
		running.Wait()
	})
}

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
	onTwins(t, nil, func(t *testing.T, _ *twins, kubelet, _ *twin) {
		theirs := kubelet.logbook.(*theirLogbook)
		ours, err := allocation.New(allocation.Config{})
		if err != nil {
			t.Fatal(err)
		}
		theirs.SetPodResizePendingCondition("gone", v1.PodReasonDeferred, "", 1)
		ours.SetPodResizePendingCondition("gone", derive.ResizeCondition{Reason: v1.PodReasonDeferred, Generation: 1})
		theirs.RemoveOrphanedStatuses(nil)
		ours.RemoveOrphanedPods(nil)
		if left := theirs.GetPodResizeConditions("gone"); len(left) == 0 {
			t.Error("the kubelet no longer differs")
		}
		if left := ours.ResizeState("gone").Conditions(); len(left) != 0 {
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
