package cri

import (
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// Reasons of a waiting container, as the kubelet reports them in state.waiting.reason.
const (
	reasonCreatePodSandbox    = "CreatePodSandboxError"
	reasonContainerConfig     = "CreateContainerConfigError"
	reasonCreateContainer     = "CreateContainerError"
	reasonRunContainer        = "RunContainerError"
	reasonPostStartHook       = "PostStartHookError"
	reasonImagePull           = "ErrImagePull"
	reasonImagePullBackOff    = "ImagePullBackOff"
	reasonInvalidImageName    = "InvalidImageName"
	reasonImageNeverPull      = "ErrImageNeverPull"
	reasonImageInspect        = "ImageInspectError"
	reasonRegistryUnavailable = "RegistryUnavailable"
	reasonSignatureValidation = "SignatureValidationFailed"
)

// startError is the error of StartSandbox and StartContainer. Callers read the reason and the retry delay through the
// methods WaitingReason and RetryAfter.
type startError struct {
	reason     string
	message    string
	cause      error
	retryAfter time.Duration
	hasEvent   bool // an event carries the message already
}

func (e *startError) Error() string { return e.message }
func (e *startError) Unwrap() error { return e.cause }

// WaitingReason returns the kubelet's reason for state.waiting.
func (e *startError) WaitingReason() string { return e.reason }

// RetryAfter returns the minimum delay before the next attempt; 0 leaves it to the caller.
func (e *startError) RetryAfter() time.Duration { return e.retryAfter }

// newStartError wraps cause. Its message is the runtime's own, without gRPC's prefix.
func newStartError(reason string, cause error) *startError {
	return &startError{reason: reason, message: errorMessage(cause), cause: cause}
}

// errorMessage returns the runtime's message of a gRPC error. An error that wraps one keeps its full text.
func errorMessage(err error) string {
	if status, ok := err.(interface{ GRPCStatus() *grpcstatus.Status }); ok {
		return status.GRPCStatus().Message()
	}
	return err.Error()
}

func isNotFound(err error) bool      { return grpcstatus.Code(err) == codes.NotFound }
func isUnimplemented(err error) bool { return grpcstatus.Code(err) == codes.Unimplemented }

// isInterrupted reports whether the connection or the call ended before the runtime answered: the operation may have succeeded.
func isInterrupted(err error) bool {
	switch grpcstatus.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return true
	default:
		return false
	}
}

func isFailedPrecondition(err error) bool { return grpcstatus.Code(err) == codes.FailedPrecondition }

// reservedRetryDelay is the retry delay while a name is reserved, usually for a moment only.
const reservedRetryDelay = time.Second

// isNameReserved reports whether the runtime still processes an earlier request for the same name, from an agent that was
// killed meanwhile. The CRI has no code for it; the messages of containerd and CRI-O agree.
func isNameReserved(err error) bool { return strings.Contains(err.Error(), "is reserved") }
