package heraldtest_test

import (
	"errors"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
)

func TestANodeKeepsItsStatusApartAndIsCreatedWithOne(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1.NodeStatus{Phase: v1.NodeRunning}}
	if created, err := client.CreateNode(t.Context(), node); err != nil || created.Status.Phase != v1.NodeRunning {
		t.Fatalf("created %v, %v", created, err)
	}
	if !server.UpdateNode("n1", func(n *v1.Node) { n.Spec.Unschedulable, n.Status.Phase = true, v1.NodePending }) {
		t.Fatal("there is no such node")
	}
	if got := server.Node("n1"); !got.Spec.Unschedulable || got.Status.Phase != v1.NodePending {
		t.Errorf("after the update: %+v", got)
	}
	if !server.DeleteNode("n1") || server.DeleteNode("n1") || server.Node("n1") != nil || server.UpdateNode("n1", nil) {
		t.Error("a deleted node is still there")
	}
}

func TestLeasesHaveAGroupOfTheirOwn(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server)
	_, err := client.GetLease(t.Context(), "n1")
	var answer apierrors.APIStatus
	if !apierrors.IsNotFound(err) || server.Lease("n1") != nil || server.DeleteLease("n1") {
		t.Fatalf("a lease that nobody made: %v", err)
	}
	if !errors.As(err, &answer) || answer.Status().Details.Group != "coordination.k8s.io" {
		t.Errorf("the answer is about %+v", answer)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: v1.NamespaceNodeLease}}
	created, err := client.CreateLease(t.Context(), lease)
	if err != nil {
		t.Fatal(err)
	}
	server.UpdateLease("n1", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("other") })
	if _, err := client.UpdateLease(t.Context(), created); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v", err)
	}
	if got := server.Lease("n1"); *got.Spec.HolderIdentity != "other" || !server.DeleteLease("n1") {
		t.Errorf("lease %+v", got)
	}
}
