package heraldtest

import (
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	optionsvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// filter is which objects a list or a watch is about.
type filter struct {
	resource  *resource
	namespace string // "" is all
	fields    fields.Selector
	labels    labels.Selector
}

// matches is false for the nil object.
func (f filter) matches(at key, o object) bool {
	return o != nil && at.resource == f.resource && (f.namespace == "" || at.namespace == f.namespace) &&
		f.labels.Matches(labels.Set(o.GetLabels())) && f.fields.Matches(f.resource.fields(o))
}

// query is what a client asked of a collection.
type query struct {
	filter
	internalversion.ListOptions
	version int64 // as asked for; 0 if it was not
}

func parseQuery(c call) (query, error) {
	q := query{filter: filter{
		resource: c.at.resource, namespace: c.at.namespace, fields: fields.Everything(), labels: labels.Everything(),
	}}
	if err := scheme.ParameterCodec.DecodeParameters(c.URL.Query(), metav1.SchemeGroupVersion, &q.ListOptions); err != nil {
		return query{}, apierrors.NewBadRequest(err.Error())
	}
	if errs := optionsvalidation.ValidateListOptions(&q.ListOptions, true); len(errs) > 0 {
		return query{}, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if q.FieldSelector != nil {
		q.fields = q.FieldSelector
	}
	if q.LabelSelector != nil {
		q.labels = q.LabelSelector
	}
	known := c.at.resource.fields(c.at.resource.empty())
	for _, requirement := range q.fields.Requirements() {
		if !known.Has(requirement.Field) {
			return query{}, apierrors.NewBadRequest("field label not supported: " + requirement.Field)
		}
	}
	if q.ResourceVersion == "" {
		return q, nil
	}
	version, err := strconv.ParseInt(q.ResourceVersion, 10, 64)
	if err != nil {
		return query{}, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q", q.ResourceVersion))
	}
	q.version = version
	return q, nil
}

// list serves the newest there is, all of it: a limit is a wish that a server need not grant. An exact older version is
// answered as if it had been compacted.
func (s *APIServer) list(c call) (int, runtime.Object, error) {
	q, err := parseQuery(c)
	if err != nil {
		return 0, nil, err
	}
	items, version := s.store.snapshot(q.filter)
	if q.version > version {
		return 0, nil, tooLarge(q.version, version)
	}
	if q.ResourceVersionMatch == metav1.ResourceVersionMatchExact && q.version != version {
		return 0, nil, expired(q.version, version)
	}
	list := c.at.resource.emptyList()
	found := make([]runtime.Object, 0, len(items))
	for _, item := range items {
		found = append(found, item)
	}
	if err := meta.SetList(list, found); err != nil {
		return 0, nil, err
	}
	described, err := meta.ListAccessor(list)
	if err != nil {
		return 0, nil, err
	}
	described.SetResourceVersion(formatVersion(version))
	return http.StatusOK, list, nil
}

func tooLarge(asked, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}
