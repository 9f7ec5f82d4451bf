package diff_test

import (
	"context"
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

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

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
		ours, err := pod.NewMirrors(pod.MirrorConfig{
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
