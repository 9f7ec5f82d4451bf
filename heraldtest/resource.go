package heraldtest

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// resource is what the server knows of one kind of object. Its functions change the object they are given first, which
// is a copy, and read the other.
type resource struct {
	name, kind string
	apiGroup   string // "" for the core group
	namespaced bool
	empty      func() object
	emptyList  func() runtime.Object
	// fields are what a field selector can see.
	fields func(object) fields.Set
	// onCreate resets what a creator may not set; nil for nothing.
	onCreate func(created object)
	// onUpdate and onStatus put back what a write to the object, or to its status, may not touch.
	onUpdate, onStatus func(updated, old object)
	// labelsAreFixed tells that a write to the status may not change the labels.
	labelsAreFixed bool
	// refuse says what is wrong with a new status; nil if nothing ever is.
	refuse func(updated, old object) field.ErrorList
	// gracePeriod is how long a deletion that asks for so many seconds, or for the object's own number, shall wait; nil
	// if the kind knows no graceful deletion.
	gracePeriod func(old object, asked *int64) int64
}

func (r *resource) group() schema.GroupResource {
	return schema.GroupResource{Group: r.apiGroup, Resource: r.name}
}

func (r *resource) groupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.apiGroup, Kind: r.kind}
}

// root is what the paths of the resource begin with.
func (r *resource) root() string {
	if r.apiGroup == "" {
		return "/api/v1/"
	}
	return "/apis/" + r.apiGroup + "/v1/"
}

func podResource() *resource {
	return &resource{
		name: "pods", kind: "Pod", namespaced: true, labelsAreFixed: true,
		empty:     func() object { return &v1.Pod{} },
		emptyList: func() runtime.Object { return &v1.PodList{} },
		fields: func(o object) fields.Set {
			pod := o.(*v1.Pod)
			return fields.Set{
				"metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
				"spec.nodeName": pod.Spec.NodeName, "status.phase": string(pod.Status.Phase),
			}
		},
		onCreate:    func(created object) { resetNewPod(created.(*v1.Pod)) },
		onUpdate:    func(updated, old object) { keepPodStatus(updated.(*v1.Pod), old.(*v1.Pod)) },
		onStatus:    func(updated, old object) { keepAllButPodStatus(updated.(*v1.Pod), old.(*v1.Pod)) },
		refuse:      func(updated, old object) field.ErrorList { return refusePodStatus(updated.(*v1.Pod), old.(*v1.Pod)) },
		gracePeriod: func(old object, asked *int64) int64 { return podGracePeriod(old.(*v1.Pod), asked) },
	}
}

func nodeResource() *resource {
	return &resource{
		name: "nodes", kind: "Node",
		empty:     func() object { return &v1.Node{} },
		emptyList: func() runtime.Object { return &v1.NodeList{} },
		fields:    func(o object) fields.Set { return fields.Set{"metadata.name": o.GetName()} },
		onUpdate:  func(updated, old object) { updated.(*v1.Node).Status = old.(*v1.Node).Status },
		onStatus:  func(updated, old object) { updated.(*v1.Node).Spec = old.(*v1.Node).Spec },
	}
}

// plainResource is a kind that is stored and read, and about which the server has no opinion.
func plainResource(name, kind string, empty func() object, emptyList func() runtime.Object) *resource {
	return &resource{
		name: name, kind: kind, namespaced: true, empty: empty, emptyList: emptyList,
		fields: func(o object) fields.Set {
			return fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
		},
		onUpdate: func(object, object) {}, onStatus: func(object, object) {},
	}
}

func configMapResource() *resource {
	return plainResource("configmaps", "ConfigMap", func() object { return &v1.ConfigMap{} },
		func() runtime.Object { return &v1.ConfigMapList{} })
}

func secretResource() *resource {
	return plainResource("secrets", "Secret", func() object { return &v1.Secret{} },
		func() runtime.Object { return &v1.SecretList{} })
}

func serviceResource() *resource {
	return plainResource("services", "Service", func() object { return &v1.Service{} },
		func() runtime.Object { return &v1.ServiceList{} })
}

func eventResource() *resource {
	return plainResource("events", "Event", func() object { return &v1.Event{} },
		func() runtime.Object { return &v1.EventList{} })
}

func leaseResource() *resource {
	leases := plainResource("leases", "Lease", func() object { return &coordinationv1.Lease{} },
		func() runtime.Object { return &coordinationv1.LeaseList{} })
	leases.apiGroup = coordinationv1.GroupName
	return leases
}
