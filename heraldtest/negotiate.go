package heraldtest

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// format is what a client wants to read.
type format struct {
	codecs serializer.CodecFactory
	runtime.SerializerInfo
	metadataOnly bool
}

// negotiate takes the first clause of an Accept header that the server can serve. Weights are not looked at; client-go
// gives none.
func negotiate(codecs serializer.CodecFactory, accept string) (format, error) {
	for clause := range strings.SplitSeq(accept, ",") {
		mediaType, parameters, _ := mime.ParseMediaType(clause)
		if mediaType == "*/*" || accept == "" {
			mediaType = runtime.ContentTypeJSON
		}
		info, known := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
		as := parameters["as"]
		if known && info.StreamSerializer != nil && (as == "" || strings.HasPrefix(as, "PartialObjectMetadata")) {
			return format{codecs: codecs, SerializerInfo: info, metadataOnly: as != ""}, nil
		}
	}
	return format{}, failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		fmt.Sprintf("nothing in %q can be served", accept))
}

// failure is an answer for which apierrors has no name.
func failure(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

// encode writes the object, or its metadata, as the client wants it.
func (f format) encode(o runtime.Object) ([]byte, error) {
	if f.metadataOnly {
		o = metadataOf(o)
	}
	return f.encodeWith(f.Serializer, o)
}

// encodeWith works on a copy, because an encoder writes the object's kind into it.
func (f format) encodeWith(serializer runtime.Serializer, o runtime.Object) ([]byte, error) {
	var out bytes.Buffer
	encoder := f.codecs.WithoutConversion().EncoderForVersion(serializer, v1.SchemeGroupVersion)
	err := encoder.Encode(o.DeepCopyObject(), &out)
	return out.Bytes(), err
}

// metadataOf leaves objects without metadata, such as a Status, as they are.
func metadataOf(o runtime.Object) runtime.Object {
	if item, err := meta.Accessor(o); err == nil {
		return meta.AsPartialObjectMetadata(item)
	}
	if !meta.IsListType(o) {
		return o
	}
	short := &metav1.PartialObjectMetadataList{}
	if list, err := meta.ListAccessor(o); err == nil {
		short.ResourceVersion = list.GetResourceVersion()
	}
	_ = meta.EachListItem(o, func(item runtime.Object) error {
		short.Items = append(short.Items, *metadataOf(item).(*metav1.PartialObjectMetadata))
		return nil
	})
	return short
}

// respond writes the object, or the error as a Status.
func (f format) respond(w http.ResponseWriter, code int, o runtime.Object, err error) {
	if err != nil {
		status := statusOf(err)
		code, o = int(status.Code), status
		if details := status.Details; details != nil && details.RetryAfterSeconds > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(details.RetryAfterSeconds))
		}
	}
	body, err := f.encode(o)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", f.MediaType)
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may be gone; it is no business of the server's
}

func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	return &status
}
