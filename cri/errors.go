package cri

import (
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// What status.waiting.reason says of a container that was not started, in the kubelet's words.
const (
	reasonPodSandbox      = "CreatePodSandboxError"
	reasonContainerConfig = "CreateContainerConfigError"
	reasonCreateContainer = "CreateContainerError"
	reasonRunContainer    = "RunContainerError"
	reasonPostStartHook   = "PostStartHookError"
	reasonImagePull       = "ErrImagePull"
	reasonImageBackOff    = "ImagePullBackOff"
	reasonImageName       = "InvalidImageName"
	reasonImageNeverPull  = "ErrImageNeverPull"
	reasonImageInspect    = "ImageInspectError"

	reasonRegistryUnavailable = "RegistryUnavailable"
	reasonSignature           = "SignatureValidationFailed"
)

// startError is why something was not started, as status.waiting shows it.
type startError struct {
	reason    string
	message   string
	cause     error
	retry     time.Duration
	announced bool // an event has said the message; the one that all failures have names the reason alone
}

func (e *startError) Error() string { return e.message }
func (e *startError) Unwrap() error { return e.cause }

// WaitingReason is the kubelet's word for status.waiting.reason.
func (e *startError) WaitingReason() string { return e.reason }

// RetryAfter is when to try again at the earliest; 0 leaves it to the caller.
func (e *startError) RetryAfter() time.Duration { return e.retry }

// failed says with reason that cause kept something from starting. The message is the runtime's own, without what gRPC
// puts before it.
func failed(reason string, cause error) *startError {
	return &startError{reason: reason, message: messageOf(cause), cause: cause}
}

// messageOf is the runtime's sentence in an error. An error that only wraps one keeps its own words around it.
func messageOf(err error) string {
	if answer, ok := err.(interface{ GRPCStatus() *grpcstatus.Status }); ok {
		return answer.GRPCStatus().Message()
	}
	return err.Error()
}

func isGone(err error) bool          { return grpcstatus.Code(err) == codes.NotFound }
func isUnimplemented(err error) bool { return grpcstatus.Code(err) == codes.Unimplemented }

// underWayRetry is how soon to ask again for what a runtime is still at, usually for a moment only.
const underWayRetry = time.Second

// isUnderWay tells that the runtime still works on an earlier request for the same name, one that an agent made which was
// killed meanwhile. CRI has no code for it; containerd and CRI-O say it in the same words.
func isUnderWay(err error) bool { return strings.Contains(err.Error(), "is reserved") }
