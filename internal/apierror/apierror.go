// Package apierror classifies the errors of requests to an API server.
package apierror

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Class is what an error means for the object of the request. The classes follow the responses of a real kube-apiserver.
type Class int

const (
	// None is the class of a nil error.
	None Class = iota
	// NotFound means that the object does not exist.
	NotFound
	// Replaced means that the name now belongs to an object with another UID, possibly on another node.
	Replaced
	// Conflict means that the object is newer than the copy that the request was based on.
	Conflict
	// TooLarge means that the object exceeds a size limit of the API server or etcd.
	TooLarge
	// Rejected means that the server rejects the request and would reject it again.
	Rejected
	// Throttled means that the server asks the client to retry later.
	Throttled
	// Failed means that the request was not executed.
	Failed
	// Ambiguous means that the request may have been executed, or may still be (F9).
	Ambiguous
)

// String returns the class as metrics and logs name it.
func (c Class) String() string {
	return [...]string{
		"success", "not_found", "replaced", "conflict", "too_large", "rejected", "throttled", "failed", "ambiguous",
	}[c]
}

// Classify returns the class of an error, which may be wrapped.
func Classify(err error) Class {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return None
	case !errors.As(err, &status):
		return classifyTransport(err)
	case apierrors.IsTooManyRequests(err):
		return Throttled
	case isTooLarge(err):
		return TooLarge
	case apierrors.IsUnexpectedServerError(err):
		// Not a response of the API server: a proxy's 404 does not mean that the object is gone.
		return Ambiguous
	case apierrors.IsNotFound(err):
		return NotFound
	case apierrors.IsConflict(err):
		return Conflict
	case isReplaced(err):
		return Replaced
	case apierrors.IsUnauthorized(err):
		return Failed
	case isClientError(int(status.Status().Code)):
		return Rejected
	default:
		// 5xx: the server may have stored the object before it failed.
		return Ambiguous
	}
}

// classifyTransport classifies an error that is not a response of the server.
func classifyTransport(err error) Class {
	var unknownHost *net.DNSError
	if errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &unknownHost) {
		return Failed // no connection, so nothing was sent
	}
	return Ambiguous
}

// isTooLarge reports whether the object exceeds one of three limits: the API server's for a request, etcd's for an object, or
// that of the connection between them (F32). The latter two can only be recognized by their text.
func isTooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) ||
		strings.Contains(err.Error(), "etcdserver: request is too large") ||
		strings.Contains(err.Error(), "trying to send message larger than max")
}

// isReplaced recognizes the two responses to a UID that does not match: 422 with metadata.uid as the cause or, if the new
// object is bound to another node, 403 from NodeRestriction.
func isReplaced(err error) bool {
	if apierrors.IsForbidden(err) {
		return strings.Contains(err.Error(), "spec.nodeName")
	}
	if !apierrors.IsInvalid(err) {
		return false
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
			return cause.Field == "metadata.uid"
		})
}

// IsUnrelated reports whether the authorizer of nodes rejected the request because it knows no relation between the node and the
// object. It answers so, and not with 404, if the object does not exist.
func IsUnrelated(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "no relationship found")
}

func isClientError(code int) bool {
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// IsInvalidRequest reports whether the server rejected the request because of its content or its sender.
func IsInvalidRequest(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err)
}

// maxRetryAfter caps Retry-After. A longer one comes from a gateway under maintenance or a broken header, and nothing else
// would end the wait (F4).
const maxRetryAfter = 5 * time.Minute

// RetryAfter returns the delay that the server asks for, at most five minutes, or 0.
func RetryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}
