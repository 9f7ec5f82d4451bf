package localapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// options are the parameters of a list or watch.
type options struct {
	kind      *kind
	namespace string
	labels    labels.Selector
	fields    fields.Selector
	watch     bool
	// version is the requested resource version; hasVersion is false for "" and "0".
	version    uint64
	hasVersion bool
	isExact    bool
	bookmarks  bool
	// initialEvents asks a watch for all objects and a bookmark after them.
	initialEvents bool
	timeout       time.Duration
}

// matches reports whether a list or watch includes the object.
func (o *options) matches(obj object) bool {
	return obj != nil && (o.namespace == "" || obj.GetNamespace() == o.namespace) &&
		o.labels.Matches(labels.Set(obj.GetLabels())) && (o.fields.Empty() || o.fields.Matches(o.kind.fields(obj)))
}

// parseOptions parses the query. Parameters that are not known are ignored, as by the API server.
func parseOptions(query url.Values, req *request) (*options, *apierrors.StatusError) {
	o := &options{kind: req.kind, namespace: req.namespace}
	var err error
	if o.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	if o.fields, err = parseFields(query.Get("fieldSelector"), req.kind); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for name, value := range map[string]*bool{"watch": &o.watch, "allowWatchBookmarks": &o.bookmarks, "sendInitialEvents": &o.initialEvents} {
		if query.Has(name) {
			if *value, err = strconv.ParseBool(query.Get(name)); err != nil {
				return nil, apierrors.NewBadRequest(name + " must be true or false")
			}
		}
	}
	if seconds := query.Get("timeoutSeconds"); seconds != "" {
		n, err := strconv.ParseUint(seconds, 10, 31)
		if err != nil {
			return nil, apierrors.NewBadRequest("timeoutSeconds must be a number")
		}
		o.timeout = time.Duration(n) * time.Second
	}
	if query.Get("continue") != "" {
		return nil, apierrors.NewResourceExpired("the continue token is not known: lists are complete")
	}
	return o, o.parseVersion(query)
}

func (o *options) parseVersion(query url.Values) *apierrors.StatusError {
	if value := query.Get("resourceVersion"); value != "" && value != "0" {
		version, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("resourceVersion: invalid value %q", value))
		}
		o.version, o.hasVersion = version, true
	}
	match := query.Get("resourceVersionMatch")
	o.isExact = match == string(metav1.ResourceVersionMatchExact)
	// A watch with initial events must say how old they may be, and a list has none (KCT-23).
	if query.Has("sendInitialEvents") && (!o.watch || match != string(metav1.ResourceVersionMatchNotOlderThan)) {
		return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", nil)
	}
	return nil
}

// parseFields parses a field selector, and rejects fields that cannot be selected by (KCT-16).
func parseFields(text string, k *kind) (fields.Selector, error) {
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return nil, fmt.Errorf("fieldSelector: %w", err)
	}
	known := k.fields(k.newObject())
	for _, requirement := range selector.Requirements() {
		if !known.Has(requirement.Field) {
			return nil, fmt.Errorf("field label not supported: %s", requirement.Field)
		}
	}
	return selector, nil
}

// Formats of responses.
type format struct {
	// as is "", Table, or PartialObjectMetadata.
	as string
	// includeObject is what rows of a table contain: None, Metadata or Object.
	includeObject metav1.IncludeObjectPolicy
}

const (
	asTable    = "Table"
	asMetadata = "PartialObjectMetadata"
)

// negotiate returns the first format of the Accept header that is served.
func negotiate(r *http.Request) (format, *apierrors.StatusError) {
	include := metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))
	if include == "" {
		include = metav1.IncludeMetadata
	}
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if accept == "" {
		return format{}, nil
	}
	for media := range strings.SplitSeq(accept, ",") {
		mediaType, parameters := parseMediaType(media)
		isJSON := mediaType == "application/json" || mediaType == "application/*" || mediaType == "*/*"
		switch as := strings.TrimSuffix(parameters["as"], "List"); {
		case !isJSON:
		case as == "":
			return format{}, nil
		case parameters["g"] == metav1.GroupName && parameters["v"] == "v1" && (as == asTable || as == asMetadata):
			return format{as: as, includeObject: include}, nil
		}
	}
	return format{}, apierrors.NewGenericServerResponse(http.StatusNotAcceptable, r.Method, schema.GroupResource{}, "",
		"only application/json is served, as objects, tables and metadata of meta.k8s.io/v1", 0, true)
}

func parseMediaType(text string) (mediaType string, parameters map[string]string) {
	parts := strings.Split(text, ";")
	parameters = map[string]string{}
	for _, part := range parts[1:] {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		parameters[name] = value
	}
	return strings.TrimSpace(parts[0]), parameters
}

func (s *Server) serveObject(w http.ResponseWriter, req *request, f format) {
	obj := s.store.get(req.kind, key{req.namespace, req.name})
	if obj == nil {
		writeError(w, apierrors.NewNotFound(req.resource(), req.name))
		return
	}
	writeJSON(w, http.StatusOK, f.convert(req.kind, obj, true))
}

// list is a list of any kind.
type list struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []any `json:"items"`
}

func (s *Server) serveList(w http.ResponseWriter, o *options, f format) {
	objects, version := s.store.list(o.kind)
	switch {
	case o.hasVersion && o.version > version: // KCT-21
		writeError(w, tooLargeVersion(o.version, version))
		return
	case o.hasVersion && o.isExact && o.version != version:
		writeError(w, apierrors.NewResourceExpired(fmt.Sprintf("only the current version %d is kept", version)))
		return
	}
	writeList(w, o, f, objects, strconv.FormatUint(version, 10))
}

// writeList writes the objects that match.
func writeList(w http.ResponseWriter, o *options, f format, objects []object, version string) {
	var matching []object
	for _, obj := range objects {
		if o.matches(obj) {
			matching = append(matching, obj)
		}
	}
	meta := metav1.ListMeta{ResourceVersion: version}
	if f.as == asTable {
		table := f.table(o.kind, matching, true)
		table.ListMeta = meta
		writeJSON(w, http.StatusOK, table)
		return
	}
	response := list{TypeMeta: o.kind.listTypeMeta(), ListMeta: meta, Items: []any{}}
	if f.as == asMetadata {
		response.TypeMeta = metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "PartialObjectMetadataList"}
	}
	for _, obj := range matching {
		response.Items = append(response.Items, f.convert(o.kind, obj, false))
	}
	writeJSON(w, http.StatusOK, response)
}

// tooLargeVersion is the error for a version that this process has not reached.
func tooLargeVersion(requested, current uint64) *apierrors.StatusError {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", requested, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{
		{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"},
	}
	return err
}

// convert returns the object in the format. withColumns is set for the first table of a response.
func (f format) convert(k *kind, obj object, withColumns bool) any {
	switch f.as {
	case asTable:
		table := f.table(k, []object{obj}, withColumns)
		table.ResourceVersion = obj.GetResourceVersion()
		return table
	case asMetadata:
		return partialMetadata(obj)
	}
	return obj
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(code)
	encode(w, value)
}

func encode(w http.ResponseWriter, value any) {
	_ = json.NewEncoder(w).Encode(value) // fails if the client has gone
}
