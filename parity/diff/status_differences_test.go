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

// withNodePair runs a test on a pair of nodes in memory.
func withNodePair(t *testing.T, configure func(*status.Config), test func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode)) {
	t.Helper()
	disableErrorBackoff(t)
	synctest.Test(t, func(t *testing.T) {
		pair := newMemoryPair(t, configure)
		defer pair.stop()
		test(t, pair, pair.nodes[0], pair.nodes[1])
	})
}

// startPod creates a pod whose containers all run.
func (pair *nodePair) startPod(name string) *podSim {
	pair.ensurePod(name)
	sim := pair.latest(name)
	for number := range len(sim.inits) + len(sim.regulars) {
		sim.advance(number, 0)
	}
	return sim
}

// apiStatus returns the pod's status in the API server once everything is idle.
func (n *pairedNode) apiStatus(name string) v1.PodStatus {
	synctest.Wait()
	if p := n.cluster.getPod(name); p != nil {
		return p.Status
	}
	return v1.PodStatus{}
}

// isFirstContainerReady reports whether the node's status shows the pod's first container as ready.
func (n *pairedNode) isFirstContainerReady(sim *podSim) bool {
	s, _ := n.GetPodStatus(n.pods[sim].UID)
	return s.ContainerStatuses[0].Ready
}

func countInPhase(n *pairedNode, sims []*podSim, phase v1.PodPhase) (count int) {
	for _, sim := range sims {
		if n.apiStatus(sim.name).Phase == phase {
			count++
		}
	}
	return count
}

func TestBUG1_SlowServer(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		var sims []*podSim
		for i := range 16 {
			sims = append(sims, pair.startPod(fmt.Sprintf("web-%d", i)))
		}
		pair.addFault(func() *fault.Rule { return fault.On("PATCH", "/pods/").Delay(time.Second) })
		for _, sim := range sims {
			pair.setStatus(sim)
		}
		time.Sleep(1500 * time.Millisecond)
		if visible := countInPhase(kubelet, sims, v1.PodRunning); visible != 1 {
			t.Errorf("the kubelet no longer has this fault: got %d visible pods", visible)
		}
		if visible := countInPhase(herald, sims, v1.PodRunning); visible != len(sims) {
			t.Errorf("Herald: got %d visible pods, want %d", visible, len(sims))
		}
	})
}

func TestBUG2_OneRequestPerChange(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		pair.setStatus(pair.startPod(jobPod))
		time.Sleep(quietPeriod)
		if counts := kubelet.countRequests(); counts != (requestCounts{gets: 1, patches: 1}) {
			t.Errorf("the kubelet no longer has this fault: %+v", counts)
		}
		if counts := herald.countRequests(); counts != (requestCounts{patches: 1}) {
			t.Errorf("Herald: got requests %+v for one change, want one patch", counts)
		}
	})
}

func TestBUG3_TerminationFirst(t *testing.T) {
	oneWorker := func(c *status.Config) { c.Workers = 1 }
	withNodePair(t, oneWorker, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		job := pair.startPod(jobPod)
		var sims []*podSim
		for i := range 20 {
			sims = append(sims, pair.startPod(fmt.Sprintf("web-%d", i)))
		}
		pair.addFault(func() *fault.Rule { return fault.On("PATCH", "/pods/").Delay(time.Second) })
		for _, sim := range sims {
			pair.setStatus(sim)
		}
		time.Sleep(1500 * time.Millisecond)
		pair.forEachNode(job, func(n *pairedNode, p *v1.Pod) { n.runtime.set(p.UID, false) })
		job.advance(0, 0)
		job.advance(1, 1)
		pair.setStatus(job)
		time.Sleep(2 * time.Second)
		if phase := kubelet.apiStatus(jobPod).Phase; phase == v1.PodFailed {
			t.Error("the kubelet no longer has this fault")
		}
		if phase := herald.apiStatus(jobPod).Phase; phase != v1.PodFailed {
			t.Errorf("Herald: termination is queued behind %d changes: got phase %s, want Failed", len(sims), phase)
		}
	})
}

