package heraldtest

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// resource describes one kind of object. Its functions modify their first argument, a copy, and only read the second.
type resource struct {
	name, kind string
	apiGroup   string // "": the core group
	namespaced bool
	newObject  func() object
	newList    func() runtime.Object
	// fields returns the fields that field selectors support.
	fields func(object) fields.Set
	// prepareCreate resets the fields that a client cannot set. Nil: there are none.
	prepareCreate func(created object)
	// prepareUpdate and prepareStatusUpdate restore the fields that a write to the object, or to its status, cannot change.
	prepareUpdate, prepareStatusUpdate func(updated, old object)
	// fixedLabels is true if a status update cannot change the labels.
	fixedLabels bool
	// validateStatus validates a status update. Nil: every status is valid.
	validateStatus func(updated, old object) field.ErrorList
	// gracePeriod returns the grace period of a deletion. requested is nil if the client did not set one. Nil: the kind has
	// no graceful deletion.
	gracePeriod func(old object, requested *int64) int64
}

func (r *resource) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.apiGroup, Resource: r.name}
}

func (r *resource) groupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.apiGroup, Kind: r.kind}
}

// root returns the path prefix of the resource's API group.
func (r *resource) root() string {
	if r.apiGroup == "" {
		return "/api/v1/"
	}
	return "/apis/" + r.apiGroup + "/v1/"
}

func newPodResource() *resource {
	return &resource{
		name: "pods", kind: "Pod", namespaced: true, fixedLabels: true,
		newObject: func() object { return &v1.Pod{} },
		newList:   func() runtime.Object { return &v1.PodList{} },
		fields: func(obj object) fields.Set {
			pod := obj.(*v1.Pod)
			return fields.Set{
				"metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
				"spec.nodeName": pod.Spec.NodeName, "status.phase": string(pod.Status.Phase),
			}
		},
		prepareCreate:       func(created object) { preparePodCreate(created.(*v1.Pod)) },
		prepareUpdate:       func(updated, old object) { preparePodUpdate(updated.(*v1.Pod), old.(*v1.Pod)) },
		prepareStatusUpdate: func(updated, old object) { preparePodStatusUpdate(updated.(*v1.Pod), old.(*v1.Pod)) },
		validateStatus:      func(updated, old object) field.ErrorList { return validatePodStatus(updated.(*v1.Pod), old.(*v1.Pod)) },
		gracePeriod:         func(old object, requested *int64) int64 { return podGracePeriod(old.(*v1.Pod), requested) },
	}
}

func newNodeResource() *resource {
	return &resource{
		name: "nodes", kind: "Node",
		newObject:           func() object { return &v1.Node{} },
		newList:             func() runtime.Object { return &v1.NodeList{} },
		fields:              func(obj object) fields.Set { return fields.Set{"metadata.name": obj.GetName()} },
		prepareUpdate:       func(updated, old object) { updated.(*v1.Node).Status = old.(*v1.Node).Status },
		prepareStatusUpdate: func(updated, old object) { updated.(*v1.Node).Spec = old.(*v1.Node).Spec },
	}
}

