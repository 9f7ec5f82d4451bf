package fault

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reply answers in the server's place, which does not get the request: with a metav1.Status as the API server writes it,
// or with what the options say.
func (s Selector) Reply(code int, options ...ReplyOption) *Rule {
	reply := statusReply(code)
	for _, option := range options {
		option(&reply)
	}
	answer := reply.answer()
	return s.request(func(_ *exchange, req *http.Request, _ send) (*http.Response, error) {
		return answer.response(req), abandon(req, nil)
	})
}

// ReplyOption changes the answer that [Selector.Reply] gives.
type ReplyOption func(*reply)

// RetryAfter says when to come back, rounded up to whole seconds, in the header and in the status.
func RetryAfter(d time.Duration) ReplyOption {
	seconds := int((d + time.Second - 1) / time.Second)
	return func(r *reply) {
		r.header.Set("Retry-After", strconv.Itoa(seconds))
		r.status.Details.RetryAfterSeconds = int32(seconds)
	}
}

// Reason replaces the reason that the API server has for the code.
func Reason(reason metav1.StatusReason) ReplyOption {
	return func(r *reply) { r.status.Reason = reason }
}

// Message replaces the sentence in the status.
func Message(message string) ReplyOption {
	return func(r *reply) { r.status.Message = message }
}

// InvalidField adds a cause, as a 422 has one for each field that it refuses.
func InvalidField(field, message string) ReplyOption {
	cause := metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message}
	return func(r *reply) { r.status.Details.Causes = append(r.status.Details.Causes, cause) }
}

// Body replaces the status altogether, and need not make sense.
func Body(contentType string, body []byte) ReplyOption {
	return func(r *reply) {
		r.header.Set("Content-Type", contentType)
		r.body = body
	}
}

// reply is an answer under construction.
type reply struct {
	code   int
	header http.Header
	status metav1.Status
	body   []byte // replaces status if it is not nil
}

// reasons are the API server's words for its codes.
var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:            metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:          metav1.StatusReasonUnauthorized,
	http.StatusForbidden:             metav1.StatusReasonForbidden,
	http.StatusNotFound:              metav1.StatusReasonNotFound,
	http.StatusConflict:              metav1.StatusReasonConflict,
	http.StatusGone:                  metav1.StatusReasonExpired,
	http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
	http.StatusUnprocessableEntity:   metav1.StatusReasonInvalid,
	http.StatusTooManyRequests:       metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError:   metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:    metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:        metav1.StatusReasonTimeout,
}

func statusReply(code int) reply {
	return reply{
		code:   code,
		header: http.Header{"Content-Type": {"application/json"}},
		status: metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure,
			Message:  fmt.Sprintf("fault injected by a test: %d %s", code, http.StatusText(code)),
			Reason:   reasons[code],
			Details:  &metav1.StatusDetails{},
			Code:     int32(code),
		},
	}
}

func (r reply) answer() *canned {
	body := r.body
	if body == nil {
		var err error
		if body, err = json.Marshal(r.status); err != nil {
			panic(fmt.Sprintf("fault: a metav1.Status that is not JSON: %v", err))
		}
	}
	return &canned{code: r.code, header: r.header, body: body}
}
