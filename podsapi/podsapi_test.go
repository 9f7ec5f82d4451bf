package podsapi_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/pkg/apis/pods/v1alpha1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/podsapi"
)

func unchanged(*podsapi.Config) {}

func newPod(name string, uid types.UID) *v1.Pod {
	return heraldtest.NewPod(name, heraldtest.OnNode(nodeName), func(pod *v1.Pod) {
		pod.UID, pod.Generation = uid, 1
		pod.Spec.TerminationGracePeriodSeconds = new(int64)
	})
}

// awaitPhase waits until the node shows the pod in the phase.
func (n *node) awaitPhase(uid types.UID, phase v1.PodPhase) {
	n.tb.Helper()
	heraldtest.Eventually(n.tb, func() error {
		if pod, found := n.agent.LocalPodByUID(uid); !found || pod.Status.Phase != phase {
			return fmt.Errorf("pod %s: found %v, want %s", uid, found, phase)
		}
		return nil
	})
}

// awaitReplica waits until the client has what the node has.
func (n *node) awaitReplica(r *replica) {
	n.tb.Helper()
	heraldtest.Eventually(n.tb, func() error { return r.check(n.agent.LocalPods()) })
}

func TestPGA1_Socket(t *testing.T) {
	n := newNode(t, unchanged)
	n.start(newPod("web", "u1"))
	if _, err := n.client().ListPods(t.Context(), &v1alpha1.ListPodsRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(n.socket)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("got %v (%v), want a socket with mode 0600", info.Mode(), err)
	}
}