func TestBUG6_QuickRetry(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		sim := pair.startPod(jobPod)
		time.Sleep(time.Second) // after a full pass and long before the next
		pair.addFault(func() *fault.Rule { return fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusInternalServerError) })
		pair.setStatus(sim)
		time.Sleep(time.Second)
		if phase := kubelet.apiStatus(jobPod).Phase; phase != v1.PodPending {
			t.Errorf("the kubelet no longer has this fault: got phase %s", phase)
		}
		if phase := herald.apiStatus(jobPod).Phase; phase != v1.PodRunning {
			t.Errorf("Herald: got phase %s a second after one failure, want Running", phase)
		}
	})
}

func TestBUG7_StaleStatus(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		sim := pair.startPod("web-0")
		pair.setStatus(sim)
		pair.reportStale(sim, 0)
		if kubelet.isFirstContainerReady(sim) {
			t.Error("the kubelet no longer has this fault")
		}
		if !herald.isFirstContainerReady(sim) {
			t.Error("Herald: an older status undid the probe result")
		}
	})
}

func TestBUG8_MirrorRecreated(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		sim := pair.startPod(staticPod)
		pair.setStatus(sim)
		pair.addFault(func() *fault.Rule { return fault.On("watch", "/pods").Stall() })
		pair.kubectlDelete(sim, 0)
		pair.ensurePod(staticPod)
		sim.advance(0, 1)
		pair.setStatus(sim)
		if _, found := kubelet.GetPodStatus(kubelet.pods[sim].UID); found {
			t.Error("the kubelet no longer has this fault: got a status")
		}
		if _, found := herald.GetPodStatus(herald.pods[sim].UID); !found {
			t.Error("Herald: dropped the status of a running pod")
		}
		for _, clear := range pair.clearFaults {
			clear()
		}
		time.Sleep(quietPeriod)
		if shown := kubelet.apiStatus(staticPod); len(shown.ContainerStatuses) != 0 {
			t.Error("the kubelet no longer has this fault: it updates the new mirror pod")
		}
		if shown := herald.apiStatus(staticPod); len(shown.ContainerStatuses) != 1 {
			t.Errorf("Herald: got mirror pod status %+v, want one container", shown)
		}
	})
}

func TestBUG9_LaggingWatch(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		sim := pair.startPod(jobPod)
		pair.addFault(func() *fault.Rule { return fault.On("watch", "/pods").Stall() })
		pair.setStatus(sim)
		for _, n := range pair.nodes {
			n.faults.ClearRequests()
		}
		time.Sleep(35 * time.Second)
		if counts := kubelet.countRequests(); counts.gets != 3 {
			t.Errorf("the kubelet no longer has this fault: got requests %+v in three full passes", counts)
		}
		if counts := herald.countRequests(); counts != (requestCounts{}) {
			t.Errorf("Herald: got requests %+v for an acknowledged status, want none", counts)
		}
	})
}

