package heraldtest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/podid"
)

// podReflector is a client-go Reflector of the pods on one node.
type podReflector struct {
	store cache.Store
	node  string
}

// startReflector starts a Reflector that stops with the test. It uses plain lists or streaming lists.
func startReflector(t *testing.T, server *heraldtest.APIServer, node string, plain bool) podReflector {
	t.Helper()
	r := podReflector{store: cache.NewStore(cache.MetaNamespaceKeyFunc), node: node}
	listerWatcher := newClient(t, server).PodsOnNode(node)
	if plain {
		listerWatcher = plainLister{listerWatcher}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	reflector := cache.NewReflectorWithOptions(listerWatcher, &v1.Pod{}, r.store, cache.ReflectorOptions{Name: t.Name()})
	go func() {
		defer close(done)
		reflector.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

// plainLister makes a Reflector use plain lists.
type plainLister struct{ cache.ListerWatcher }

func (plainLister) IsWatchListSemanticsUnSupported() bool { return true }

// diff compares the Reflector's store with the server, after two minutes to recover: the Reflector backs off for at most a
// minute, and its watches last for at least five.
func (r podReflector) diff(server *heraldtest.APIServer) string {
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	want := map[podid.FullName]string{}
	for _, pod := range server.Pods() {
		if pod.Spec.NodeName == r.node {
			want[podid.FullNameOf(pod)] = fingerprint(pod)
		}
	}
	got := map[podid.FullName]string{}
	for _, item := range r.store.List() {
		pod := item.(*v1.Pod)
		got[podid.FullNameOf(pod)] = fingerprint(pod)
	}
	return gocmp.Diff(want, got)
}

func fingerprint(pod *v1.Pod) string {
	return string(pod.UID) + " version " + pod.ResourceVersion + " " + pod.Status.String()
}

var reflectorTests = map[string]struct {
	// disrupt runs after the Reflector has synced the pod web. The pod late is added afterwards.
	disrupt func(*heraldtest.APIServer)
	// streamed and plain are the expected requests with streaming and plain lists.
	streamed, plain []string
}{
	"none": {
		disrupt:  func(*heraldtest.APIServer) {},
		streamed: []string{"watch"}, plain: []string{"list", "watch"},
	},
	"watch cut": {
		disrupt:  (*heraldtest.APIServer).CutWatches,
		streamed: []string{"watch", "watch"}, plain: []string{"list", "watch", "watch"},
	},
	"version expired": {
		disrupt: func(server *heraldtest.APIServer) {
			server.SetDown(true)
			server.DeletePod(defaultName("web"), 0)
			server.Compact()
			server.SetDown(false)
		},
		streamed: []string{"watch", "watch", "watch"}, plain: []string{"list", "watch", "watch", "list", "watch"},
	},
	"server down for an hour": {
		disrupt: func(server *heraldtest.APIServer) {
			server.SetDown(true)
			time.Sleep(time.Hour)
			server.UpdatePod(defaultName("web"), func(pod *v1.Pod) { pod.Status.Phase = v1.PodRunning })
			server.SetDown(false)
		},
		streamed: []string{"watch", "watch"}, plain: []string{"list", "watch", "watch"},
	},
}

func TestReflector_Recovers(t *testing.T) {
	for name, test := range reflectorTests {
		for mode, want := range map[string][]string{"streamed": test.streamed, "plain": test.plain} {
			t.Run(mode+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := heraldtest.NewAPIServer()
					server.AddPod(newPod("web", "n1"))
					server.AddPod(newPod("elsewhere", "n2"))
					reflector := startReflector(t, server, "n1", mode == "plain")
					if diff := reflector.diff(server); diff != "" {
						t.Fatalf("after start (-server +reflector):\n%s", diff)
					}
					test.disrupt(server)
					server.AddPod(newPod("late", "n1"))
					if diff := reflector.diff(server); diff != "" {
						t.Fatalf("after disruption (-server +reflector):\n%s", diff)
					}
					if diff := gocmp.Diff(want, verbs(server)); diff != "" {
						t.Fatalf("requests (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// step is one event in the cluster.
type step struct {
	Kind   string
	Pod    string
	Number int64
	Settle bool // let the watchers see it before the next step
}

type cluster struct {
	server *heraldtest.APIServer
	client *kubeapi.Client
}

var actions = map[string]func(ctx context.Context, c cluster, s step) error{
	"create": func(ctx context.Context, c cluster, s step) error {
		_, err := c.client.CreatePod(ctx, newPod(s.Pod, fmt.Sprintf("n%d", s.Number%2)))
		return ignore(err, apierrors.IsAlreadyExists)
	},
	"patch": func(ctx context.Context, c cluster, s step) error {
		patch := fmt.Sprintf(`{"status": {"message": "message %d"}}`, s.Number)
		_, err := c.client.PatchPodStatus(ctx, metav1.NamespaceDefault, s.Pod, []byte(patch))
		return ignore(err, apierrors.IsNotFound)
	},
	"change node": func(_ context.Context, c cluster, s step) error {
		c.server.UpdatePod(defaultName(s.Pod), func(pod *v1.Pod) { pod.Spec.NodeName = fmt.Sprintf("n%d", s.Number%2) })
		return nil
	},
	"delete": func(_ context.Context, c cluster, s step) error {
		c.server.DeletePod(defaultName(s.Pod), s.Number)
		return nil
	},
	"final delete": func(ctx context.Context, c cluster, s step) error {
		pod := c.server.Pod(defaultName(s.Pod))
		if pod == nil {
			return nil
		}
		return c.client.DeletePod(ctx, metav1.NamespaceDefault, s.Pod, pod.UID)
	},
	"cut": func(_ context.Context, c cluster, _ step) error {
		c.server.CutWatches()
		return nil
	},
	"compact": func(_ context.Context, c cluster, _ step) error {
		c.server.Compact()
		return nil
	},
}

func ignore(err error, expected func(error) bool) error {
	if expected(err) {
		return nil
	}
	return err
}

func TestReflector_Converges(t *testing.T) {
	kinds := slices.Sorted(maps.Keys(actions))
	steps := rapid.Custom(func(t *rapid.T) step {
		return step{
			Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Pod: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pod"),
			Number: rapid.Int64Range(0, 3).Draw(t, "number"), Settle: rapid.Bool().Draw(t, "settle"),
		}
	})
	rapid.Check(t, func(check *rapid.T) {
		drawn := rapid.SliceOfN(steps, 1, 30).Draw(check, "steps")
		var failure string
		synctest.Test(t, func(t *testing.T) { failure = runSteps(t, drawn) })
		if failure != "" {
			check.Fatal(failure)
		}
	})
}

// runSteps returns how a Reflector differs from the server after the steps. Node n0 uses streaming lists, n1 plain ones.
func runSteps(t *testing.T, steps []step) string {
	t.Helper()
	server := heraldtest.NewAPIServer()
	c := cluster{server: server, client: newClient(t, server)}
	reflectors := []podReflector{startReflector(t, server, "n0", false), startReflector(t, server, "n1", true)}
	for _, step := range steps {
		if err := actions[step.Kind](t.Context(), c, step); err != nil {
			return fmt.Sprintf("%s: %v", step.Kind, err)
		}
		if step.Settle {
			synctest.Wait()
		}
	}
	for _, r := range reflectors {
		if diff := r.diff(server); diff != "" {
			return fmt.Sprintf("node %s (-server +reflector):\n%s", r.node, diff)
		}
	}
	return ""
}
