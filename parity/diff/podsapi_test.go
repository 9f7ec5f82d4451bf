package diff_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/pkg/apis/pods/v1alpha1"
	kubeletpods "k8s.io/kubernetes/pkg/kubelet/apis/pods"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/podsapi"
	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/source"
)

// podsPair is two nodes with the same pods: one serves the kubelet's Pods API, the other Herald's. Herald's agent runs the pods, and
// its statuses are passed to the kubelet's status manager.
type podsPair struct {
	t        *testing.T
	pods     kubeletpod.Manager
	statuses *kubelet.StatusManager
	agent    *agent.Agent
	runtime  *fakeruntime.Runtime
	sinks    map[podid.Source]source.Sink
	theirs   v1alpha1.PodsClient
	ours     v1alpha1.PodsClient
	stop     func()
}

type sinkSource struct {
	name podid.Source
	sink chan source.Sink
}

func (s sinkSource) Name() podid.Source { return s.name }

func (s sinkSource) Run(ctx context.Context, sink source.Sink) error {
	s.sink <- sink
	<-ctx.Done()
	return nil
}

func newPodsPair(t *testing.T) *podsPair {
	t.Helper()
	p := &podsPair{t: t, pods: kubeletpod.NewBasicPodManager(), runtime: fakeruntime.New(), sinks: map[podid.Source]source.Sink{}}
	p.statuses = kubelet.NewStatusManager(nil, p.pods, kubeletDeletion{newRuntimeState()})
	kubeletServer := kubeletpods.NewPodsServer(kubeletpods.NewBroadcaster(), p.pods, p.statuses.Manager)
	p.statuses.AddPodUpdateNotifier(kubeletServer)
	dir := t.TempDir()
	theirs, ours := filepath.Join(dir, "kubelet.sock"), filepath.Join(dir, "herald.sock")
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	listener, err := server.Listen(ctx, "unix://"+theirs)
	if err != nil {
		t.Fatal(err)
	}
	grpcServer := grpc.NewServer()
	v1alpha1.RegisterPodsServer(grpcServer, kubeletServer)
	running.Go(func() { _ = grpcServer.Serve(listener) })
	context.AfterFunc(ctx, grpcServer.Stop)
	p.startHerald(ctx, &running, ours)
	connections := []*grpc.ClientConn{}
	for i, socket := range []string{theirs, ours} {
		connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
		if err != nil {
			t.Fatal(err)
		}
		connections = append(connections, connection)
		*[]*v1alpha1.PodsClient{&p.theirs, &p.ours}[i] = v1alpha1.NewPodsClient(connection)
	}
	p.stop = sync.OnceFunc(func() {
		for _, connection := range connections {
			_ = connection.Close()
		}
		cancel()
		running.Wait()
	})
	t.Cleanup(p.stop)
	return p
}