// syncDurations returns a registry's samples of the sync duration.
func syncDurations(t *testing.T, registry prometheus.Gatherer) (samples uint64, seconds float64) {
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

func TestBUG5_SyncDuration(t *testing.T) {
	kubeletmetrics.Register()
	registry := prometheus.NewRegistry()
	withMetrics := func(c *status.Config) { c.Metrics = registry }
	withNodePair(t, withMetrics, func(t *testing.T, pair *nodePair, _, _ *pairedNode) {
		_, secondsBefore := syncDurations(t, kubeletmetrics.GetGather())
		sim := pair.startPod("web-0")
		for range 3 {
			pair.setStatus(sim)
			time.Sleep(2 * time.Second)
			sim.advance(0, 1)
		}
		if _, seconds := syncDurations(t, kubeletmetrics.GetGather()); seconds-secondsBefore != 0+2+4 {
			t.Errorf("the kubelet no longer has this fault: got %v s for three immediate syncs", seconds-secondsBefore)
		}
		if samples, seconds := syncDurations(t, registry); samples != 3 || seconds != 0 {
			t.Errorf("Herald: got %d samples of %v s for three immediate syncs, want 3 of 0 s", samples, seconds)
		}
	})
}

// checkpointDir is where Herald's node keeps its checkpoints. It must be opened and closed in the same bubble.
type checkpointDir struct {
	t    *testing.T
	path string
	dir  *checkpoint.Dir
}

// reopen opens the directory again for the next start of the node.
func (f *checkpointDir) reopen(c *status.Config) {
	f.close()
	var err error
	if f.dir, err = checkpoint.Open(f.path, checkpoint.Options{}); err != nil {
		f.t.Fatal(err)
	}
	c.State = f.dir
}

func (f *checkpointDir) close() {
	if f.dir != nil {
		_ = f.dir.Close()
	}
}

func TestBUG10_TerminationAfterRestart(t *testing.T) {
	dir := &checkpointDir{t: t, path: t.TempDir()}
	withNodePair(t, dir.reopen, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		defer dir.close()
		defer pair.stop()
		sim := pair.startPod(jobPod)
		pair.setStatus(sim)
		pair.forEachServer(func(m *memoryCluster) { m.SetDown(true) })
		pair.finishPod(sim)
		pair.restart()
		pair.forEachServer(func(m *memoryCluster) { m.SetDown(false) })
		time.Sleep(time.Minute)
		if phase := kubelet.apiStatus(jobPod).Phase; phase != v1.PodRunning {
			t.Errorf("the kubelet no longer has this fault: got phase %s", phase)
		}
		if phase := herald.apiStatus(jobPod).Phase; phase != v1.PodFailed {
			t.Errorf("Herald: got phase %s", phase)
		}
	})
}

func TestBUG12_RestartWithoutAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, p := newPodSim(staticPod, 1), newStaticPod(staticPod)
		kubeletPods, heraldPods := kubeletpod.NewBasicPodManager(), pod.NewManager()
		kubeletPods.AddPod(p)
		heraldPods.AddPod(p)
		dir := &checkpointDir{t: t, path: t.TempDir()}
		defer dir.close()
		start := func() (*kubelet.StatusManager, *status.Manager, func()) {
			config := status.Config{Pods: heraldPods}
			dir.reopen(&config)
			manager, err := status.New(config)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = manager.Run(ctx) })
			return kubelet.NewStatusManager(nil, kubeletPods, nil), manager, func() { cancel(); running.Wait() }
		}
		theirs, ours, stop := start()
		theirs.SetPodStatus(p, sim.status(p))
		before, _ := ours.SetPodStatus(p, sim.status(p))
		stop()
		time.Sleep(time.Hour)
		theirs, ours, stop = start()
		defer stop()
		if _, found := theirs.GetPodStatus(p.UID); found {
			t.Error("the kubelet no longer has this fault")
		}
		if after, found := ours.GetPodStatus(p.UID); !found || !after.StartTime.Equal(before.StartTime) {
			t.Errorf("Herald: got status %+v after the restart, want the same start time", after)
		}
	})
}

// nodeGetter reads the Node object for the kubelet's mirror client.
type nodeGetter struct{ *kubeapi.Client }

func (n nodeGetter) Get(name string) (*v1.Node, error) { return n.GetNode(context.Background(), name) }

func TestBUG15_ExistingMirror(t *testing.T) {
	disableErrorBackoff(t)
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
		p := newStaticPod(staticPod)
		p.Namespace, p.Spec.NodeName = "shop", owner.Name
		theirs := kubeletpod.NewBasicMirrorClient(clientset, owner.Name, nodeGetter{client})
		if err := theirs.CreateMirrorPod(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if err := theirs.CreateMirrorPod(t.Context(), p); !apierrors.IsAlreadyExists(err) {
			t.Errorf("the kubelet no longer has this fault: %v", err)
		}
		pods := pod.NewManager() // as after a restart: the watch has not shown the mirror pod yet
		pods.AddPod(p)
		ours, err := podmirror.New(podmirror.Config{
			NodeName: owner.Name, Pods: pods, API: client,
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
			t.Errorf("Herald: got conflicts %v and %d create requests, want none and 3", conflicts, len(server.Requests("create")))
		}
		cancel()
		running.Wait()
	})
}