// newPlainResource returns a namespaced resource without rules of its own.
func newPlainResource(name, kind string, newObject func() object, newList func() runtime.Object) *resource {
	return &resource{
		name: name, kind: kind, namespaced: true, newObject: newObject, newList: newList,
		fields: func(obj object) fields.Set {
			return fields.Set{"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace()}
		},
		prepareUpdate: func(object, object) {}, prepareStatusUpdate: func(object, object) {},
	}
}

func newConfigMapResource() *resource {
	return newPlainResource("configmaps", "ConfigMap", func() object { return &v1.ConfigMap{} },
		func() runtime.Object { return &v1.ConfigMapList{} })
}

func newSecretResource() *resource {
	return newPlainResource("secrets", "Secret", func() object { return &v1.Secret{} },
		func() runtime.Object { return &v1.SecretList{} })
}

func newServiceResource() *resource {
	return newPlainResource("services", "Service", func() object { return &v1.Service{} },
		func() runtime.Object { return &v1.ServiceList{} })
}

func newEventResource() *resource {
	return newPlainResource("events", "Event", func() object { return &v1.Event{} },
		func() runtime.Object { return &v1.EventList{} })
}

func newLeaseResource() *resource {
	leases := newPlainResource("leases", "Lease", func() object { return &coordinationv1.Lease{} },
		func() runtime.Object { return &coordinationv1.LeaseList{} })
	leases.apiGroup = coordinationv1.GroupName
	return leases
}

func newRuntimeClassResource() *resource {
	classes := newPlainResource("runtimeclasses", "RuntimeClass", func() object { return &nodev1.RuntimeClass{} },
		func() runtime.Object { return &nodev1.RuntimeClassList{} })
	classes.apiGroup, classes.namespaced = nodev1.GroupName, false
	return classes
}

var (
	// errModified has the API server's message for an optimistic lock failure.
	errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")
	// errLabels has the message of the NodeRestriction admission plugin.
	errLabels = errors.New("a node cannot update labels through status")
)

// createObject validates and stores a new object of a client.
func (s *APIServer) createObject(k key, obj object) (object, error) {
	k.name = obj.GetName()
	if err := checkName(k, obj); err != nil {
		return nil, err
	}
	if k.name == "" {
		return nil, apierrors.NewInvalid(k.resource.groupKind(), "", field.ErrorList{
			field.Required(field.NewPath("metadata", "name"), "name is required"),
		})
	}
	if obj.GetResourceVersion() != "" {
		return nil, newStatusError(http.StatusInternalServerError, metav1.StatusReasonUnknown,
			"resourceVersion should not be set on objects to be created")
	}
	obj.SetUID(s.storage.newUID())
	obj.SetCreationTimestamp(metav1.Now())
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	if k.resource.prepareCreate != nil {
		k.resource.prepareCreate(obj)
	}
	return s.storage.create(k, obj)
}

// checkName fails unless name and namespace match the URL. It sets an empty namespace from the URL.
func checkName(k key, obj object) error {
	if obj.GetNamespace() == "" {
		obj.SetNamespace(k.namespace)
	}
	if obj.GetNamespace() != k.namespace || obj.GetName() != k.name {
		return apierrors.NewBadRequest("the name or namespace of the object does not match the one in the URL")
	}
	return nil
}

func conflict(k key, cause error) error {
	return apierrors.NewConflict(k.resource.groupResource(), k.name, cause)
}

// prepareUpdate validates an update and returns the versions to store. It checks the resource version first, as the real
// server does.
func prepareUpdate(k key, isStatus bool, updated, old object) ([]object, error) {
	if err := checkName(k, updated); err != nil {
		return nil, err
	}
	switch updated.GetResourceVersion() {
	case "", "0", old.GetResourceVersion():
		updated.SetResourceVersion(old.GetResourceVersion())
	default:
		return nil, conflict(k, errModified)
	}
	restoreSystemFields(updated, old)
	prepare := k.resource.prepareUpdate
	if isStatus {
		prepare = k.resource.prepareStatusUpdate
	}
	prepare(updated, old)
	errs := validation.ValidateObjectMetaAccessorUpdate(updated, old, field.NewPath("metadata"))
	if isStatus && k.resource.validateStatus != nil {
		errs = append(errs, k.resource.validateStatus(updated, old)...)
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(k.resource.groupKind(), k.name, errs)
	}
	if isStatus && k.resource.fixedLabels && !maps.Equal(updated.GetLabels(), old.GetLabels()) {
		return nil, apierrors.NewForbidden(k.resource.groupResource(), k.name, errLabels)
	}
	if isRemovable(updated) {
		return []object{nil}, nil
	}
	return []object{updated}, nil
}

func restoreSystemFields(updated, old object) {
	updated.SetGeneration(old.GetGeneration())
	updated.SetCreationTimestamp(old.GetCreationTimestamp())
	updated.SetDeletionTimestamp(old.GetDeletionTimestamp())
	if updated.GetUID() == "" {
		updated.SetUID(old.GetUID())
	}
	if updated.GetDeletionGracePeriodSeconds() == nil {
		updated.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	}
}

// isRemovable reports whether the object is deleted, without a grace period and without finalizers.
func isRemovable(obj object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return obj.GetDeletionTimestamp() != nil && grace != nil && *grace == 0 && len(obj.GetFinalizers()) == 0
}

// prepareDelete validates a deletion and returns the versions to store. An object that can be removed immediately is marked
// as deleted first: watchers see both changes.
func prepareDelete(k key, old object, options *metav1.DeleteOptions) ([]object, error) {
	if err := checkPreconditions(k, old, options.Preconditions); err != nil {
		return nil, err
	}
	if k.resource.gracePeriod == nil {
		return []object{nil}, nil
	}
	deleted := old.DeepCopyObject().(object)
	if !markDeleted(k.resource, deleted, options.GracePeriodSeconds, time.Now()) {
		return nil, nil
	}
	if isRemovable(deleted) {
		return []object{deleted, nil}, nil
	}
	return []object{deleted}, nil
}

func checkPreconditions(k key, old object, preconditions *metav1.Preconditions) error {
	if preconditions == nil {
		return nil
	}
	if uid := old.GetUID(); preconditions.UID != nil && *preconditions.UID != uid {
		return conflict(k, fmt.Errorf(
			"the UID in the precondition (%s) does not match the UID in record (%s)", *preconditions.UID, uid))
	}
	if version := old.GetResourceVersion(); preconditions.ResourceVersion != nil && *preconditions.ResourceVersion != version {
		return conflict(k, fmt.Errorf(
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s)",
			*preconditions.ResourceVersion, version))
	}
	return nil
}

// markDeleted sets or shortens the grace period; it never extends it. It reports whether the deletion proceeds.
func markDeleted(r *resource, obj object, requested *int64, now time.Time) bool {
	if requested != nil && *requested < 0 {
		requested = new(int64(1))
	}
	deadline := obj.GetDeletionTimestamp()
	if deadline == nil {
		setGracePeriod(obj, r.gracePeriod(obj, requested), now, now)
		obj.SetGeneration(obj.GetGeneration() + 1)
		return true
	}
	var current int64
	if grace := obj.GetDeletionGracePeriodSeconds(); grace != nil {
		current = *grace
	}
	if current == 0 {
		obj.SetDeletionGracePeriodSeconds(&current)
		return true
	}
	if requested == nil || *requested >= current {
		return false
	}
	setGracePeriod(obj, *requested, deadline.Add(-time.Duration(current)*time.Second), now)
	return true
}

// setGracePeriod sets a grace period that begins at start. A deadline in the past becomes now; a graceful deletion then keeps
// one second, so that the node still removes the object.
func setGracePeriod(obj object, seconds int64, start, now time.Time) {
	deadline := start.Add(time.Duration(seconds) * time.Second)
	if deadline.Before(now) {
		deadline, seconds = now, min(seconds, 1)
	}
	obj.SetDeletionTimestamp(&metav1.Time{Time: deadline})
	obj.SetDeletionGracePeriodSeconds(&seconds)
}
