package kubeapi_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/podid"
)

// asked is what matters in a request for pods.
type asked struct{ Verb, Node, Version, Match, Streamed string }

func requests(server *heraldtest.APIServer) []asked {
	var seen []asked
	for _, request := range server.Requests() {
		seen = append(seen, asked{
			Verb: request.Verb, Node: request.Query.Get("fieldSelector"), Version: request.Query.Get("resourceVersion"),
			Match: request.Query.Get("resourceVersionMatch"), Streamed: request.Query.Get("sendInitialEvents"),
		})
	}
	return seen
}

func TestF12AReflectorStartsFromTheNewest(t *testing.T) {
	tests := map[string]struct {
		refuse bool // streamed lists, as a server does that does not have them
		want   []asked
	}{
		"streamed": {
			want: []asked{{Verb: "watch", Node: "spec.nodeName=n1", Match: "NotOlderThan", Streamed: "true"}},
		},
		"from a server that does not stream lists": {
			refuse: true,
			want: []asked{
				{Verb: "list", Node: "spec.nodeName=n1"},
				{Verb: "watch", Node: "spec.nodeName=n1", Version: "3"},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := heraldtest.NewAPIServer()
				server.AddPod(newPod(web, "n1"))
				server.AddPod(newPod(podid.FullName{Namespace: "bank", Name: "elsewhere"}, "n2"))
				cfg := server.Config()
				cfg.Transport = roundTripper(func(request *http.Request) (*http.Response, error) {
					if query := request.URL.Query(); test.refuse && query.Has("sendInitialEvents") {
						return &http.Response{StatusCode: http.StatusUnprocessableEntity, Request: request, Body: http.NoBody}, nil
					}
					return server.Transport().RoundTrip(request)
				})
				store := cache.NewStore(cache.MetaNamespaceKeyFunc)
				follow(t, newClient(t, cfg).PodsOnNode("n1"), store)
				synctest.Wait()
				if diff := cmp.Diff([]string{"shop/web"}, store.ListKeys()); diff != "" {
					t.Errorf("pods (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.want, requests(server)); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
				server.DeletePod(web, 0)
				synctest.Wait()
				if left := store.ListKeys(); len(left) != 0 {
					t.Errorf("after the deletion: %v", left)
				}
			})
		})
	}
}

// follow runs a Reflector until the test ends.
func follow(t *testing.T, from cache.ListerWatcher, store cache.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	reflector := cache.NewReflectorWithOptions(from, &v1.Pod{}, store, cache.ReflectorOptions{Name: t.Name()})
	go func() {
		defer close(ended)
		reflector.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func TestF12NobodyIsServedJustAnyVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		pods := cache.ToListerWatcherWithContext(newClient(t, server.Config()).PodsOnNode("n1"))
		if _, err := pods.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
			t.Fatal(err)
		}
		watched, err := pods.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		defer watched.Stop()
		want := []asked{{Verb: "list", Node: "spec.nodeName=n1"}, {Verb: "watch", Node: "spec.nodeName=n1"}}
		if diff := cmp.Diff(want, requests(server)); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}