func TestSM15_ReadyAfterStartup(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		sim := pair.startPod(webPod)
		pair.setStatus(sim)
		pair.forEachNode(sim, func(n *pairedNode, p *v1.Pod) { n.SetContainerStartup(p.UID, sim.inits[0].ContainerID, true) })
		ready := func(n *pairedNode) bool { return n.apiStatus(webPod).InitContainerStatuses[0].Ready }
		if ready(kubelet) {
			t.Error("the kubelet no longer differs")
		}
		if !ready(herald) {
			t.Error("Herald: got a started sidecar that is not ready")
		}
	})
}

func TestSM17_StaticPodTerminatedAtOnce(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		sim := pair.startPod(staticPod)
		pair.setStatus(sim)
		pair.restart()
		pair.forEachNode(sim, func(n *pairedNode, p *v1.Pod) { n.TerminatePod(p) })
		time.Sleep(quietPeriod)
		if shown := kubelet.apiStatus(staticPod); shown.Phase != "" || len(shown.ContainerStatuses) != 0 {
			t.Errorf("the kubelet no longer differs: %+v", shown)
		}
		if shown := herald.apiStatus(staticPod); shown.Phase != v1.PodRunning || shown.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("Herald: got mirror pod %+v", shown)
		}
	})
}

func TestSM18_LostContainer(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		sim := pair.startPod(staticPod)
		pair.setStatus(sim)
		pair.probe(sim, 0, true)
		pair.forEachNode(sim, func(n *pairedNode, p *v1.Pod) { n.TerminatePod(p) })
		if c := kubelet.apiStatus(staticPod).ContainerStatuses[0]; c.State.Terminated == nil || !c.Ready || !*c.Started {
			t.Errorf("the kubelet no longer differs: %+v", c)
		}
		if c := herald.apiStatus(staticPod).ContainerStatuses[0]; c.State.Terminated == nil || c.Ready || *c.Started {
			t.Errorf("Herald: got container %+v, want terminated, not ready and not started", c)
		}
	})
}

func TestSM24_ForeignCondition(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		sim := pair.startPod("web-0")
		pair.setStatus(sim)
		pair.probe(sim, 0, true)
		time.Sleep(time.Minute)
		pair.updateAsOther(sim.name, foreignWrites[overwriteReady])
		changed := time.Now()
		time.Sleep(quietPeriod)
		ready := func(n *pairedNode) *v1.PodCondition { return findCondition(n.apiStatus(sim.name), v1.PodReady) }
		if c := ready(kubelet); c.Status != v1.ConditionTrue || !c.LastTransitionTime.Time.Before(changed) {
			t.Errorf("the kubelet no longer differs: %+v", c)
		}
		if c := ready(herald); c.Status != v1.ConditionTrue || c.LastTransitionTime.Time.Before(changed) {
			t.Errorf("Herald: got Ready %+v", c)
		}
	})
}

func TestSM53_ForeignWriteCorrected(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		sim := pair.startPod(jobPod)
		pair.setStatus(sim)
		time.Sleep(time.Second)
		pair.updateAsOther(sim.name, func(p *v1.Pod) { p.Status.Phase = v1.PodPending })
		if phase := kubelet.apiStatus(jobPod).Phase; phase != v1.PodPending {
			t.Errorf("the kubelet no longer differs: got phase %s", phase)
		}
		if phase := herald.apiStatus(jobPod).Phase; phase != v1.PodRunning {
			t.Errorf("Herald: got phase %s", phase)
		}
	})
}

