package fault_test

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest/fault"
)

// reply makes one request that the rule answers, and gives the answer to apimachinery as a client would.
func reply(t *testing.T, rule *fault.Rule) (retryAfter string, err error) {
	t.Helper()
	w := newWorld(t)
	w.faults.Add(rule)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://api"+status, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil || int64(len(content)) != resp.ContentLength || w.server.log() != "" {
		t.Fatalf("%d bytes of %d, %v; the server got %q", len(content), resp.ContentLength, err, w.server.log())
	}
	var status metav1.Status
	if err := json.Unmarshal(content, &status); err != nil {
		t.Fatalf("not a status: %v: %s", err, content)
	}
	if status.Kind != "Status" || status.APIVersion != "v1" || int(status.Code) != resp.StatusCode {
		t.Fatalf("have %+v with code %d", status, resp.StatusCode)
	}
	return resp.Header.Get("Retry-After"), apierrors.FromObject(&status)
}

func TestF4ToF8RepliesAreTheErrorsThatAClientKnows(t *testing.T) {
	tests := map[string]struct {
		code int
		is   func(error) bool
	}{
		"unauthorized":      {http.StatusUnauthorized, apierrors.IsUnauthorized},
		"forbidden":         {http.StatusForbidden, apierrors.IsForbidden},
		"not found":         {http.StatusNotFound, apierrors.IsNotFound},
		"conflict":          {http.StatusConflict, apierrors.IsConflict},
		"gone":              {http.StatusGone, apierrors.IsResourceExpired},
		"too large":         {http.StatusRequestEntityTooLarge, apierrors.IsRequestEntityTooLargeError},
		"invalid":           {http.StatusUnprocessableEntity, apierrors.IsInvalid},
		"too many requests": {http.StatusTooManyRequests, apierrors.IsTooManyRequests},
		"internal error":    {http.StatusInternalServerError, apierrors.IsInternalError},
		"unavailable":       {http.StatusServiceUnavailable, apierrors.IsServiceUnavailable},
		"gateway timeout":   {http.StatusGatewayTimeout, apierrors.IsTimeout},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			retryAfter, err := reply(t, fault.On("PATCH", "/status").Reply(test.code))
			if !test.is(err) || retryAfter != "" {
				t.Fatalf("%v, retry after %q", err, retryAfter)
			}
		})
	}
}

func TestF4RetryAfterIsInTheHeaderAndInTheStatus(t *testing.T) {
	header, err := reply(t, fault.On("PATCH", "").Reply(http.StatusTooManyRequests, fault.RetryAfter(1500*time.Millisecond)))
	seconds, suggested := apierrors.SuggestsClientDelay(err)
	if header != "2" || !suggested || seconds != 2 {
		t.Fatalf("header %q, status %d", header, seconds)
	}
}

func TestF7ARefusedFieldIsACauseOfTheStatus(t *testing.T) {
	_, err := reply(t, fault.On("PATCH", "").Reply(http.StatusUnprocessableEntity,
		fault.InvalidField("metadata.uid", "field is immutable"), fault.Message("no"), fault.Reason("Odd")))
	got := err.(apierrors.APIStatus).Status()
	want := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: "Odd", Message: "no",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
			{Type: metav1.CauseTypeFieldValueInvalid, Field: "metadata.uid", Message: "field is immutable"},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestABodyOfOnesOwnReplacesTheStatus(t *testing.T) {
	w := newWorld(t)
	w.faults.Add(fault.On("list", "").Reply(http.StatusOK, fault.Body("text/html", []byte("<html>"))))
	for range 2 {
		if got, err := w.get(pods); err != nil || got != "<html>" {
			t.Fatalf("%q, %v", got, err)
		}
	}
}
