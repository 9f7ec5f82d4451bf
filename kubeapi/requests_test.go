package kubeapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/podid"
)

// forEachFormat runs the test with protobuf, the default, and with JSON.
func forEachFormat(t *testing.T, test func(*testing.T, *heraldtest.APIServer, *kubeapi.Client)) {
	t.Helper()
	for name, contentType := range map[string]string{"protobuf": "", "JSON": "application/json"} {
		t.Run(name, func(t *testing.T) {
			server := heraldtest.NewAPIServer()
			config := server.Config()
			config.ContentType = contentType
			test(t, server, newClient(t, config))
		})
	}
}

func TestClient_Pods(t *testing.T) {
	forEachFormat(t, func(t *testing.T, server *heraldtest.APIServer, client *kubeapi.Client) {
		created, err := client.CreatePod(t.Context(), newPod(web, "n1"))
		if err != nil {
			t.Fatal(err)
		}
		patched, err := client.PatchPodStatus(t.Context(), web.Namespace, web.Name, []byte(`{"status": {"phase": "Running"}}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.GetPod(t.Context(), web.Namespace, web.Name)
		if err != nil {
			t.Fatal(err)
		}
		want := created.DeepCopy()
		want.ResourceVersion, want.Status.Phase = patched.ResourceVersion, v1.PodRunning
		if diff := cmp.Diff(want, got); diff != "" || patched.UID != created.UID || patched.ResourceVersion == created.ResourceVersion {
			t.Errorf("pod after patch %+v (-want +got):\n%s", patched.ObjectMeta, diff)
		}
		if err := client.DeletePod(t.Context(), web.Namespace, web.Name, created.UID); err != nil {
			t.Fatal(err)
		}
		if pod := server.Pod(web); pod != nil {
			t.Errorf("got %+v, want the pod deleted without grace period", pod.ObjectMeta)
		}
	})
}

func TestF13_DeleteRequiresUID(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddPod(newPod(web, "n1"))
	if err := newClient(t, server.Config()).DeletePod(t.Context(), web.Namespace, web.Name, ""); err == nil {
		t.Error("got no error without a UID")
	}
	if requests := server.Requests(); len(requests) != 0 || server.Pod(web) == nil {
		t.Errorf("got requests %v, want none", requests)
	}
}

func TestClient_Nodes(t *testing.T) {
	forEachFormat(t, func(t *testing.T, _ *heraldtest.APIServer, client *kubeapi.Client) {
		created, err := client.CreateNode(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		if err != nil || created.UID == "" {
			t.Fatalf("got %v, %v, want a node with UID", created, err)
		}
		patched, err := client.PatchNode(t.Context(), "n1", []byte(`{"metadata":{"labels":{"zone":"z"}},"status":{"phase":"Pending"}}`))
		if err != nil || patched.Labels["zone"] != "z" || patched.Status.Phase != "" {
			t.Fatalf("got %v, %v, want only the label changed", patched, err)
		}
		patched, err = client.PatchNodeStatus(t.Context(), "n1", []byte(`{"spec":{"providerID":"x"},"status":{"phase":"Running"}}`))
		if err != nil || patched.Status.Phase != v1.NodeRunning || patched.Spec.ProviderID != "" || patched.Labels["zone"] != "z" {
			t.Fatalf("got %v, %v, want only the status changed", patched, err)
		}
	})
}

func TestClient_Leases(t *testing.T) {
	forEachFormat(t, func(t *testing.T, _ *heraldtest.APIServer, client *kubeapi.Client) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: v1.NamespaceNodeLease}}
		created, err := client.CreateLease(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		now := metav1.NewMicroTime(time.Now())
		created.Spec.RenewTime = &now
		if _, err := client.UpdateLease(t.Context(), created); err != nil {
			t.Fatal(err)
		}
		if _, err := client.UpdateLease(t.Context(), created); !apierrors.IsConflict(err) {
			t.Errorf("got %v for an old resource version, want a conflict", err)
		}
		got, err := client.GetLease(t.Context(), "n1")
		if err != nil || !got.Spec.RenewTime.Equal(&metav1.MicroTime{Time: now.Truncate(time.Microsecond)}) {
			t.Errorf("got %v, %v, want renew time %v", got, err, now)
		}
	})
}

func TestClient_ErrorMessages(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server.Config())
	server.AddPod(newPod(web, "n1"))
	server.AddNode("n1")
	unknownLease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n9", Namespace: v1.NamespaceNodeLease}}
	tests := map[string]struct {
		send   func(ctx context.Context) error
		is     func(error) bool
		prefix string
	}{
		"get pod": {
			send: func(ctx context.Context) error { _, err := client.GetPod(ctx, "shop", "missing"); return err },
			is:   apierrors.IsNotFound, prefix: "get pod shop/missing: ",
		},
		"create pod": {
			send: func(ctx context.Context) error { _, err := client.CreatePod(ctx, newPod(web, "n1")); return err },
			is:   apierrors.IsAlreadyExists, prefix: "create pod shop/web: ",
		},
		"delete pod": {
			send: func(ctx context.Context) error { return client.DeletePod(ctx, web.Namespace, web.Name, "another") },
			is:   apierrors.IsConflict, prefix: "delete pod shop/web with UID another: ",
		},
		"patch pod status": {
			send: func(ctx context.Context) error {
				_, err := client.PatchPodStatus(ctx, web.Namespace, web.Name, []byte(`{"metadata": {"uid": "another"}}`))
				return err
			},
			is: apierrors.IsInvalid, prefix: "patch status of pod shop/web: ",
		},
		"get node": {
			send: func(ctx context.Context) error { _, err := client.GetNode(ctx, "n9"); return err },
			is:   apierrors.IsNotFound, prefix: "get node n9: ",
		},
		"create node": {
			send: func(ctx context.Context) error {
				_, err := client.CreateNode(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
				return err
			},
			is: apierrors.IsAlreadyExists, prefix: "create node n1: ",
		},
		"patch node": {
			send: func(ctx context.Context) error { _, err := client.PatchNode(ctx, "n9", []byte(`{}`)); return err },
			is:   apierrors.IsNotFound, prefix: "patch node n9: ",
		},
		"patch node status": {
			send: func(ctx context.Context) error { _, err := client.PatchNodeStatus(ctx, "n9", []byte(`{}`)); return err },
			is:   apierrors.IsNotFound, prefix: "patch status of node n9: ",
		},
		"get lease": {
			send: func(ctx context.Context) error { _, err := client.GetLease(ctx, "n9"); return err },
			is:   apierrors.IsNotFound, prefix: "get lease of node n9: ",
		},
		"update lease": {
			send: func(ctx context.Context) error { _, err := client.UpdateLease(ctx, unknownLease); return err },
			is:   apierrors.IsNotFound, prefix: "update lease of node n9: ",
		},
		"get secret": {
			send: func(ctx context.Context) error { _, err := client.GetSecret(ctx, "shop", "missing"); return err },
			is:   apierrors.IsNotFound, prefix: "get secret shop/missing: ",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.send(t.Context())
			if !test.is(err) || !strings.HasPrefix(err.Error(), test.prefix) {
				t.Fatalf("got %v, want prefix %q and the wrapped response", err, test.prefix)
			}
		})
	}
}

func TestClient_PodReferences(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server.Config())
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	server.Put(&v1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"colour": "red"}})
	server.Put(&v1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"colour": "blue"}})
	server.Put(&v1.Secret{ObjectMeta: meta, Data: map[string][]byte{"key": []byte("secret")}})
	server.Put(&v1.Service{ObjectMeta: meta, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.1"}})

	if got, err := client.GetConfigMap(t.Context(), "shop", "web"); err != nil || got.Data["colour"] != "blue" {
		t.Errorf("config map: got %v, %v", got, err)
	}
	if got, err := client.GetSecret(t.Context(), "shop", "web"); err != nil || string(got.Data["key"]) != "secret" {
		t.Errorf("secret: got %v, %v", got, err)
	}
	server.Put(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Handler: "kata"})
	if got, err := client.GetRuntimeClass(t.Context(), "fast"); err != nil || got.Handler != "kata" {
		t.Errorf("runtime class: got %v, %v", got, err)
	}
	if got, err := client.ListServices(t.Context(), "shop"); err != nil || len(got) != 1 || got[0].Spec.ClusterIP != "10.0.0.1" {
		t.Errorf("services: got %v, %v", got, err)
	}
	if got, err := client.GetSecret(t.Context(), "shop", "other"); !apierrors.IsNotFound(err) || got != nil {
		t.Errorf("missing secret: got %v, %v, want not found", got, err)
	}
}

func TestClient_CreateToken(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server.Config())
	request := &authenticationv1.TokenRequest{}
	if _, err := client.CreateToken(t.Context(), "shop", "default", request); !apierrors.IsForbidden(err) {
		t.Fatalf("got %v for an unbound token, want forbidden", err)
	}
	request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "web", UID: "u"}
	issued, err := client.CreateToken(t.Context(), "shop", "default", request)
	if err != nil || issued.Status.Token == "" || issued.Status.ExpirationTimestamp.IsZero() {
		t.Fatalf("got %v, %v, want a token with expiration", issued, err)
	}
}

func TestClient_Events(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server.Config())
	event := &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.1"}, Reason: "BackOff", Count: 1}
	if _, err := client.CreateEvent(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	if _, err := client.PatchEvent(t.Context(), "shop", "web.1", []byte(`{"count": 2}`)); err != nil {
		t.Fatal(err)
	}
	if events := server.Events(); len(events) != 1 || events[0].Count != 2 || events[0].Reason != "BackOff" {
		t.Errorf("got events %v, want one BackOff with count 2", events)
	}
	if _, err := client.PatchEvent(t.Context(), "shop", "gone", []byte(`{"count": 2}`)); !apierrors.IsNotFound(err) {
		t.Errorf("expired event: got %v, want not found", err)
	}
}

// podsRequest holds the parameters of a list or watch request.
type podsRequest struct{ Verb, Selector, Version, Match, Streaming string }

func podsRequests(server *heraldtest.APIServer) []podsRequest {
	var requests []podsRequest
	for _, request := range server.Requests() {
		requests = append(requests, podsRequest{
			Verb: request.Verb, Selector: request.Query.Get("fieldSelector"), Version: request.Query.Get("resourceVersion"),
			Match: request.Query.Get("resourceVersionMatch"), Streaming: request.Query.Get("sendInitialEvents"),
		})
	}
	return requests
}

func TestF12_ReflectorReadsNewestVersion(t *testing.T) {
	tests := map[string]struct {
		withoutStreaming bool // the server rejects streaming lists
		want             []podsRequest
	}{
		"streaming list": {
			want: []podsRequest{{Verb: "watch", Selector: "spec.nodeName=n1", Match: "NotOlderThan", Streaming: "true"}},
		},
		"list and watch": {
			withoutStreaming: true,
			want: []podsRequest{
				{Verb: "list", Selector: "spec.nodeName=n1"},
				{Verb: "watch", Selector: "spec.nodeName=n1", Version: "3"},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := heraldtest.NewAPIServer()
				server.AddPod(newPod(web, "n1"))
				server.AddPod(newPod(podid.FullName{Namespace: "bank", Name: "elsewhere"}, "n2"))
				config := server.Config()
				config.Transport = roundTripper(func(request *http.Request) (*http.Response, error) {
					if query := request.URL.Query(); test.withoutStreaming && query.Has("sendInitialEvents") {
						return &http.Response{StatusCode: http.StatusUnprocessableEntity, Request: request, Body: http.NoBody}, nil
					}
					return server.Transport().RoundTrip(request)
				})
				store := cache.NewStore(cache.MetaNamespaceKeyFunc)
				runReflector(t, newClient(t, config).PodsOnNode("n1"), store)
				synctest.Wait()
				if diff := cmp.Diff([]string{"shop/web"}, store.ListKeys()); diff != "" {
					t.Errorf("pods (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.want, podsRequests(server)); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
				server.DeletePod(web, 0)
				synctest.Wait()
				if keys := store.ListKeys(); len(keys) != 0 {
					t.Errorf("got pods %v after deletion, want none", keys)
				}
			})
		})
	}
}

// runReflector runs a Reflector until the test ends.
func runReflector(t *testing.T, pods cache.ListerWatcher, store cache.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	reflector := cache.NewReflectorWithOptions(pods, &v1.Pod{}, store, cache.ReflectorOptions{Name: t.Name()})
	go func() {
		defer close(done)
		reflector.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func TestF12_VersionZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		pods := cache.ToListerWatcherWithContext(newClient(t, server.Config()).PodsOnNode("n1"))
		if _, err := pods.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
			t.Fatal(err)
		}
		watch, err := pods.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Stop()
		want := []podsRequest{{Verb: "list", Selector: "spec.nodeName=n1"}, {Verb: "watch", Selector: "spec.nodeName=n1"}}
		if diff := cmp.Diff(want, podsRequests(server)); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

func TestClient_WatchObject(t *testing.T) {
	forEachFormat(t, func(t *testing.T, server *heraldtest.APIServer, client *kubeapi.Client) {
		named := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
		server.Put(&v1.ConfigMap{ObjectMeta: named})
		server.Put(&v1.Secret{ObjectMeta: named})
		server.Put(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
		for resource, open := range map[string]func(context.Context, string, string, string) (watch.Interface, error){
			"configmaps": client.WatchConfigMap, "secrets": client.WatchSecret,
			"runtimeclasses": func(ctx context.Context, _, name, version string) (watch.Interface, error) {
				return client.WatchRuntimeClass(ctx, name, version)
			},
		} {
			stream, err := open(t.Context(), "shop", "web", "")
			if err != nil {
				t.Fatal(err)
			}
			event := <-stream.ResultChan()
			stream.Stop()
			if object, err := meta.Accessor(event.Object); event.Type != watch.Added || err != nil || object.GetName() != "web" {
				t.Errorf("%s: got %s %v, error %v, want the current state", resource, event.Type, event.Object, err)
			}
			requests := server.Requests("watch")
			last := requests[len(requests)-1]
			if selector := last.Query.Get("fieldSelector"); last.Resource != resource || selector != "metadata.name=web" {
				t.Errorf("%s: got a watch of %s with selector %q", resource, last.Resource, selector)
			}
			if _, err := open(t.Context(), "shop", "web", "x"); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "watch "+resource) || !strings.Contains(err.Error(), "web") {
				t.Errorf("%s: got %v for an invalid version, want BadRequest with the object's name", resource, err)
			}
		}
	})
}
