package containerlog

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/containerlog/entry"
)

// ParseOptions parses and validates the parameters of a request for a log (LOG-1, LOG-2). Unknown parameters are ignored. Errors
// are of type *Error. Unlike the kubelet without a feature gate, it accepts a stream (LOG-3).
func ParseOptions(query url.Values) (*v1.PodLogOptions, error) {
	options, ok := decodeOptions(query)
	if !ok {
		return nil, &Error{http.StatusBadRequest, `{"message": "Unable to decode query."}`}
	}
	if !isValid(options) {
		return nil, &Error{http.StatusUnprocessableEntity, `{"message": "Invalid request."}`}
	}
	return options, nil
}

func decodeOptions(query url.Values) (_ *v1.PodLogOptions, ok bool) {
	options := &v1.PodLogOptions{
		Container:                    query.Get("container"),
		Follow:                       isSet(query, "follow"),
		Previous:                     isSet(query, "previous"),
		Timestamps:                   isSet(query, "timestamps"),
		InsecureSkipTLSVerifyBackend: isSet(query, "insecureSkipTLSVerifyBackend"),
	}
	if query.Has("stream") {
		options.Stream = new(query.Get("stream"))
	}
	tail := "tailLines"
	switch query.Get("tail") {
	case "":
	case "all":
		tail = ""
	default:
		tail = "tail"
	}
	ok = true
	for name, field := range map[string]**int64{
		tail: &options.TailLines, "limitBytes": &options.LimitBytes, "sinceSeconds": &options.SinceSeconds,
	} {
		if !query.Has(name) {
			continue
		}
		value, err := strconv.ParseInt(query.Get(name), 10, 64)
		*field, ok = &value, ok && err == nil
	}
	if query.Has("sinceTime") {
		var at metav1.Time
		err := at.UnmarshalQueryParameter(query.Get("sinceTime"))
		options.SinceTime, ok = &at, ok && err == nil
	}
	return options, ok
}

// isSet reports whether a parameter is there and neither false nor 0.
func isSet(query url.Values, name string) bool {
	return query.Has(name) && query.Get(name) != "0" && !strings.EqualFold(query.Get(name), "false")
}

func isValid(options *v1.PodLogOptions) bool {
	isAtLeast := func(value *int64, least int64) bool { return value == nil || *value >= least }
	if !isAtLeast(options.TailLines, 0) || !isAtLeast(options.LimitBytes, 1) || !isAtLeast(options.SinceSeconds, 1) {
		return false
	}
	if options.SinceSeconds != nil && options.SinceTime != nil {
		return false
	}
	if options.Stream == nil {
		return true
	}
	switch *options.Stream {
	case v1.LogStreamAll:
		return true
	case v1.LogStreamStdout, v1.LogStreamStderr:
		return options.TailLines == nil
	default:
		return false
	}
}

// decoderOptions converts the options of a request.
func decoderOptions(options *v1.PodLogOptions, now time.Time) entry.Options {
	converted := entry.Options{Timestamps: options.Timestamps, Limit: -1}
	if options.LimitBytes != nil {
		converted.Limit = *options.LimitBytes
	}
	if options.SinceSeconds != nil {
		converted.Since = now.Add(-time.Duration(*options.SinceSeconds) * time.Second)
	}
	if options.SinceTime != nil && options.SinceTime.After(converted.Since) {
		converted.Since = options.SinceTime.Time
	}
	if options.Stream != nil {
		converted.Omit[entry.Stdout] = *options.Stream == v1.LogStreamStderr
		converted.Omit[entry.Stderr] = *options.Stream == v1.LogStreamStdout
	}
	return converted
}
