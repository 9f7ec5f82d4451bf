package heraldtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

const (
	statusSubresource = "status"
	// maxRequestBytes is the API server's limit on request bodies.
	maxRequestBytes = 3 << 20
)

// call is a request and the object or collection that it addresses.
type call struct {
	*http.Request
	key      key
	isStatus bool // addresses the status subresource
	encoding encoding
}

// handlerFunc returns the status code and the object of the response, or an error.
type handlerFunc func(call) (int, runtime.Object, error)

func (s *APIServer) newHandler() http.Handler {
	mux := http.NewServeMux()
	for _, resource := range []*resource{s.pods, s.nodes, s.configMaps, s.secrets, s.services, s.events, s.leases, s.runtimeClasses} {
		collection := resource.root() + resource.name
		if resource.namespaced {
			s.handle(mux, "GET "+collection, resource, s.list)
			collection = resource.root() + "namespaces/{namespace}/" + resource.name
		}
		s.handle(mux, "GET "+collection, resource, s.list)
		s.handle(mux, "POST "+collection, resource, s.create)
		s.handle(mux, "DELETE "+collection+"/{name}", resource, s.delete)
		for _, path := range []string{collection + "/{name}", collection + "/{name}/" + statusSubresource} {
			s.handle(mux, "GET "+path, resource, s.get)
			s.handle(mux, "PUT "+path, resource, s.update)
			s.handle(mux, "PATCH "+path, resource, s.patch)
		}
	}
	// Only tokens can be requested: every service account exists.
	accounts := &resource{name: "serviceaccounts", kind: "ServiceAccount", namespaced: true}
	s.handle(mux, "POST /api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", accounts, s.createToken)
	return mux
}

func (s *APIServer) handle(mux *http.ServeMux, pattern string, resource *resource, handler handlerFunc) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
		s.recordRequest(resource, req)
		encoding, err := negotiate(s.codecs, req.Header.Get("Accept"))
		if err != nil {
			encoding, _ = negotiate(s.codecs, runtime.ContentTypeJSON)
			encoding.respond(w, 0, nil, err)
			return
		}
		c := call{
			Request: req, encoding: encoding,
			key:      key{resource: resource, namespace: req.PathValue("namespace"), name: req.PathValue("name")},
			isStatus: subresourceOf(req) == statusSubresource,
		}
		if isWatch(req) {
			s.watch(w, c)
			return
		}
		code, obj, err := handler(c)
		encoding.respond(w, code, obj, err)
	})
}

// subresourceOf returns the part of the path after the object's name.
func subresourceOf(req *http.Request) string {
	_, subresource, _ := strings.Cut(req.Pattern, "/{name}/")
	return subresource
}

func (s *APIServer) get(c call) (int, runtime.Object, error) {
	stored, err := s.storage.get(c.key)
	return http.StatusOK, stored, err
}

func (s *APIServer) create(c call) (int, runtime.Object, error) {
	obj := c.key.resource.newObject()
	if err := s.decode(c, obj); err != nil {
		return 0, nil, err
	}
	created, err := s.createObject(c.key, obj)
	return http.StatusCreated, created, err
}

func (s *APIServer) update(c call) (int, runtime.Object, error) {
	obj := c.key.resource.newObject()
	if err := s.decode(c, obj); err != nil {
		return 0, nil, err
	}
	stored, err := s.storage.update(c.key, func(old object) ([]object, error) {
		if uid := obj.GetUID(); uid != "" && uid != old.GetUID() {
			return nil, conflict(c.key, fmt.Errorf("the object with UID %s is gone, this one has %s", uid, old.GetUID()))
		}
		return prepareUpdate(c.key, c.isStatus, obj.DeepCopyObject().(object), old)
	})
	return http.StatusOK, stored, err
}

func (s *APIServer) patch(c call) (int, runtime.Object, error) {
	patch, err := readBody(c.Body)
	if err != nil {
		return 0, nil, err
	}
	patchType, _, _ := mime.ParseMediaType(c.Header.Get("Content-Type"))
	stored, err := s.storage.update(c.key, func(old object) ([]object, error) {
		updated, err := applyPatch(c.key, types.PatchType(patchType), old, patch)
		if err != nil {
			return nil, err
		}
		return prepareUpdate(c.key, c.isStatus, updated, old)
	})
	return http.StatusOK, stored, err
}

func (s *APIServer) delete(c call) (int, runtime.Object, error) {
	options := &metav1.DeleteOptions{}
	if err := s.decode(c, options); err != nil {
		return 0, nil, err
	}
	deleted, err := s.storage.update(c.key, func(old object) ([]object, error) {
		return prepareDelete(c.key, old, options)
	})
	return http.StatusOK, deleted, err
}

// createToken issues a token that names its service account, its pod and a serial number. It rejects a token that is not
// bound to a pod, as the real server does for a node.
func (s *APIServer) createToken(c call) (int, runtime.Object, error) {
	request := &authenticationv1.TokenRequest{}
	if err := s.decode(c, request); err != nil {
		return 0, nil, err
	}
	pod := request.Spec.BoundObjectRef
	if pod == nil || pod.Kind != "Pod" || pod.UID == "" {
		return 0, nil, apierrors.NewForbidden(c.key.resource.groupResource(), c.key.name, errors.New("node requested token not bound to a pod"))
	}
	seconds := int64(3600)
	if request.Spec.ExpirationSeconds != nil {
		seconds = *request.Spec.ExpirationSeconds
	}
	request.Status = authenticationv1.TokenRequestStatus{
		Token:               fmt.Sprintf("%s/%s for %s, %s", c.key.namespace, c.key.name, pod.Name, s.storage.newUID()),
		ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Duration(seconds) * time.Second)),
	}
	return http.StatusCreated, request, nil
}