func TestSM65_CacheUnchangedBySend(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		sim := pair.startPod(jobPod)
		sim.disrupted = true
		pair.setStatus(sim)
		cachedAt := func(n *pairedNode) time.Time {
			s, _ := n.GetPodStatus(n.pods[sim].UID)
			return findCondition(s, v1.DisruptionTarget).LastTransitionTime.Time
		}
		initial := cachedAt(herald)
		time.Sleep(1500 * time.Millisecond)
		pair.finishPod(sim)
		if at := cachedAt(kubelet); !at.After(initial) || at.Nanosecond() == 0 {
			t.Errorf("the kubelet no longer differs: got cached time %v", at)
		}
		if at := cachedAt(herald); !at.Equal(initial) {
			t.Errorf("Herald: cached time changed from %v to %v", initial, at)
		}
	})
}

func TestSM69_StaticPodTermination(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		sim := pair.startPod(staticPod)
		pair.setStatus(sim)
		sim.advance(0, 1)
		sim.phase = v1.PodFailed
		pair.setStatus(sim)
		time.Sleep(quietPeriod)
		if phase := kubelet.apiStatus(staticPod).Phase; phase != v1.PodFailed {
			t.Errorf("the kubelet no longer differs: got mirror pod phase %s", phase)
		}
		if phase := herald.apiStatus(staticPod).Phase; phase != v1.PodRunning {
			t.Errorf("Herald: got mirror pod phase %s while containers may run, want Running", phase)
		}
		pair.forEachNode(sim, func(n *pairedNode, p *v1.Pod) { n.runtime.set(p.UID, false) })
		time.Sleep(quietPeriod)
		if phase := herald.apiStatus(staticPod).Phase; phase != v1.PodFailed {
			t.Errorf("Herald: got mirror pod phase %s after the containers stopped, want Failed", phase)
		}
	})
}

func TestSM79_StaticPodReturns(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		sim := pair.startPod(staticPod)
		for range 3 {
			pair.setStatus(sim)
			sim.advance(0, 1)
		}
		time.Sleep(11 * time.Second) // just after a full pass
		for _, n := range pair.nodes {
			n.RemoveOrphanedStatuses(nil)
		}
		pair.setStatus(sim)
		restarts := func(n *pairedNode) int32 { return n.apiStatus(staticPod).ContainerStatuses[0].RestartCount }
		state := func(n *pairedNode) bool { return n.apiStatus(staticPod).ContainerStatuses[0].State.Terminated != nil }
		if restarts(kubelet) == sim.regulars[0].RestartCount && state(kubelet) == (sim.regulars[0].State.Terminated != nil) {
			t.Error("the kubelet no longer differs")
		}
		if restarts(herald) != sim.regulars[0].RestartCount || state(herald) != (sim.regulars[0].State.Terminated != nil) {
			t.Errorf("Herald: got mirror pod %+v", herald.apiStatus(staticPod).ContainerStatuses)
		}
	})
}

func TestSM94_ResizeWithoutStatus(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, _ *nodePair, kubelet, _ *pairedNode) {
		theirs := kubelet.statusManager.(*kubeletStatusManager)
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
			t.Errorf("Herald: got conditions %v, want none", left)
		}
	})
}

func TestSM72_DeletedAfterTermination(t *testing.T) {
	withNodePair(t, nil, func(t *testing.T, pair *nodePair, kubelet, herald *pairedNode) {
		sim := pair.startPod(jobPod)
		pair.setStatus(sim)
		pair.kubectlDelete(sim, 30)
		pair.stopContainers(sim)
		time.Sleep(quietPeriod)
		if diff := pair.compare(); diff != "" || herald.apiStatus(jobPod).Phase != v1.PodFailed {
			t.Fatalf("got phase %s; kubelet (-) and Herald (+) differ:\n%s", herald.apiStatus(jobPod).Phase, diff)
		}
		pair.finishPod(sim)
		time.Sleep(quietPeriod)
		if kubelet.cluster.getPod(jobPod) != nil || herald.cluster.getPod(jobPod) != nil {
			t.Error("terminated pod still exists")
		}
	})
}
