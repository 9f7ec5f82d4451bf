package heraldtest_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
)

func TestAPIServer_UpdatePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		pod := newPod("web", "n1")
		pod.UID, pod.Status.Phase = "custom", v1.PodRunning
		added := server.AddPod(pod)
		if added.UID != "custom" || added.Status.Phase != v1.PodRunning || added.Status.QOSClass != v1.PodQOSBestEffort {
			t.Errorf("got %+v after AddPod", added)
		}
		time.Sleep(time.Minute)
		if !server.UpdatePod(defaultName("web"), func(pod *v1.Pod) {
			pod.Spec.NodeName, pod.Status.QOSClass, pod.Labels = "n2", v1.PodQOSGuaranteed, map[string]string{"a": "b"}
		}) {
			t.Error("pod not found")
		}
		updated := server.Pod(defaultName("web"))
		if updated.Generation != added.Generation+1 || updated.Status.QOSClass != v1.PodQOSGuaranteed || updated.Labels["a"] != "b" {
			t.Errorf("got %+v after UpdatePod", updated)
		}
		if !server.DeletePod(defaultName("web"), 30) {
			t.Error("pod not found")
		}
		deleted := server.Pod(defaultName("web"))
		if at := deleted.DeletionTimestamp; !at.Time.Equal(time.Now().Add(30 * time.Second)) {
			t.Errorf("got deletion timestamp %v, want in 30s", at)
		}
		if server.UpdatePod(defaultName("missing"), func(*v1.Pod) {}) || server.DeletePod(defaultName("missing"), 0) ||
			server.Pod(defaultName("missing")) != nil {
			t.Error("a missing pod was found")
		}
	})
}

func TestAPIServer_ConcurrentUpdates(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddPod(newPod("web", "n1"))
	const writers, writes = 8, 50
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range writes {
				server.UpdatePod(defaultName("web"), func(pod *v1.Pod) { pod.Status.Message += "x" })
			}
		})
	}
	group.Wait()
	if got := len(server.Pod(defaultName("web")).Status.Message); got != writers*writes {
		t.Fatalf("got %d writes, want %d", got, writers*writes)
	}
}

func TestAPIServer_NodeRequests(t *testing.T) {
	server := heraldtest.NewAPIServer()
	want := server.AddNode("n1")
	node, err := newClient(t, server).GetNode(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, node); diff != "" || node.UID == "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	nodes := newRESTClient(t, server.Config())
	status := []byte(`{"metadata": {"labels": {"a": "b"}}, "spec": {"unschedulable": true}, "status": {"phase": "Running"}}`)
	if err := nodes.Patch("application/merge-patch+json").Resource("nodes").Name("n1").SubResource("status").
		Body(status).Do(t.Context()).Into(node); err != nil {
		t.Fatal(err)
	}
	if node.Labels["a"] != "b" || node.Spec.Unschedulable || node.Status.Phase != v1.NodeRunning {
		t.Errorf("after status patch: got %+v", node)
	}
	if err := nodes.Post().Resource("nodes").Body(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}).
		Do(t.Context()).Error(); !apierrors.IsAlreadyExists(err) {
		t.Errorf("second create: got %v, want already exists", err)
	}
	if err := nodes.Delete().Resource("nodes").Name("n1").Do(t.Context()).Error(); err != nil {
		t.Error(err)
	}
	list := &v1.NodeList{}
	if err := nodes.Get().Resource("nodes").Do(t.Context()).Into(list); err != nil || len(list.Items) != 0 {
		t.Errorf("after deletion: got %v, %v, want no nodes", list.Items, err)
	}
}

func TestAPIServer_UpdateNode(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1.NodeStatus{Phase: v1.NodeRunning}}
	if created, err := client.CreateNode(t.Context(), node); err != nil || created.Status.Phase != v1.NodeRunning {
		t.Fatalf("got %v, %v, want a node with its status", created, err)
	}
	if !server.UpdateNode("n1", func(n *v1.Node) { n.Spec.Unschedulable, n.Status.Phase = true, v1.NodePending }) {
		t.Fatal("node not found")
	}
	if got := server.Node("n1"); !got.Spec.Unschedulable || got.Status.Phase != v1.NodePending {
		t.Errorf("after UpdateNode: got %+v", got)
	}
	if !server.DeleteNode("n1") || server.DeleteNode("n1") || server.Node("n1") != nil || server.UpdateNode("n1", nil) {
		t.Error("deleted node was found")
	}
}

func TestAPIServer_Leases(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server)
	_, err := client.GetLease(t.Context(), "n1")
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || server.Lease("n1") != nil || server.DeleteLease("n1") {
		t.Fatalf("missing lease: got %v, want not found", err)
	}
	if !errors.As(err, &status) || status.Status().Details.Group != "coordination.k8s.io" {
		t.Errorf("got status %+v, want group coordination.k8s.io", status)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: v1.NamespaceNodeLease}}
	created, err := client.CreateLease(t.Context(), lease)
	if err != nil {
		t.Fatal(err)
	}
	server.UpdateLease("n1", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("other") })
	if _, err := client.UpdateLease(t.Context(), created); !apierrors.IsConflict(err) {
		t.Errorf("stale update: got %v, want conflict", err)
	}
	if got := server.Lease("n1"); *got.Spec.HolderIdentity != "other" || !server.DeleteLease("n1") {
		t.Errorf("got lease %+v", got)
	}
}
