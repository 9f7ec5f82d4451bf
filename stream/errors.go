package stream

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// Error is a response without a stream.
type Error struct {
	Code    int
	Message string
	// RetryAfter is when the client may try again; 0 says nothing about it.
	RetryAfter time.Duration
}

func (e *Error) Error() string { return e.Message }

var errPodNotFound = &Error{Code: http.StatusNotFound, Message: "pod does not exist"}

// writeError responds as the kubelet does: the message as plain text, with a code that follows from the runtime's (STR-5).
func writeError(w http.ResponseWriter, err error) {
	var response *Error
	if !errors.As(err, &response) {
		response = &Error{Code: http.StatusInternalServerError, Message: err.Error()}
		switch grpcstatus.Code(err) {
		case codes.NotFound:
			response.Code = http.StatusNotFound
		case codes.ResourceExhausted:
			response.Code, response.RetryAfter = http.StatusTooManyRequests, time.Minute
		default:
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if response.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(response.RetryAfter.Seconds())))
	}
	w.WriteHeader(response.Code)
	_, _ = io.WriteString(w, response.Message)
}
