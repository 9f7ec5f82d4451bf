package apierror

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Describe returns why a request failed, for people.
func Describe(err error) string {
	switch Classify(err) {
	case None:
		return ""
	case Rejected, TooLarge:
		return fmt.Sprintf("rejected: %v", err)
	case Throttled:
		return fmt.Sprintf("limited: %v", err)
	case Conflict:
		return fmt.Sprintf("limited: other writers change the object too often: %v", err)
	default:
		return describeFailure(err)
	}
}

// describeFailure describes the error of a request that the API server did not execute or answer.
func describeFailure(err error) string {
	var (
		response apierrors.APIStatus
		errno    syscall.Errno
		name     *net.DNSError
		request  *url.Error
	)
	switch {
	case errors.As(err, &response):
		return fmt.Sprintf("API server fails: %v", err)
	case errors.Is(err, context.DeadlineExceeded):
		return "API server does not answer: timeout"
	case errors.As(err, &errno):
		return fmt.Sprintf("API server does not answer: %v", errno)
	case errors.As(err, &name):
		return fmt.Sprintf("API server does not answer: %v", name)
	case errors.As(err, &request):
		return fmt.Sprintf("API server does not answer: %v", request.Err)
	default:
		return err.Error()
	}
}