func (p *podsPair) startHerald(ctx context.Context, running *sync.WaitGroup, socket string) {
	p.t.Helper()
	sources := []sinkSource{{podid.API, make(chan source.Sink, 1)}, {podid.File, make(chan source.Sink, 1)}}
	var err error
	p.agent, err = agent.New(agent.Config{
		NodeName: "n1", Sources: []source.Source{sources[0], sources[1]}, Runtime: p.runtime, Events: event.Discard,
		HousekeepingInterval: 20 * time.Millisecond,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	heraldServer, err := podsapi.New(podsapi.Config{
		Agent: p.agent, Ready: p.agent.Sources.AllReady, QPS: 1e6, Burst: 1e6,
		Listen: func(ctx context.Context) (net.Listener, error) { return server.Listen(ctx, "unix://"+socket) },
	})
	if err != nil {
		p.t.Fatal(err)
	}
	running.Go(func() { _ = p.agent.Run(ctx) })
	running.Go(func() { _ = heraldServer.Run(ctx) })
	for _, s := range sources {
		p.sinks[s.name] = <-s.sink
		p.sinks[s.name].Replace([]*v1.Pod{})
	}
	heraldtest.Eventually(p.t, func() error {
		if !p.agent.Sources.AllReady() {
			return errors.New("the sources are not ready")
		}
		return nil
	})
}

// update adds or changes a pod on both nodes, and waits until Herald has it.
func (p *podsPair) update(from podid.Source, pod *v1.Pod) {
	p.t.Helper()
	p.sinks[from].Apply([]*v1.Pod{pod}, nil)
	if podid.IsMirror(pod) {
		p.pods.UpdatePod(pod)
		return
	}
	heraldtest.Eventually(p.t, func() error {
		local, found := p.agent.LocalPodByUID(pod.UID)
		if !found || local.Generation != pod.Generation || local.Status.Phase != v1.PodRunning {
			return fmt.Errorf("pod %s: found %v", pod.Name, found)
		}
		return nil
	})
	p.report(pod.UID)
}

// report gives the kubelet's managers the pod of Herald's sources, which annotate it, and its status.
func (p *podsPair) report(uid types.UID) {
	pod, _ := p.agent.Pods.GetPodByUID(podid.UID(uid))
	p.pods.UpdatePod(pod)
	status, _ := p.agent.Statuses.GetPodStatus(uid)
	p.statuses.SetPodStatus(pod, *status.DeepCopy())
}

// remove ends a pod on both nodes.
func (p *podsPair) remove(from podid.Source, pod *v1.Pod) {
	p.t.Helper()
	p.sinks[from].Apply(nil, []types.UID{pod.UID})
	heraldtest.Eventually(p.t, func() error {
		if _, found := p.agent.LocalPodByUID(pod.UID); found {
			return fmt.Errorf("pod %s is still there", pod.Name)
		}
		return nil
	})
	p.statuses.TerminatePod(pod)
	p.pods.RemovePod(pod)
	remaining := map[types.UID]bool{}
	for _, other := range p.pods.GetPods() {
		remaining[other.UID] = true
	}
	p.statuses.RemoveOrphanedStatuses(remaining)
}

func decodePod(t *testing.T, data []byte) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{}
	if err := pod.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	return pod
}

// comparePods reports how two pods differ by more than what each status manager adds of its own.
func comparePods(theirs, ours *v1.Pod) string {
	return gocmp.Diff(theirs, ours, cmpopts.EquateEmpty(), cmpopts.IgnoreTypes(metav1.Time{}, &metav1.Time{}),
		cmpopts.IgnoreFields(v1.PodCondition{}, "ObservedGeneration"), cmpopts.IgnoreFields(v1.PodStatus{}, "ObservedGeneration"))
}

func (p *podsPair) compareLists() {
	p.t.Helper()
	lists := [2][]*v1.Pod{}
	for i, client := range []v1alpha1.PodsClient{p.theirs, p.ours} {
		response, err := client.ListPods(p.t.Context(), &v1alpha1.ListPodsRequest{})
		if err != nil {
			p.t.Fatal(err)
		}
		for _, data := range response.GetPods() {
			lists[i] = append(lists[i], decodePod(p.t, data))
		}
	}
	if len(lists[0]) != len(lists[1]) {
		p.t.Fatalf("got %d pods, theirs %d", len(lists[1]), len(lists[0]))
	}
	for i, theirs := range lists[0] {
		if diff := comparePods(theirs, lists[1][i]); diff != "" {
			p.t.Errorf("pod %s (-theirs +ours):\n%s", theirs.Name, diff)
		}
		for _, client := range []v1alpha1.PodsClient{p.theirs, p.ours} {
			got, err := client.GetPod(p.t.Context(), &v1alpha1.GetPodRequest{PodUID: string(theirs.UID)})
			if err != nil {
				p.t.Errorf("GetPod %s: %v", theirs.Name, err)
			} else if diff := comparePods(theirs, decodePod(p.t, got.GetPod())); diff != "" {
				p.t.Errorf("GetPod %s: %s", theirs.Name, diff)
			}
		}
	}
}

// podsReplica is what a client knows from a watch, with upserts.
type podsReplica struct {
	mu     sync.Mutex // guards pods and events
	pods   map[types.UID]*v1.Pod
	events []string
	err    error
}

func (p *podsPair) watch(ctx context.Context, client v1alpha1.PodsClient) *podsReplica {
	p.t.Helper()
	stream, err := client.WatchPods(ctx, &v1alpha1.WatchPodsRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	r := &podsReplica{pods: map[types.UID]*v1.Pod{}}
	go func() {
		for {
			event, err := stream.Recv()
			r.mu.Lock()
			if r.err = err; err != nil {
				r.mu.Unlock()
				return
			}
			pod := &v1.Pod{}
			_ = pod.Unmarshal(event.GetPod()) // it was compared in the lists
			r.events = append(r.events, fmt.Sprintf("%s %s", event.GetType(), pod.Name))
			switch event.GetType() {
			case v1alpha1.EventType_DELETED:
				delete(r.pods, pod.UID)
			case v1alpha1.EventType_INITIAL_SYNC_COMPLETE:
			default:
				r.pods[pod.UID] = pod
			}
			r.mu.Unlock()
		}
	}()
	return r
}

func (r *podsReplica) snapshot() (map[types.UID]*v1.Pod, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.pods), slices.Clone(r.events)
}

func newNodePod(name string, uid types.UID) *v1.Pod {
	pod := newPodWithRole(apiRole, name, uid)
	pod.Generation, pod.Spec = 1, v1.PodSpec{
		NodeName: "n1", RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "main", Image: "example.test/main"}},
		TerminationGracePeriodSeconds: new(int64),
	}
	return pod
}

