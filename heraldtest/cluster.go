package heraldtest

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/heraldnode/herald/podid"
)

// The methods in this file act as the rest of the cluster and let tests inspect it. They access the storage directly: they
// work while the server is down, and Requests does not include them.

// AddPod adds a pod with the given status and UID. It fills in the fields that every stored pod has: UID, creation time,
// generation, restart policy, grace period, phase and QoS class. It panics if the pod has no name or namespace, or exists.
func (s *APIServer) AddPod(pod *v1.Pod) *v1.Pod {
	if pod.Name == "" || pod.Namespace == "" {
		panic(fmt.Sprintf("heraldtest: AddPod: name %q and namespace %q must not be empty", pod.Name, pod.Namespace))
	}
	pod = pod.DeepCopy()
	defaultPodSpec(&pod.Spec)
	if pod.Generation == 0 {
		pod.Generation = 1
	}
	if pod.Status.Phase == "" {
		pod.Status.Phase = v1.PodPending
	}
	if pod.Status.QOSClass == "" {
		pod.Status.QOSClass = qosClass(&pod.Spec)
	}
	alignPodIPs(&pod.Status)
	return s.add(s.podKey(podid.FullNameOf(pod)), pod).(*v1.Pod)
}

// Pod returns the pod with this name, or nil.
func (s *APIServer) Pod(name podid.FullName) *v1.Pod {
	stored, err := s.storage.get(s.podKey(name))
	if err != nil {
		return nil
	}
	return stored.DeepCopyObject().(*v1.Pod)
}

// Pods returns all pods, sorted by namespace and name.
func (s *APIServer) Pods() []*v1.Pod { return copyAll[*v1.Pod](s, s.pods) }

// UpdatePod changes any field of a pod, the status included, without validation. A changed spec increments the generation.
// The storage may call edit again if it loses a race with another writer. UpdatePod reports whether the pod exists.
func (s *APIServer) UpdatePod(name podid.FullName, edit func(*v1.Pod)) bool {
	return s.edit(s.podKey(name), func(updated, old object) {
		edit(updated.(*v1.Pod))
		incrementGeneration(updated.(*v1.Pod), old.(*v1.Pod))
	})
}

// DeletePod deletes a pod with a grace period, as kubectl does: a pod on a node is marked as deleted, unless the grace period
// is zero. DeletePod reports whether the pod exists.
func (s *APIServer) DeletePod(name podid.FullName, graceSeconds int64) bool {
	key := s.podKey(name)
	_, err := s.storage.update(key, func(old object) ([]object, error) {
		return prepareDelete(key, old, &metav1.DeleteOptions{GracePeriodSeconds: &graceSeconds})
	})
	return err == nil
}

// AddNode adds a node. It panics if the node exists.
func (s *APIServer) AddNode(name string) *v1.Node {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return s.add(s.nodeKey(name), node).(*v1.Node)
}

// Node returns the node with this name, or nil.
func (s *APIServer) Node(name string) *v1.Node {
	stored, err := s.storage.get(s.nodeKey(name))
	if err != nil {
		return nil
	}
	return stored.DeepCopyObject().(*v1.Node)
}

// UpdateNode changes any field of a node, the status included. The storage may call edit again if it loses a race with
// another writer. UpdateNode reports whether the node exists.
func (s *APIServer) UpdateNode(name string, edit func(*v1.Node)) bool {
	return s.edit(s.nodeKey(name), func(updated, _ object) { edit(updated.(*v1.Node)) })
}

// DeleteNode deletes a node. It reports whether the node existed.
func (s *APIServer) DeleteNode(name string) bool { return s.remove(s.nodeKey(name)) }

// Lease returns the lease of a node, or nil.
func (s *APIServer) Lease(nodeName string) *coordinationv1.Lease {
	stored, err := s.storage.get(s.leaseKey(nodeName))
	if err != nil {
		return nil
	}
	return stored.DeepCopyObject().(*coordinationv1.Lease)
}

