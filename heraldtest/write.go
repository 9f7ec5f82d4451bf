package heraldtest

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// postNew makes an object of what a client wants to create.
func (s *APIServer) postNew(at key, posted object) (object, error) {
	at.name = posted.GetName()
	if err := addressMatches(at, posted); err != nil {
		return nil, err
	}
	if at.name == "" {
		return nil, apierrors.NewInvalid(at.resource.groupKind(), "", field.ErrorList{
			field.Required(field.NewPath("metadata", "name"), "name is required"),
		})
	}
	if posted.GetResourceVersion() != "" {
		return nil, failure(http.StatusInternalServerError, metav1.StatusReasonUnknown,
			"resourceVersion should not be set on objects to be created")
	}
	posted.SetUID(s.store.nextUID())
	posted.SetCreationTimestamp(metav1.Now())
	posted.SetDeletionTimestamp(nil)
	posted.SetDeletionGracePeriodSeconds(nil)
	if at.resource.onCreate != nil {
		at.resource.onCreate(posted)
	}
	return s.store.create(at, posted)
}

// addressMatches wants the object to be where the path leads. It may leave its namespace to the path.
func addressMatches(at key, o object) error {
	if o.GetNamespace() == "" {
		o.SetNamespace(at.namespace)
	}
	if o.GetNamespace() != at.namespace || o.GetName() != at.name {
		return apierrors.NewBadRequest("the name or namespace of the object does not match the one in the URL")
	}
	return nil
}

func conflict(at key, cause error) error {
	return apierrors.NewConflict(at.resource.group(), at.name, cause)
}

// errModified is the API server's wording of a lost race.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// admitUpdate makes of what a client wants an object to be what it may be, or says why it may not. The resource version
// is looked at before everything else.
func admitUpdate(at key, status bool, updated, old object) ([]object, error) {
	if err := addressMatches(at, updated); err != nil {
		return nil, err
	}
	switch updated.GetResourceVersion() {
	case "", "0", old.GetResourceVersion():
		updated.SetResourceVersion(old.GetResourceVersion())
	default:
		return nil, conflict(at, errModified)
	}
	keepSystemFields(updated, old)
	restore := at.resource.onUpdate
	if status {
		restore = at.resource.onStatus
	}
	restore(updated, old)
	errs := validation.ValidateObjectMetaAccessorUpdate(updated, old, field.NewPath("metadata"))
	if status && at.resource.refuse != nil {
		errs = append(errs, at.resource.refuse(updated, old)...)
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(at.resource.groupKind(), at.name, errs)
	}
	if status && at.resource.labelsAreFixed && !maps.Equal(updated.GetLabels(), old.GetLabels()) {
		return nil, apierrors.NewForbidden(at.resource.group(), at.name, errLabels)
	}
	if isReleased(updated) {
		return []object{nil}, nil
	}
	return []object{updated}, nil
}

// errLabels is what a node is told; the double takes every client for one.
var errLabels = errors.New("a node cannot update labels through status")

func keepSystemFields(updated, old object) {
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

// isReleased reports whether nothing holds a deleted object any longer.
func isReleased(o object) bool {
	grace := o.GetDeletionGracePeriodSeconds()
	return o.GetDeletionTimestamp() != nil && grace != nil && *grace == 0 && len(o.GetFinalizers()) == 0
}

// deletion says which versions a deletion takes an object through. An object that may go at once is first marked as
// deleted and then removed: watchers see both.
func deletion(at key, old object, options *metav1.DeleteOptions) ([]object, error) {
	if err := checkPreconditions(at, old, options.Preconditions); err != nil {
		return nil, err
	}
	if at.resource.gracePeriod == nil {
		return []object{nil}, nil
	}
	marked := old.DeepCopyObject().(object)
	if !markDeleted(at.resource, marked, options.GracePeriodSeconds, time.Now()) {
		return nil, nil
	}
	if isReleased(marked) {
		return []object{marked, nil}, nil
	}
	return []object{marked}, nil
}

func checkPreconditions(at key, old object, wanted *metav1.Preconditions) error {
	if wanted == nil {
		return nil
	}
	if uid := old.GetUID(); wanted.UID != nil && *wanted.UID != uid {
		return conflict(at, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s)", *wanted.UID, uid))
	}
	if version := old.GetResourceVersion(); wanted.ResourceVersion != nil && *wanted.ResourceVersion != version {
		return conflict(at, fmt.Errorf(
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s)",
			*wanted.ResourceVersion, version))
	}
	return nil
}

// markDeleted sets or shortens the grace period; it is never lengthened. It reports whether the deletion goes on.
func markDeleted(r *resource, o object, asked *int64, now time.Time) bool {
	if asked != nil && *asked < 0 {
		asked = new(int64(1))
	}
	deadline := o.GetDeletionTimestamp()
	if deadline == nil {
		grant(o, r.gracePeriod(o, asked), now, now)
		o.SetGeneration(o.GetGeneration() + 1)
		return true
	}
	var current int64
	if granted := o.GetDeletionGracePeriodSeconds(); granted != nil {
		current = *granted
	}
	if current == 0 {
		o.SetDeletionGracePeriodSeconds(&current)
		return true
	}
	if asked == nil || *asked >= current {
		return false
	}
	grant(o, *asked, deadline.Add(-time.Duration(current)*time.Second), now)
	return true
}

// grant gives the object so many seconds from start. A deadline in the past becomes now; if it was to be graceful, one
// second of grace remains, so that the node still has the last word.
func grant(o object, seconds int64, start, now time.Time) {
	deadline := start.Add(time.Duration(seconds) * time.Second)
	if deadline.Before(now) {
		deadline, seconds = now, min(seconds, 1)
	}
	o.SetDeletionTimestamp(&metav1.Time{Time: deadline})
	o.SetDeletionGracePeriodSeconds(&seconds)
}
