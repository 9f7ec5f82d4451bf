package heraldtest

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
)

// Node returns the node of that name as it is now, or nil.
func (s *APIServer) Node(name string) *v1.Node {
	found, err := s.store.get(key{resource: s.nodes, name: name})
	if err != nil {
		return nil
	}
	return found.DeepCopyObject().(*v1.Node)
}

// UpdateNode changes anything of a node, its status too. edit may be called more than once, if others write at the same
// time. It reports whether there was a node of that name.
func (s *APIServer) UpdateNode(name string, edit func(*v1.Node)) bool {
	return s.edit(key{resource: s.nodes, name: name}, func(o object) { edit(o.(*v1.Node)) })
}

// DeleteNode deletes a node, as kubectl would. It reports whether there was one of that name.
func (s *APIServer) DeleteNode(name string) bool {
	_, err := s.store.transition(key{resource: s.nodes, name: name}, func(object) ([]object, error) {
		return []object{nil}, nil
	})
	return err == nil
}

// Lease returns the lease of the node of that name as it is now, or nil.
func (s *APIServer) Lease(node string) *coordinationv1.Lease {
	found, err := s.store.get(s.leaseAt(node))
	if err != nil {
		return nil
	}
	return found.DeepCopyObject().(*coordinationv1.Lease)
}

// UpdateLease changes anything of a node's lease; see UpdateNode.
func (s *APIServer) UpdateLease(node string, edit func(*coordinationv1.Lease)) bool {
	return s.edit(s.leaseAt(node), func(o object) { edit(o.(*coordinationv1.Lease)) })
}

// DeleteLease deletes a node's lease. It reports whether there was one.
func (s *APIServer) DeleteLease(node string) bool {
	_, err := s.store.transition(s.leaseAt(node), func(object) ([]object, error) { return []object{nil}, nil })
	return err == nil
}

func (s *APIServer) leaseAt(node string) key {
	return key{resource: s.leases, namespace: v1.NamespaceNodeLease, name: node}
}

func (s *APIServer) edit(at key, change func(object)) bool {
	_, err := s.store.transition(at, func(old object) ([]object, error) {
		updated := old.DeepCopyObject().(object)
		change(updated)
		return []object{updated}, nil
	})
	return err == nil
}