// UpdateLease changes any field of a node's lease, like [APIServer.UpdateNode].
func (s *APIServer) UpdateLease(nodeName string, edit func(*coordinationv1.Lease)) bool {
	return s.edit(s.leaseKey(nodeName), func(updated, _ object) { edit(updated.(*coordinationv1.Lease)) })
}

// DeleteLease deletes a node's lease. It reports whether the lease existed.
func (s *APIServer) DeleteLease(nodeName string) bool { return s.remove(s.leaseKey(nodeName)) }

// Put adds or replaces a config map, secret, service or runtime class. It panics for other kinds.
func (s *APIServer) Put(obj runtime.Object) {
	key, given := s.keyOf(obj), obj.DeepCopyObject().(object)
	if _, err := s.storage.get(key); err != nil {
		s.add(key, given)
		return
	}
	_, err := s.storage.update(key, func(old object) ([]object, error) {
		given.SetUID(old.GetUID())
		given.SetCreationTimestamp(old.GetCreationTimestamp())
		given.SetResourceVersion(old.GetResourceVersion())
		return []object{given}, nil
	})
	if err != nil {
		panic(fmt.Sprintf("heraldtest: Put: %v", err))
	}
}

// Events returns all events, sorted by namespace and name.
func (s *APIServer) Events() []*v1.Event { return copyAll[*v1.Event](s, s.events) }

func (s *APIServer) podKey(name podid.FullName) key {
	return key{resource: s.pods, namespace: name.Namespace, name: name.Name}
}

func (s *APIServer) nodeKey(name string) key { return key{resource: s.nodes, name: name} }

func (s *APIServer) leaseKey(nodeName string) key {
	return key{resource: s.leases, namespace: v1.NamespaceNodeLease, name: nodeName}
}

func (s *APIServer) keyOf(obj runtime.Object) key {
	switch obj := obj.(type) {
	case *v1.ConfigMap:
		return key{resource: s.configMaps, namespace: obj.Namespace, name: obj.Name}
	case *v1.Secret:
		return key{resource: s.secrets, namespace: obj.Namespace, name: obj.Name}
	case *v1.Service:
		return key{resource: s.services, namespace: obj.Namespace, name: obj.Name}
	case *nodev1.RuntimeClass:
		return key{resource: s.runtimeClasses, name: obj.Name}
	default:
		panic(fmt.Sprintf("heraldtest: Put: %T is not a config map, secret, service or runtime class", obj))
	}
}

func (s *APIServer) add(k key, obj object) object {
	if obj.GetUID() == "" {
		obj.SetUID(s.storage.newUID())
	}
	if created := obj.GetCreationTimestamp(); created.IsZero() {
		obj.SetCreationTimestamp(metav1.Now())
	}
	stored, err := s.storage.create(k, obj)
	if err != nil {
		panic(fmt.Sprintf("heraldtest: add %s: %v", k.resource.name, err))
	}
	return stored.DeepCopyObject().(object)
}

// edit changes a copy of the object and stores it. It reports whether the object exists.
func (s *APIServer) edit(k key, change func(updated, old object)) bool {
	_, err := s.storage.update(k, func(old object) ([]object, error) {
		updated := old.DeepCopyObject().(object)
		change(updated, old)
		return []object{updated}, nil
	})
	return err == nil
}

func (s *APIServer) remove(k key) bool {
	_, err := s.storage.update(k, func(object) ([]object, error) { return []object{nil}, nil })
	return err == nil
}

// copyAll returns copies of all objects of a resource.
func copyAll[T runtime.Object](s *APIServer, resource *resource) []T {
	stored, _ := s.storage.list(filter{resource: resource, fields: fields.Everything(), labels: labels.Everything()})
	objects := make([]T, 0, len(stored))
	for _, obj := range stored {
		objects = append(objects, obj.DeepCopyObject().(T))
	}
	return objects
}
