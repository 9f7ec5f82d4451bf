package heraldtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/heraldnode/herald/heraldtest"
)

func TestAServerThatIsDownRefusesConnectionsAndKeepsItsPods(t *testing.T) {
	for range 20 { // what a watcher sees of going down is a matter of luck, if it is wrong
		synctest.Test(t, goDown)
	}
}

func goDown(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server)
	server.AddPod(newPod("web", "n1"))
	watched := watchPods(t, server, metav1.ListOptions{ResourceVersion: "1"})
	defer watched.Stop()
	<-watched.ResultChan()

	server.SetDown(true)
	server.UpdatePod(inDefault("web"), func(pod *v1.Pod) { pod.Status.Message = "nobody sees this" })
	if _, err := client.GetPod(t.Context(), metav1.NamespaceDefault, "web"); !utilnet.IsConnectionRefused(err) {
		t.Errorf("while down: %v", err)
	}
	if event, more := <-watched.ResultChan(); more {
		t.Errorf("the watch went on: %s", describe(event))
	}
	server.CutWatches()
	server.SetDown(true)
	server.SetDown(false)
	if pod, err := client.GetPod(t.Context(), metav1.NamespaceDefault, "web"); err != nil || pod.Status.Message == "" {
		t.Errorf("afterwards: %v, %v", pod, err)
	}
}

// openWatch returns the body of a watch's answer.
func openWatch(ctx context.Context, t *testing.T, server *heraldtest.APIServer) io.ReadCloser {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://any.test/api/v1/pods?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Transport().RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	return response.Body
}

func TestAWatchEndsAsItsConnectionDoes(t *testing.T) {
	tests := map[string]struct {
		end  func(server *heraldtest.APIServer, cancel context.CancelFunc, body io.Closer)
		want error
	}{
		"cut": {
			end:  func(server *heraldtest.APIServer, _ context.CancelFunc, _ io.Closer) { server.CutWatches() },
			want: io.ErrUnexpectedEOF,
		},
		"cancelled": {
			end:  func(_ *heraldtest.APIServer, cancel context.CancelFunc, _ io.Closer) { cancel() },
			want: context.Canceled,
		},
		"closed": {
			end:  func(_ *heraldtest.APIServer, _ context.CancelFunc, body io.Closer) { _ = body.Close() },
			want: io.ErrClosedPipe,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := heraldtest.NewAPIServer()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				body := openWatch(ctx, t, server)
				defer body.Close()
				synctest.Wait()
				test.end(server, cancel, body)
				if _, err := body.Read(make([]byte, 1)); !errors.Is(err, test.want) {
					t.Fatalf("read: %v, want %v", err, test.want)
				}
			})
		})
	}
}

// A goroutine that is left over fails the bubble.
func TestAWatchThatNobodyReadsEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		ctx, cancel := context.WithCancel(t.Context())
		openWatch(ctx, t, server)
		server.AddPod(newPod("web", "n1"))
		synctest.Wait()
		cancel()
	})
}

func TestARequestWhoseClientHasGivenUpIsNotSent(t *testing.T) {
	server := heraldtest.NewAPIServer()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newClient(t, server).GetPod(ctx, metav1.NamespaceDefault, "web"); !errors.Is(err, context.Canceled) {
		t.Errorf("get: %v", err)
	}
	if seen := server.Requests(); len(seen) != 0 {
		t.Errorf("seen: %v", seen)
	}
}