// decode reads the request's body, in any supported encoding, into an object. An empty body leaves the object unchanged.
func (s *APIServer) decode(c call, into runtime.Object) error {
	body, err := readBody(c.Body)
	if err != nil || len(body) == 0 {
		return err
	}
	decoded, _, err := s.codecs.UniversalDeserializer().Decode(body, nil, into)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if decoded != into {
		return apierrors.NewBadRequest("the body is an object of another kind")
	}
	return nil
}

func readBody(body io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, maxRequestBytes+1))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(data) > maxRequestBytes {
		return nil, apierrors.NewRequestEntityTooLargeError("limit is 3145728")
	}
	return data, nil
}

// applyPatch returns a patched copy of the object.
func applyPatch(k key, patchType types.PatchType, old object, patch []byte) (object, error) {
	original, err := json.Marshal(old)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	var merged []byte
	switch patchType {
	case types.StrategicMergePatchType:
		merged, err = strategicpatch.StrategicMergePatch(original, patch, k.resource.newObject())
	case types.MergePatchType:
		merged, err = mergePatch(original, patch)
	default:
		return nil, newStatusError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, fmt.Sprintf(
			"patch type %q is not supported, only %s and %s", patchType, types.StrategicMergePatchType, types.MergePatchType))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	updated := k.resource.newObject()
	if err := json.Unmarshal(merged, updated); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return updated, nil
}

// mergePatch implements RFC 7386.
func mergePatch(original, patch []byte) ([]byte, error) {
	var target, changes map[string]any
	if err := json.Unmarshal(original, &target); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(patch, &changes); err != nil {
		return nil, err
	}
	return json.Marshal(mergeMaps(target, changes))
}

func mergeMaps(target, changes map[string]any) map[string]any {
	if target == nil {
		target = map[string]any{}
	}
	for name, value := range changes {
		switch value := value.(type) {
		case nil:
			delete(target, name)
		case map[string]any:
			child, _ := target[name].(map[string]any)
			target[name] = mergeMaps(child, value)
		default:
			target[name] = value
		}
	}
	return target
}

// encoding is the negotiated encoding of a response.
type encoding struct {
	codecs serializer.CodecFactory
	runtime.SerializerInfo
	metadataOnly bool
}

// negotiate selects the first supported clause of an Accept header. It ignores weights; client-go sends none.
func negotiate(codecs serializer.CodecFactory, accept string) (encoding, error) {
	for clause := range strings.SplitSeq(accept, ",") {
		mediaType, parameters, _ := mime.ParseMediaType(clause)
		if mediaType == "*/*" || accept == "" {
			mediaType = runtime.ContentTypeJSON
		}
		info, known := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
		as := parameters["as"]
		if known && info.StreamSerializer != nil && (as == "" || strings.HasPrefix(as, "PartialObjectMetadata")) {
			return encoding{codecs: codecs, SerializerInfo: info, metadataOnly: as != ""}, nil
		}
	}
	return encoding{}, newStatusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		fmt.Sprintf("no media type of %q is supported", accept))
}

// encode encodes the object, or its metadata if the client asked for that.
func (e encoding) encode(obj runtime.Object) ([]byte, error) {
	if e.metadataOnly {
		obj = metadataOf(obj)
	}
	return e.encodeWith(e.Serializer, obj)
}

// encodeWith encodes a copy, because the encoder sets the kind of the object.
func (e encoding) encodeWith(serializer runtime.Serializer, obj runtime.Object) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := e.codecs.WithoutConversion().EncoderForVersion(serializer, v1.SchemeGroupVersion)
	err := encoder.Encode(obj.DeepCopyObject(), &buffer)
	return buffer.Bytes(), err
}

// metadataOf returns the metadata of an object or list. Objects without metadata, such as a Status, are returned unchanged.
func metadataOf(obj runtime.Object) runtime.Object {
	if accessor, err := meta.Accessor(obj); err == nil {
		return meta.AsPartialObjectMetadata(accessor)
	}
	if !meta.IsListType(obj) {
		return obj
	}
	list := &metav1.PartialObjectMetadataList{}
	if accessor, err := meta.ListAccessor(obj); err == nil {
		list.ResourceVersion = accessor.GetResourceVersion()
	}
	_ = meta.EachListItem(obj, func(item runtime.Object) error {
		list.Items = append(list.Items, *metadataOf(item).(*metav1.PartialObjectMetadata))
		return nil
	})
	return list
}

// respond writes the object, or the error as a Status.
func (e encoding) respond(w http.ResponseWriter, code int, obj runtime.Object, err error) {
	if err != nil {
		status := statusOf(err)
		code, obj = int(status.Code), status
		if details := status.Details; details != nil && details.RetryAfterSeconds > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(details.RetryAfterSeconds))
		}
	}
	body, err := e.encode(obj)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", e.MediaType)
	w.WriteHeader(code)
	_, _ = w.Write(body) // fails only if the client is gone
}

// newStatusError returns an API error for which package apierrors has no constructor.
func newStatusError(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

func statusOf(err error) *metav1.Status {
	var apiStatus apierrors.APIStatus
	if !errors.As(err, &apiStatus) {
		apiStatus = apierrors.NewInternalError(err)
	}
	status := apiStatus.Status()
	return &status
}
