package diff_test

import (
	"cmp"
	"fmt"
	"slices"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// picture is what can be seen of a node's pods when all is quiet. Identities are those of the history, so that pictures of
// two nodes can be compared.
type picture struct {
	// Objects is what the API server has, by name.
	Objects map[string]shown
	// Cached is what the node says of the pods that it should run, by life.
	Cached map[string]v1.PodStatus
}

// shown is an object in the API server.
type shown struct {
	Life    string
	Deleted bool
	Labels  map[string]string
	Status  v1.PodStatus
}

func (l *life) String() string { return fmt.Sprintf("%s#%d", l.name, l.serial) }

func (w *twins) picture(n *twin) picture {
	p := picture{Objects: map[string]shown{}, Cached: map[string]v1.PodStatus{}}
	pods, _ := n.held()
	for _, l := range w.lives {
		isHeld := slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.UID == n.pods[l].UID })
		if known, found := n.GetPodStatus(n.pods[l].UID); found && isHeld {
			p.Cached[l.String()] = cached(known)
		}
		object := n.cluster.pod(l.name)
		if object == nil {
			continue
		}
		seen := shown{Deleted: object.DeletionTimestamp != nil, Labels: object.Labels, Status: sorted(object.Status)}
		if object.UID == n.pods[l].UID || l.name == staticPod {
			seen.Life = l.String()
			p.Objects[l.name] = seen
		}
	}
	return p
}

// sorted is the status with its conditions in an order of their own: the API keeps them by type.
func sorted(status v1.PodStatus) v1.PodStatus {
	status.Conditions = slices.SortedFunc(slices.Values(status.Conditions), func(a, b v1.PodCondition) int {
		return cmp.Compare(a.Type, b.Type)
	})
	return status
}

// cached is a sorted status from a cache, without the time that the kubelet writes into its own while it sends (TestSM65).
func cached(status v1.PodStatus) v1.PodStatus {
	status = sorted(status)
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == v1.DisruptionTarget {
			c.LastTransitionTime = metav1.Time{}
		}
	}
	return status
}

// compare returns in what the two nodes differ: the kubelet's has a minus, ours a plus.
func (w *twins) compare(options ...gocmp.Option) string {
	kubelet, herald := w.picture(w.nodes[0]), w.picture(w.nodes[1])
	for _, l := range w.lives {
		if l.meddled {
			allowLaterReady(kubelet.Objects[l.name].Status, herald.Objects[l.name].Status)
			allowLaterReady(kubelet.Cached[l.String()], herald.Cached[l.String()])
		}
	}
	options = append(options, cmpopts.EquateEmpty(), gocmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) }))
	return gocmp.Diff(kubelet, herald, options...)
}

// allowLaterReady makes the times of Ready the same if ours is later, which it may be for a pod whose Ready somebody else
// has turned (TestSM24).
func allowLaterReady(kubelet, herald v1.PodStatus) {
	theirs, ours := conditionOf(kubelet, v1.PodReady), conditionOf(herald, v1.PodReady)
	if theirs != nil && ours != nil && theirs.LastTransitionTime.Before(&ours.LastTransitionTime) {
		theirs.LastTransitionTime = ours.LastTransitionTime
	}
}

func conditionOf(status v1.PodStatus, kind v1.PodConditionType) *v1.PodCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return &status.Conditions[i]
		}
	}
	return nil
}
