package apierror_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/heraldnode/herald/internal/apierror"
)

func TestClassify(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	kind := schema.GroupKind{Kind: "Pod"}
	tests := map[string]struct {
		err  error
		want apierror.Class
	}{
		"nil":                {nil, apierror.None},
		"refused connection": {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, apierror.Failed},
		"unknown host":       {&net.DNSError{Name: "api"}, apierror.Failed},
		"reset connection":   {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, apierror.Ambiguous},
		"429":                {apierrors.NewTooManyRequests("busy", 1), apierror.Throttled},
		"404":                {apierrors.NewNotFound(pods, "web"), apierror.NotFound},
		"404 from a proxy":   {apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", pods, "web", "nginx", 0, true), apierror.Ambiguous},
		"409":                {apierrors.NewConflict(pods, "web", errors.New("newer")), apierror.Conflict},
		"401":                {apierrors.NewUnauthorized("expired"), apierror.Failed},
		"403":                {apierrors.NewForbidden(pods, "web", errors.New("no")), apierror.Rejected},
		"403 other node":     {apierrors.NewForbidden(pods, "web", errors.New("can only update pods with spec.nodeName set to itself")), apierror.Replaced},
		"422":                {apierrors.NewInvalid(kind, "web", field.ErrorList{field.Required(field.NewPath("status"), "")}), apierror.Rejected},
		"422 other UID":      {apierrors.NewInvalid(kind, "web", field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), "a", "b")}), apierror.Replaced},
		"413":                {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), apierror.TooLarge},
		"etcd limit":         {apierrors.NewInternalError(errors.New("etcdserver: request is too large")), apierror.TooLarge},
		"500":                {apierrors.NewInternalError(errors.New("oops")), apierror.Ambiguous},
		"wrapped":            {fmt.Errorf("patch status: %w", apierrors.NewNotFound(pods, "web")), apierror.NotFound},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := apierror.Classify(test.err); got != test.want {
				t.Fatalf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestF4_RetryAfter(t *testing.T) {
	for seconds, want := range map[int]time.Duration{0: 0, 7: 7 * time.Second, 86400: 5 * time.Minute} {
		if got := apierror.RetryAfter(apierrors.NewTooManyRequests("busy", seconds)); got != want {
			t.Errorf("Retry-After %d: got %v, want %v", seconds, got, want)
		}
	}
	if got := apierror.RetryAfter(errors.New("no response")); got != 0 {
		t.Errorf("no response: got %v, want 0", got)
	}
}

func TestIsInvalidRequest(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"nil":         {nil, false},
		"403":         {apierrors.NewForbidden(pods, "web", errors.New("no")), true},
		"422":         {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), true},
		"400":         {apierrors.NewBadRequest("syntax"), true},
		"413":         {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), true},
		"404":         {apierrors.NewNotFound(pods, "web"), false},
		"409":         {apierrors.NewConflict(pods, "web", errors.New("newer")), false},
		"500":         {apierrors.NewInternalError(errors.New("oops")), false},
		"no response": {errors.New("connection reset"), false},
		"wrapped":     {fmt.Errorf("create pod: %w", apierrors.NewBadRequest("syntax")), true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := apierror.IsInvalidRequest(test.err); got != test.want {
				t.Fatalf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	request := func(err error) error {
		return fmt.Errorf("patch: %w", &url.Error{Op: "Patch", URL: "https://api/pods", Err: err})
	}
	for want, err := range map[string]error{
		"": nil,
		"API server does not answer: connection refused":       request(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}),
		"API server does not answer: timeout":                  request(context.DeadlineExceeded),
		"API server does not answer: lookup api: no such host": request(&net.DNSError{Err: "no such host", Name: "api"}),
		"API server does not answer: EOF":                      request(io.EOF),
		"API server fails: Internal error occurred: oops":      apierrors.NewInternalError(errors.New("oops")),
		"API server fails: expired":                            apierrors.NewUnauthorized("expired"),
		"limited: busy":                                        apierrors.NewTooManyRequests("busy", 1),
		"limited: other writers change the object too often: Operation cannot be fulfilled on pods \"web\": newer": apierrors.NewConflict(
			pods, "web", errors.New("newer")),
		"rejected: pods \"web\" is forbidden: no": apierrors.NewForbidden(pods, "web", errors.New("no")),
		"panic": errors.New("panic"),
	} {
		if got := apierror.Describe(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