// Lists and lookups are the kubelet's, and in the end clients of both nodes have the same pods.
func TestPodsAPI_SameAsKubelet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newPodsPair(t)
		defer p.stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		replicas := []*podsReplica{p.watch(ctx, p.theirs), p.watch(ctx, p.ours)}
		pods, serial := map[types.UID]*v1.Pod{}, 0
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			uids := slices.Sorted(maps.Keys(pods))
			switch step := rapid.SampledFrom([]string{"add", "add", "change", "remove"}).Draw(rt, "step"); {
			case step == "add" || len(uids) == 0:
				serial++
				pod := newNodePod(fmt.Sprintf("p%d", serial), types.UID(fmt.Sprintf("u%d", serial)))
				pods[pod.UID] = pod
				p.update(podid.API, pod)
			case step == "change":
				uid := rapid.SampledFrom(uids).Draw(rt, "pod")
				changed := pods[uid].DeepCopy()
				changed.Generation++
				changed.Labels = map[string]string{"generation": fmt.Sprint(changed.Generation)}
				pods[uid] = changed
				p.update(podid.API, changed)
			default:
				uid := rapid.SampledFrom(uids).Draw(rt, "pod")
				p.remove(podid.API, pods[uid])
				delete(pods, uid)
			}
			p.compareLists()
		}
		heraldtest.Eventually(t, func() error {
			theirs, theirEvents := replicas[0].snapshot()
			ours, ourEvents := replicas[1].snapshot()
			if !slices.Equal(slices.Sorted(maps.Keys(theirs)), slices.Sorted(maps.Keys(pods))) {
				return fmt.Errorf("theirs: %q", theirEvents)
			}
			for uid, pod := range theirs {
				if ours[uid] == nil || comparePods(pod, ours[uid]) != "" {
					return fmt.Errorf("got %v of %q, theirs %v of %q", ours[uid], ourEvents, pod, theirEvents)
				}
			}
			if len(ours) != len(theirs) {
				return fmt.Errorf("got %q, theirs %q", ourEvents, theirEvents)
			}
			return nil
		})
	})
}

func TestPGA3_MirrorPod(t *testing.T) {
	p := newPodsPair(t)
	static, mirror := newPodWithRole(staticRole, "web", "static"), newPodWithRole(mirrorRole, "web", "mirror")
	static.Spec = newNodePod("web", "").Spec
	mirror.Spec = static.Spec
	p.update(podid.File, static)
	p.update(podid.API, mirror)
	_, err := p.theirs.GetPod(t.Context(), &v1alpha1.GetPodRequest{PodUID: "mirror"})
	if grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("theirs: got %v, want NotFound", err)
	}
	heraldtest.Eventually(t, func() error {
		got, err := p.ours.GetPod(t.Context(), &v1alpha1.GetPodRequest{PodUID: "mirror"})
		if err == nil && decodePod(t, got.GetPod()).UID != "static" {
			err = errors.New("another pod")
		}
		return err
	})
	p.compareLists()
}

// A pod that has succeeded is DELETED to clients of the kubelet, which lists it still.
func TestPGA4_FinishedPod(t *testing.T) {
	p := newPodsPair(t)
	pod := newNodePod("job", "u1")
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	p.update(podid.API, pod)
	theirs, ours := p.watch(t.Context(), p.theirs), p.watch(t.Context(), p.ours)
	p.runtime.ExitContainer("u1", "main", 0)
	heraldtest.Eventually(t, func() error {
		if local, _ := p.agent.LocalPodByUID("u1"); local.Status.Phase != v1.PodSucceeded {
			return fmt.Errorf("phase %s", local.Status.Phase)
		}
		return nil
	})
	p.report("u1")
	p.statuses.TerminatePod(pod)
	p.compareLists() // both have it
	heraldtest.Eventually(t, func() error {
		if pods, events := theirs.snapshot(); len(pods) > 0 {
			return fmt.Errorf("theirs: got %q, want a deletion", events)
		}
		if pods, events := ours.snapshot(); pods["u1"] == nil || pods["u1"].Status.Phase != v1.PodSucceeded {
			return fmt.Errorf("ours: got %q, want the end", events)
		}
		return nil
	})
}

// A change of the spec alone reaches clients of Herald.
func TestPGA7_SpecOnly(t *testing.T) {
	p := newPodsPair(t)
	pod := newNodePod("web", "u1")
	p.update(podid.API, pod)
	theirs, ours := p.watch(t.Context(), p.theirs), p.watch(t.Context(), p.ours)
	for _, r := range []*podsReplica{theirs, ours} {
		heraldtest.Eventually(t, func() error {
			if _, events := r.snapshot(); !slices.Contains(events, "INITIAL_SYNC_COMPLETE ") {
				return fmt.Errorf("got %q", events)
			}
			return nil
		})
	}
	changed := pod.DeepCopy()
	changed.Labels = map[string]string{"tier": "front"}
	p.update(podid.API, changed)
	heraldtest.Eventually(t, func() error {
		if pods, events := ours.snapshot(); pods["u1"].Labels["tier"] != "front" {
			return fmt.Errorf("ours: got %q", events)
		}
		return nil
	})
	p.update(podid.API, newNodePod("next", "u2")) // after which theirs must have been told of all before
	heraldtest.Eventually(t, func() error {
		if pods, events := theirs.snapshot(); pods["u2"] == nil {
			return fmt.Errorf("theirs: got %q", events)
		}
		return nil
	})
	if pods, events := theirs.snapshot(); pods["u1"].Labels["tier"] == "front" {
		t.Errorf("theirs: got %q: the kubelet announces changes of the spec now", events)
	}
}
