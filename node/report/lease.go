package report

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Lease is a node's lease, renewed now; before is nil if there is none yet. Whoever judges the node takes for a sign of
// life only a later time than the last, so that time goes on here even when the clock was set back (F14). Without an
// owner the lease would outlive its node.
func Lease(before *coordinationv1.Lease, node *v1.Node, duration time.Duration, now time.Time) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: node.Name}}
	if before != nil {
		lease = before.DeepCopy()
		if last := before.Spec.RenewTime; last != nil && !now.After(last.Time) {
			now = last.Add(time.Microsecond)
		}
	}
	lease.Spec.HolderIdentity = new(node.Name)
	lease.Spec.LeaseDurationSeconds = new(int32(duration / time.Second))
	lease.Spec.RenewTime = new(metav1.NewMicroTime(now))
	lease.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID,
	}}
	return lease
}
