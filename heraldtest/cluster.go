package heraldtest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/heraldnode/herald/podid"
)

// What follows is what others in the cluster do, and what a test may look at. It works while the server is down, since
// it does not go through the door, and is not among the Requests.

// AddNode adds a node. It panics if there is one of that name: the test is wrong then.
func (s *APIServer) AddNode(name string) *v1.Node {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return s.add(key{resource: s.nodes, name: name}, node).(*v1.Node)
}

// AddPod adds a pod as it is given, status and UID included, and fills in what no stored pod lacks: UID, creation time,
// generation, restart policy, grace period, phase, QoS class. It panics if there is one of that name, or if it has no
// name or no namespace: the test is wrong then.
func (s *APIServer) AddPod(pod *v1.Pod) *v1.Pod {
	if pod.Name == "" || pod.Namespace == "" {
		panic(fmt.Sprintf("heraldtest: the pod %q in namespace %q needs both names", pod.Name, pod.Namespace))
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
		pod.Status.QOSClass = qosClassOf(&pod.Spec)
	}
	alignPodIPs(&pod.Status)
	return s.add(s.podAt(podid.FullNameOf(pod)), pod).(*v1.Pod)
}

func (s *APIServer) add(at key, o object) object {
	if o.GetUID() == "" {
		o.SetUID(s.store.nextUID())
	}
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(metav1.Now())
	}
	stored, err := s.store.create(at, o)
	if err != nil {
		panic(fmt.Sprintf("heraldtest: add: %v", err))
	}
	return stored.DeepCopyObject().(object)
}

func (s *APIServer) podAt(name podid.FullName) key {
	return key{resource: s.pods, namespace: name.Namespace, name: name.Name}
}

// Pod returns the pod of that name as it is now, or nil.
func (s *APIServer) Pod(name podid.FullName) *v1.Pod {
	found, err := s.store.get(s.podAt(name))
	if err != nil {
		return nil
	}
	return found.DeepCopyObject().(*v1.Pod)
}

// Pods returns all pods as they are now, by namespace and name.
func (s *APIServer) Pods() []*v1.Pod {
	found, _ := s.store.snapshot(filter{resource: s.pods, fields: fields.Everything(), labels: labels.Everything()})
	pods := make([]*v1.Pod, 0, len(found))
	for _, o := range found {
		pods = append(pods, o.DeepCopyObject().(*v1.Pod))
	}
	return pods
}

// UpdatePod changes anything of a pod, its status too, without a look at the server's rules; a changed spec raises the
// generation. edit may be called more than once, if others write at the same time. It reports whether there was a pod of
// that name.
func (s *APIServer) UpdatePod(name podid.FullName, edit func(*v1.Pod)) bool {
	_, err := s.store.transition(s.podAt(name), func(old object) ([]object, error) {
		updated := old.DeepCopyObject().(*v1.Pod)
		edit(updated)
		raiseGeneration(updated, old.(*v1.Pod))
		return []object{updated}, nil
	})
	return err == nil
}

// DeletePod deletes a pod with so many seconds of grace, as kubectl would: a pod on a node is only marked as deleted
// unless the grace is zero. It reports whether there was a pod of that name.
func (s *APIServer) DeletePod(name podid.FullName, graceSeconds int64) bool {
	at := s.podAt(name)
	_, err := s.store.transition(at, func(old object) ([]object, error) {
		return deletion(at, old, &metav1.DeleteOptions{GracePeriodSeconds: &graceSeconds})
	})
	return err == nil
}

// Put adds a config map, secret or service, or replaces the one of that name.
func (s *APIServer) Put(o runtime.Object) {
	at, given := s.keyOf(o), o.DeepCopyObject().(object)
	if _, err := s.store.get(at); err != nil {
		s.add(at, given)
		return
	}
	_, err := s.store.transition(at, func(old object) ([]object, error) {
		given.SetUID(old.GetUID())
		given.SetCreationTimestamp(old.GetCreationTimestamp())
		given.SetResourceVersion(old.GetResourceVersion())
		return []object{given}, nil
	})
	if err != nil {
		panic(fmt.Sprintf("heraldtest: put: %v", err))
	}
}

func (s *APIServer) keyOf(o runtime.Object) key {
	switch o := o.(type) {
	case *v1.ConfigMap:
		return key{resource: s.configMaps, namespace: o.Namespace, name: o.Name}
	case *v1.Secret:
		return key{resource: s.secrets, namespace: o.Namespace, name: o.Name}
	case *v1.Service:
		return key{resource: s.services, namespace: o.Namespace, name: o.Name}
	default:
		panic(fmt.Sprintf("heraldtest: put: %T is neither config map, secret nor service", o))
	}
}

// Events returns all events as they are now, by namespace and name.
func (s *APIServer) Events() []*v1.Event {
	found, _ := s.store.snapshot(filter{resource: s.events, fields: fields.Everything(), labels: labels.Everything()})
	events := make([]*v1.Event, 0, len(found))
	for _, o := range found {
		events = append(events, o.DeepCopyObject().(*v1.Event))
	}
	return events
}
