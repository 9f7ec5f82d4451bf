package heraldtest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/podid"
)

// reflection is what a client-go Reflector makes of the pods on one node.
type reflection struct {
	store cache.Store
	node  string
}

// reflect starts a Reflector that ends with the test. plain takes from it what it needs for streamed lists.
func reflect(t *testing.T, server *heraldtest.APIServer, node string, plain bool) reflection {
	t.Helper()
	r := reflection{store: cache.NewStore(cache.MetaNamespaceKeyFunc), node: node}
	from := newClient(t, server).PodsOnNode(node)
	if plain {
		from = unstreamed{from}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	reflector := cache.NewReflectorWithOptions(from, &v1.Pod{}, r.store, cache.ReflectorOptions{Name: t.Name()})
	go func() {
		defer close(ended)
		reflector.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return r
}

// unstreamed is a source of which a Reflector does not ask for streamed lists.
type unstreamed struct{ cache.ListerWatcher }

func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

// differs says how the reflection differs from what the server has, once the Reflector had time to come back from
// whatever befell it: its longest pause is a minute. Its watches live for five minutes at least.
func (r reflection) differs(server *heraldtest.APIServer) string {
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

func verbs(server *heraldtest.APIServer) []string {
	var seen []string
	for _, request := range server.Requests() {
		seen = append(seen, request.Verb)
	}
	return seen
}

var troubles = map[string]struct {
	// trouble befalls a Reflector that has seen the pod "web"; then "late" is added.
	trouble func(*heraldtest.APIServer)
	// streamed and plain are the requests that it makes, by the way it lists.
	streamed, plain []string
}{
	"none": {
		trouble:  func(*heraldtest.APIServer) {},
		streamed: []string{"watch"}, plain: []string{"list", "watch"},
	},
	"the connection is cut": {
		trouble:  (*heraldtest.APIServer).CutWatches,
		streamed: []string{"watch", "watch"}, plain: []string{"list", "watch", "watch"},
	},
	"its version expires while it is away": {
		trouble: func(server *heraldtest.APIServer) {
			server.SetDown(true)
			server.DeletePod(inDefault("web"), 0)
			server.Compact()
			server.SetDown(false)
		},
		streamed: []string{"watch", "watch", "watch"}, plain: []string{"list", "watch", "watch", "list", "watch"},
	},
	"the server is down for an hour": {
		trouble: func(server *heraldtest.APIServer) {
			server.SetDown(true)
			time.Sleep(time.Hour)
			server.UpdatePod(inDefault("web"), func(pod *v1.Pod) { pod.Status.Phase = v1.PodRunning })
			server.SetDown(false)
		},
		streamed: []string{"watch", "watch"}, plain: []string{"list", "watch", "watch"},
	},
}

func TestAReflectorSurvivesTrouble(t *testing.T) {
	for name, test := range troubles {
		for way, want := range map[string][]string{"streamed": test.streamed, "plain": test.plain} {
			t.Run(way+": "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := heraldtest.NewAPIServer()
					server.AddPod(newPod("web", "n1"))
					server.AddPod(newPod("elsewhere", "n2"))
					seen := reflect(t, server, "n1", way == "plain")
					if diff := seen.differs(server); diff != "" {
						t.Fatalf("at first (-server +reflector):\n%s", diff)
					}
					test.trouble(server)
					server.AddPod(newPod("late", "n1"))
					if diff := seen.differs(server); diff != "" {
						t.Fatalf("afterwards (-server +reflector):\n%s", diff)
					}
					if diff := gocmp.Diff(want, verbs(server)); diff != "" {
						t.Fatalf("requests (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}
