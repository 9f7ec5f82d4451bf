package status

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

// outcome is what an answer of the API server, or its absence, means for the pod.
type outcome int

// The outcomes of a request, as measured on a real kube-apiserver.
const (
	done      outcome = iota
	gone              // 404: no such object
	replaced          // the name belongs to another UID now, here or on another node
	stale             // 409: the object is newer than the copy that the request was made for
	tooLarge          // the server has no room for so much
	refused           // the server will not have it, however often it is sent
	throttled         // 429: the server asks for patience
	failed            // the server could not be asked, or said that it did nothing
	ambiguous         // the request may have been carried out, or may still be (F9)
)

func (o outcome) String() string {
	return [...]string{"done", "gone", "replaced", "stale", "too_large", "refused", "throttled", "failed", "ambiguous"}[o]
}

// classify tells what became of a request.
func classify(err error) outcome {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return done
	case !errors.As(err, &status):
		return unanswered(err)
	case apierrors.IsTooManyRequests(err):
		return throttled
	case isTooLarge(err):
		return tooLarge
	case apierrors.IsUnexpectedServerError(err):
		// Not the API server's words: a proxy's 404 does not mean that the pod is gone.
		return ambiguous
	case apierrors.IsNotFound(err):
		return gone
	case apierrors.IsConflict(err):
		return stale
	case isReplaced(err):
		return replaced
	case apierrors.IsUnauthorized(err):
		return failed
	case isRefusal(int(status.Status().Code)):
		return refused
	default:
		// 5xx: the server may have stored the object before it failed to say so.
		return ambiguous
	}
}

// unanswered is about a request that got no answer of the server's.
func unanswered(err error) outcome {
	var unknownHost *net.DNSError
	if errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &unknownHost) {
		return failed // not even a connection: nothing was sent
	}
	return ambiguous
}

// isTooLarge recognises the three limits that a large status can meet: the API server's on a request, etcd's on an object,
// and that of the API server's own connection to etcd (F32).
func isTooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) ||
		strings.Contains(err.Error(), "etcdserver: request is too large") ||
		strings.Contains(err.Error(), "trying to send message larger than max")
}

// isReplaced recognises the two ways in which the server says that the object has another UID: 422 with metadata.uid as the
// cause, or, when the new pod is bound elsewhere, 403 from NodeRestriction.
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

func isRefusal(code int) bool {
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// mostPatience is how long a pod waits at most because the server asked for it. Whoever asks for more does not know: it is
// a gateway under maintenance, or a header that went wrong, and nothing else would end the pause (F4).
const mostPatience = 5 * time.Minute

// patienceOf is how long the server asks to be left alone, or 0.
func patienceOf(err error) time.Duration {
	seconds, asked := apierrors.SuggestsClientDelay(err)
	if !asked {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, mostPatience)
}