func TestPGA2_List(t *testing.T) {
	n := newNode(t, unchanged)
	n.start(newPod("b", "u1"), newPod("a", "u2"), newPod("c", "u0"))
	for _, uid := range []types.UID{"u0", "u1", "u2"} {
		n.awaitPhase(uid, v1.PodRunning)
	}
	response, err := n.client().ListPods(t.Context(), &v1alpha1.ListPodsRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, data := range response.GetPods() {
		pod := &v1.Pod{}
		if err := pod.Unmarshal(data); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s %s %d", pod.UID, pod.Name, pod.Status.Phase, len(pod.Spec.Containers)))
	}
	if want := []string{"u0 c Running 1", "u1 b Running 1", "u2 a Running 1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The UID of a mirror pod, which is the one that users see, stands for its static pod.
func TestPGA3_MirrorUID(t *testing.T) {
	n := newNode(t, unchanged)
	n.start()
	static := heraldtest.NewPod("web", heraldtest.OnNode(nodeName), heraldtest.Static(podid.File))
	static.UID = "static"
	mirror := heraldtest.NewPod("web", heraldtest.OnNode(nodeName))
	mirror.UID = "mirror"
	mirror.Annotations = maps.Clone(static.Annotations)
	mirror.Annotations[podid.MirrorAnnotation] = mirror.Annotations[podid.HashAnnotation]
	mirror.Annotations[podid.SourceAnnotation] = string(podid.API)
	n.files.Replace([]*v1.Pod{static})
	n.awaitPhase("static", v1.PodRunning)
	n.api.Apply([]*v1.Pod{mirror}, nil)
	client := n.client()
	for _, uid := range []string{"static", "mirror"} {
		heraldtest.Eventually(t, func() error {
			response, err := client.GetPod(t.Context(), &v1alpha1.GetPodRequest{PodUID: uid}, grpc.WaitForReady(true))
			if err != nil {
				return err
			}
			pod := &v1.Pod{}
			if err := pod.Unmarshal(response.GetPod()); err != nil {
				t.Fatal(err)
			}
			if pod.UID != "static" || pod.Status.Phase != v1.PodRunning {
				t.Errorf("%s: got the pod %s in phase %s", uid, pod.UID, pod.Status.Phase)
			}
			return nil
		})
	}
	_, err := client.GetPod(t.Context(), &v1alpha1.GetPodRequest{PodUID: "absent"})
	if status.Code(err) != codes.NotFound || status.Convert(err).Message() != "pod with UID absent not found" {
		t.Errorf("absent pod: got %v", err)
	}
}

// A watch yields the pods by UID, then a mark, then what changes: also a pod without a status and a spec without a new status.
func TestPGA4_Watch(t *testing.T) {
	n := newNode(t, unchanged)
	n.start(newPod("b", "u1"), newPod("a", "u2"))
	n.awaitPhase("u1", v1.PodRunning)
	n.awaitPhase("u2", v1.PodRunning)
	r := n.watch(t.Context(), func() {})
	n.awaitReplica(r)
	if want := []string{"ADDED b", "ADDED a", "INITIAL_SYNC_COMPLETE "}; !slices.Equal(r.events, want) {
		t.Errorf("got %q, want %q", r.events, want)
	}
	n.api.Apply([]*v1.Pod{newPod("c", "u3")}, nil)
	n.awaitPhase("u3", v1.PodRunning)
	n.awaitReplica(r)
	n.api.Apply(nil, []types.UID{"u1"})
	heraldtest.Eventually(t, func() error {
		if _, found := n.agent.LocalPodByUID("u1"); found {
			return errors.New("the pod is still there")
		}
		return r.check(n.agent.LocalPods())
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events[len(r.events)-1] != "DELETED b" || !slices.Contains(r.events, "ADDED c") {
		t.Errorf("got %q, want the addition of c and the deletion of b", r.events)
	}
}

func TestPGA7_SpecChange(t *testing.T) {
	n := newNode(t, unchanged)
	pod := newPod("web", "u1")
	n.start(pod)
	n.awaitPhase("u1", v1.PodRunning)
	r := n.watch(t.Context(), func() {})
	n.awaitReplica(r)
	changed := pod.DeepCopy()
	changed.Labels = map[string]string{"tier": "front"} // a sync of the pod computes the same status
	n.api.Apply([]*v1.Pod{changed}, nil)
	heraldtest.Eventually(t, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.pods["u1"].Labels["tier"] != "front" {
			return fmt.Errorf("got labels %v", r.pods["u1"].Labels)
		}
		return nil
	})
	n.awaitReplica(r)
}

func TestPGA7_NotReady(t *testing.T) {
	n := newNode(t, unchanged)
	n.api.Replace([]*v1.Pod{newPod("web", "u1")}) // the manifests are not read yet
	n.awaitPhase("u1", v1.PodRunning)
	client := n.client()
	check := func(call string, err error) {
		t.Helper()
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s: got %v, want FailedPrecondition", call, err)
		}
	}
	_, err := client.ListPods(t.Context(), &v1alpha1.ListPodsRequest{}, grpc.WaitForReady(true))
	check("ListPods", err)
	_, err = client.GetPod(t.Context(), &v1alpha1.GetPodRequest{PodUID: "u1"})
	check("GetPod", err)
	stream, err := client.WatchPods(t.Context(), &v1alpha1.WatchPodsRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	check("WatchPods", err)
	n.files.Replace([]*v1.Pod{})
	heraldtest.Eventually(t, func() error {
		_, err := client.ListPods(t.Context(), &v1alpha1.ListPodsRequest{})
		return err
	})
}

func TestPGA8_RateLimit(t *testing.T) {
	n := newNode(t, func(config *podsapi.Config) { config.QPS, config.Burst = 1e-9, 2 })
	n.start()
	client := n.client()
	r := n.watch(t.Context(), func() {}) // does not count
	n.awaitReplica(r)
	var got []string
	for range 3 {
		_, err := client.ListPods(t.Context(), &v1alpha1.ListPodsRequest{}, grpc.WaitForReady(true))
		got = append(got, fmt.Sprintf("%s %s", status.Code(err), status.Convert(err).Message()))
	}
	if want := []string{"OK ", "OK ", "ResourceExhausted rejected by rate limit"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A client that stops reading while its pods change a thousand times gets the newest state, in few events, and the stream goes on.
func TestPGA6_SlowClient(t *testing.T) {
	n := newNode(t, unchanged)
	large := strings.Repeat("x", 16<<10) // fills the windows of the connection
	pods := make([]*v1.Pod, 20)
	for i := range pods {
		pods[i] = newPod(fmt.Sprintf("p%02d", i), types.UID(fmt.Sprintf("u%02d", i)))
		pods[i].Annotations = map[string]string{"large": large}
	}
	n.start(pods...)
	for _, pod := range pods {
		n.awaitPhase(pod.UID, v1.PodRunning)
	}
	var reads sync.Mutex
	var waits atomic.Bool
	r := n.watch(t.Context(), func() {
		if waits.Load() {
			reads.Lock()
			defer reads.Unlock()
		}
	})
	n.awaitReplica(r)
	reads.Lock()
	waits.Store(true)
	const rounds = 50
	for round := range rounds {
		for i, pod := range pods {
			pods[i] = pod.DeepCopy()
			pods[i].Generation = int64(round + 2)
		}
		n.api.Apply(pods, nil)
		heraldtest.Eventually(t, func() error { // each round is a version of its own
			if pod, _ := n.agent.LocalPodByUID("u19"); pod.Generation != int64(round+2) {
				return fmt.Errorf("got generation %d", pod.Generation)
			}
			return nil
		})
	}
	n.api.Apply(nil, []types.UID{"u00"})
	heraldtest.Eventually(t, func() error {
		if _, found := n.agent.LocalPodByUID("u00"); found {
			return errors.New("the pod is still there")
		}
		return nil
	})
	r.mu.Lock()
	count := r.count
	r.mu.Unlock()
	reads.Unlock()
	n.awaitReplica(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Logf("%d changes of %d pods: %d events after %d", rounds*len(pods), len(pods), r.count-count, count)
	if r.count-count > rounds*len(pods)/4 {
		t.Errorf("got %d events for %d changes, want the newest state of each pod", r.count-count, rounds*len(pods))
	}
}

// Whatever happens to pods, and whenever clients start to watch: no event contradicts those before, and in the end the clients have what
// the node has.
func TestPGA5_Sequences(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := newNode(t, unchanged)
		defer n.stop()
		n.start()
		pods := map[types.UID]*v1.Pod{}
		replicas := []*replica{n.watch(t.Context(), func() {})}
		serial := 0
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(*rapid.T) {
				serial++
				pod := newPod(fmt.Sprintf("p%d", serial%5), types.UID(fmt.Sprintf("u%d", serial))) // names repeat
				pods[pod.UID] = pod
				n.api.Apply([]*v1.Pod{pod}, nil)
			},
			"change": func(rt *rapid.T) {
				if uid, ok := anyPod(rt, pods); ok {
					changed := pods[uid].DeepCopy()
					changed.Generation++
					pods[uid] = changed
					n.api.Apply([]*v1.Pod{changed}, nil)
				}
			},
			"exit": func(rt *rapid.T) {
				if uid, ok := anyPod(rt, pods); ok {
					n.runtime.ExitContainer(podid.UID(uid), "main", 1)
				}
			},
			"remove": func(rt *rapid.T) {
				if uid, ok := anyPod(rt, pods); ok {
					delete(pods, uid)
					n.api.Apply(nil, []types.UID{uid})
				}
			},
			"watch": func(*rapid.T) {
				if len(replicas) < 4 {
					replicas = append(replicas, n.watch(t.Context(), func() {}))
				}
			},
			"settle": func(*rapid.T) {
				for _, r := range replicas {
					n.awaitReplica(r)
				}
			},
		})
		for _, r := range replicas {
			n.awaitReplica(r)
		}
	})
}

func anyPod(rt *rapid.T, pods map[types.UID]*v1.Pod) (types.UID, bool) {
	if len(pods) == 0 {
		return "", false
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(pods))).Draw(rt, "pod"), true
}

// A socket that cannot be opened does not end the server: it tries again.
func TestRun_ListenFails(t *testing.T) {
	var attempts atomic.Int32
	n := newNode(t, func(config *podsapi.Config) {
		listen := config.Listen
		config.Listen = func(ctx context.Context) (net.Listener, error) {
			if attempts.Add(1) == 1 {
				return nil, errors.New("address in use")
			}
			return listen(ctx)
		}
	})
	n.start(newPod("web", "u1"))
	n.awaitReplica(n.watch(t.Context(), func() {}))
}

func TestNew_Invalid(t *testing.T) {
	for name, config := range map[string]podsapi.Config{
		"no agent":  {Listen: func(context.Context) (net.Listener, error) { return nil, nil }},
		"no Listen": {Agent: newNode(t, unchanged).agent},
	} {
		if _, err := podsapi.New(config); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
