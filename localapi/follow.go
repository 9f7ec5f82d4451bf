package localapi

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// followPods stores pods until ctx ends.
//
// A node can hold two pods of one name, one of which is still terminating. The API has one object per name: the pod that came
// last, and the other once that has gone.
func (s *Server) followPods(ctx context.Context) {
	byName := podsByName{}
	for _, pod := range s.config.Agent.LocalPods() {
		s.updatePod(byName, watch.Event{Type: watch.Added, Object: pod})
	}
	close(s.synced)
	for event := range s.config.Agent.WatchLocalPods(ctx) {
		s.updatePod(byName, event)
	}
}

// podsByName holds the pods of each name in the order of their arrival.
type podsByName map[key][]*v1.Pod

func (s *Server) updatePod(byName podsByName, event watch.Event) {
	pod := event.Object.(*v1.Pod)
	id := keyOf(pod)
	shown := byName.shown(id)
	byName.update(id, pod, event.Type == watch.Deleted)
	k, next := kinds["pods"], byName.shown(id)
	switch {
	case next == shown:
	case next == nil:
		s.store.set(k, id, nil)
	case shown != nil && shown.UID != next.UID: // another pod
		s.store.set(k, id, nil)
		s.store.set(k, id, shallowCopy(next))
	case shown != nil && event.Type == watch.Added && equality.Semantic.DeepEqual(shown, next): // the watch starts with what was listed
	default:
		s.store.set(k, id, shallowCopy(next))
	}
	s.updateNamespace(id.namespace)
}

func (p podsByName) update(id key, pod *v1.Pod, isDeleted bool) {
	index := slices.IndexFunc(p[id], func(other *v1.Pod) bool { return other.UID == pod.UID })
	switch {
	case isDeleted && index >= 0:
		p[id] = slices.Delete(p[id], index, index+1)
	case isDeleted:
	case index >= 0:
		p[id][index] = pod
	default:
		p[id] = append(p[id], pod)
	}
	if len(p[id]) == 0 {
		delete(p, id)
	}
}

// shown returns the pod that represents the name, or nil.
func (p podsByName) shown(id key) *v1.Pod {
	if pods := p[id]; len(pods) > 0 {
		return pods[len(pods)-1]
	}
	return nil
}

// shallowCopy returns a pod whose metadata can be changed.
func shallowCopy(pod *v1.Pod) *v1.Pod {
	copied := *pod
	return &copied
}

// followNode stores the Node until ctx ends. Heartbeats alone are no change.
func (s *Server) followNode(ctx context.Context) {
	k := kinds["nodes"]
	var id key
	var before *v1.Node
	firstSeen := metav1.Now().Rfc3339Copy()
	for node := range s.config.Node(ctx) {
		node = node.DeepCopy()
		if node != nil && node.CreationTimestamp.IsZero() { // no API server has created it
			node.CreationTimestamp = firstSeen
		}
		switch {
		case node == nil && before != nil:
			s.store.set(k, id, nil)
		case node != nil && (before == nil || isChanged(before, node)):
			id = keyOf(node)
			s.store.set(k, id, node.DeepCopy())
		case node != nil:
			continue
		}
		before = node
	}
}

// isChanged reports whether two versions of the Node differ by more than their heartbeats.
func isChanged(before, after *v1.Node) bool {
	return !equality.Semantic.DeepEqual(withoutHeartbeats(before), withoutHeartbeats(after))
}

func withoutHeartbeats(node *v1.Node) *v1.Node {
	node = node.DeepCopy()
	node.ResourceVersion, node.ManagedFields = "", nil
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return node
}

// followEvents stores events until ctx ends. The oldest are dropped.
func (s *Server) followEvents(ctx context.Context) {
	k := kinds["events"]
	var order []key // by last occurrence
	for event := range s.config.Events(ctx) {
		id := keyOf(&event)
		order = append(slices.DeleteFunc(order, func(other key) bool { return other == id }), id)
		if event.CreationTimestamp.IsZero() {
			event.CreationTimestamp = event.FirstTimestamp
		}
		s.store.set(k, id, event.DeepCopy())
		s.updateNamespace(id.namespace)
		if len(order) > s.config.MaxEvents {
			s.store.set(k, order[0], nil)
			s.updateNamespace(order[0].namespace)
			order = order[1:]
		}
	}
}

// updateNamespace adds or removes a namespace: it exists while it has pods or events (KCT-33).
func (s *Server) updateNamespace(name string) {
	k, id := kinds["namespaces"], key{name: name}
	isShown, isUsed := s.store.get(k, id) != nil, s.store.has(name, kinds["pods"], kinds["events"])
	switch {
	case isShown && !isUsed:
		s.store.set(k, id, nil)
	case isUsed && !isShown:
		s.store.set(k, id, &v1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, CreationTimestamp: metav1.Now().Rfc3339Copy(), Labels: map[string]string{v1.LabelMetadataName: name},
			},
			Status: v1.NamespaceStatus{Phase: v1.NamespaceActive},
		})
	}
}