func TestRequestsAreToldByVerb(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server)
	pod := server.AddPod(newPod("web", "n1"))
	if _, err := client.GetPod(t.Context(), metav1.NamespaceDefault, "web"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.PatchPodStatus(t.Context(), metav1.NamespaceDefault, "web", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if err := client.DeletePod(t.Context(), metav1.NamespaceDefault, "web", pod.UID); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff([]string{"get", "patch", "delete"}, verbs(server)); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	want := []heraldtest.Request{{Verb: "patch", Resource: "pods", Subresource: "status", Namespace: "default", Name: "web", Query: url.Values{}}}
	if diff := gocmp.Diff(want, server.Requests("patch", "create")); diff != "" {
		t.Errorf("patches (-want +got):\n%s", diff)
	}
}

func TestNodesAreKeptToo(t *testing.T) {
	server := heraldtest.NewAPIServer()
	want := server.AddNode("n1")
	node, err := newClient(t, server).GetNode(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, node); diff != "" || node.UID == "" {
		t.Errorf("node (-added +got):\n%s", diff)
	}
	nodes := newRaw(t, server.Config())
	status := []byte(`{"metadata": {"labels": {"a": "b"}}, "spec": {"unschedulable": true}, "status": {"phase": "Running"}}`)
	if err := nodes.Patch("application/merge-patch+json").Resource("nodes").Name("n1").SubResource("status").
		Body(status).Do(t.Context()).Into(node); err != nil {
		t.Fatal(err)
	}
	if node.Labels["a"] != "b" || node.Spec.Unschedulable || node.Status.Phase != v1.NodeRunning {
		t.Errorf("after a patch of its status: %+v", node)
	}
	if err := nodes.Post().Resource("nodes").Body(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}).
		Do(t.Context()).Error(); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created again: %v", err)
	}
	if err := nodes.Delete().Resource("nodes").Name("n1").Do(t.Context()).Error(); err != nil {
		t.Error(err)
	}
	list := &v1.NodeList{}
	if err := nodes.Get().Resource("nodes").Do(t.Context()).Into(list); err != nil || len(list.Items) != 0 {
		t.Errorf("after its deletion: %v, %v", list.Items, err)
	}
}

func TestOthersChangePodsWithoutTheServersRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		given := newPod("web", "n1")
		given.UID, given.Status.Phase = "mine", v1.PodRunning
		added := server.AddPod(given)
		if added.UID != "mine" || added.Status.Phase != v1.PodRunning || added.Status.QOSClass != v1.PodQOSBestEffort {
			t.Errorf("added as %+v", added)
		}
		time.Sleep(time.Minute)
		if !server.UpdatePod(inDefault("web"), func(pod *v1.Pod) {
			pod.Spec.NodeName, pod.Status.QOSClass, pod.Labels = "n2", v1.PodQOSGuaranteed, map[string]string{"a": "b"}
		}) {
			t.Error("not found")
		}
		updated := server.Pod(inDefault("web"))
		if updated.Generation != added.Generation+1 || updated.Status.QOSClass != v1.PodQOSGuaranteed || updated.Labels["a"] != "b" {
			t.Errorf("updated to %+v", updated)
		}
		if !server.DeletePod(inDefault("web"), 30) {
			t.Error("not found")
		}
		deleted := server.Pod(inDefault("web"))
		if at := deleted.DeletionTimestamp; !at.Time.Equal(time.Now().Add(30 * time.Second)) {
			t.Errorf("to be gone at %v", at)
		}
		if server.UpdatePod(inDefault("missing"), func(*v1.Pod) {}) || server.DeletePod(inDefault("missing"), 0) ||
			server.Pod(inDefault("missing")) != nil {
			t.Error("a pod that is missing was found")
		}
	})
}

func TestAPodWithFinalizersStaysUntilTheyAreGone(t *testing.T) {
	server := heraldtest.NewAPIServer()
	pod := newPod("web", "n1")
	pod.Finalizers = []string{"example.test/hold"}
	added := server.AddPod(pod)
	if err := newClient(t, server).DeletePod(t.Context(), metav1.NamespaceDefault, "web", added.UID); err != nil {
		t.Fatal(err)
	}
	held := server.Pod(inDefault("web"))
	if held == nil || held.DeletionTimestamp == nil || *held.DeletionGracePeriodSeconds != 0 {
		t.Fatalf("after the deletion: %+v", held)
	}
	released := []byte(`{"metadata": {"finalizers": null}}`)
	if err := onWeb(newRaw(t, server.Config()).Patch("application/merge-patch+json")).Body(released).
		Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if left := server.Pod(inDefault("web")); left != nil {
		t.Fatalf("without finalizers: %+v", left)
	}
}
