package fault_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest/fault"
)

func TestF2_Delay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.faults.Add(fault.On("GET", "").Delay(20 * time.Millisecond))
		start := time.Now()
		got, err := h.get(pod)
		if took := time.Since(start); err != nil || got != "response 1" || took != 20*time.Millisecond {
			t.Fatalf("got %q, %v after %v, want a response after 20ms", got, err, took)
		}
	})
}

func TestF2_DelayBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.faults.Add(fault.On("GET", "").DelayBetween(10*time.Millisecond, 30*time.Millisecond))
		seen := map[time.Duration]bool{}
		for range 50 {
			start := time.Now()
			h.try(http.MethodGet, pod)
			took := time.Since(start)
			if took < 10*time.Millisecond || took > 30*time.Millisecond {
				t.Fatalf("got delay %v, want 10ms to 30ms", took)
			}
			seen[took] = true
		}
		if len(seen) < 2 {
			t.Fatal("got the same delay 50 times")
		}
	})
}

func TestF3_ContextDeadline(t *testing.T) {
	for name, rule := range map[string]func() *fault.Rule{
		"hang":  fault.On("GET", "").Hang,
		"delay": func() *fault.Rule { return fault.On("GET", "").Delay(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				h.faults.Add(rule())
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				_, err := h.call(ctx, http.MethodGet, pod, "")
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != 10*time.Second {
					t.Fatalf("got %v after %v, want deadline exceeded after 10s", err, took)
				}
				if h.server.log() != "" {
					t.Fatalf("got request %s at the server, want none", h.server.log())
				}
			})
		})
	}
}

func TestSelector_ConnectionErrors(t *testing.T) {
	tests := map[string]struct {
		rule     *fault.Rule
		want     error
		executed string
	}{
		"refused":    {fault.On("PATCH", "").Refuse(), syscall.ECONNREFUSED, ""},
		"reset":      {fault.On("PATCH", "").Reset(), syscall.ECONNRESET, ""},
		"reply lost": {fault.On("PATCH", "").LoseReply(), syscall.ECONNRESET, "PATCH " + status + " {}"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.faults.Add(test.rule)
			_, err := h.call(t.Context(), http.MethodPatch, status, "{}")
			if !errors.Is(err, test.want) || h.server.log() != test.executed {
				t.Fatalf("got %v, executed %q, want %v, %q", err, h.server.log(), test.want, test.executed)
			}
		})
	}
}

func TestSelector_Duplicate(t *testing.T) {
	h := newHarness(t)
	h.faults.Add(fault.On("PATCH", "").Duplicate())
	got, err := h.call(t.Context(), http.MethodPatch, status, "{}")
	want := "PATCH " + status + " {}"
	if err != nil || got != "response 2" || h.server.log() != want+", "+want {
		t.Fatalf("got %q, %v, executed %s, want two executions", got, err, h.server.log())
	}
	if requests := h.faults.Requests(); len(requests) != 1 || len(requests[0].Forwarded) != 2 {
		t.Fatalf("got trace %+v, want one request forwarded twice", requests)
	}
}

func TestF9_HoldUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		release := make(chan struct{})
		h.faults.Add(fault.On("PATCH", "").Times(1).HoldUntil(release))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.call(ctx, http.MethodPatch, status, "old"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("held request: got %v, want deadline exceeded", err)
		}
		if _, err := h.call(t.Context(), http.MethodPatch, status, "new"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		close(release)
		h.faults.Wait()

		want := fmt.Sprintf("PATCH %s new, PATCH %s old", status, status)
		if h.server.log() != want {
			t.Fatalf("got %s, want %s", h.server.log(), want)
		}
		held := h.faults.Requests()[0]
		if held.Status != 0 || len(held.Forwarded) != 1 || held.Forwarded[0].Status != http.StatusOK ||
			held.Forwarded[0].Start.Sub(held.End) != time.Minute {
			t.Fatalf("got %+v, want a request that was forwarded a minute after its end", held)
		}
	})
}

func TestSelector_HoldFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.faults.Add(fault.On("PATCH", "").HoldFor(3 * time.Second))
		start := time.Now()
		got, err := h.call(t.Context(), http.MethodPatch, status, "{}")
		if took := time.Since(start); err != nil || got != "response 1" || took != 3*time.Second {
			t.Fatalf("got %q, %v after %v, want a response after 3s", got, err, took)
		}
	})
}

func TestF12_Stale(t *testing.T) {
	h := newHarness(t)
	remove := h.faults.Add(fault.On("list", "/pods").Stale())
	steps := []struct{ url, want string }{
		{pods, "response 1"},
		{pods + "?limit=5", "response 2"},
		{pods, "response 1"},
		{pod, "response 3"},
		{pods, "response 1"},
	}
	for _, step := range steps {
		if got, err := h.get(step.url); err != nil || got != step.want {
			t.Fatalf("%s: got %q, %v, want %q", step.url, got, err, step.want)
		}
	}
	remove()
	if got, err := h.get(pods); err != nil || got != "response 4" {
		t.Fatalf("after removal: got %q, %v", got, err)
	}
}

func TestF10_Rewrite(t *testing.T) {
	h := newHarness(t)
	h.faults.Add(fault.On("GET", "/pods").Rewrite(func(resp *http.Response) error {
		resp.Body.Close()
		resp.Body = io.NopCloser(strings.NewReader(`{"kind":"Po`))
		return nil
	}))
	if got, err := h.get(pod); err != nil || got != `{"kind":"Po` {
		t.Fatalf("got %q, %v, want the rewritten body", got, err)
	}
	errRewrite := errors.New("rewrite failed")
	h.faults.Add(fault.On("GET", "/readyz").Rewrite(func(*http.Response) error { return errRewrite }))
	if _, err := h.get("/readyz"); !errors.Is(err, errRewrite) {
		t.Fatalf("got %v, want %v", err, errRewrite)
	}
}

func TestInjector_RuleOrder(t *testing.T) {
	delay, reply := fault.On("*", "").Delay(time.Second), fault.On("*", "").Reply(http.StatusServiceUnavailable)
	tests := map[string]struct {
		rules []*fault.Rule
		want  time.Duration
	}{
		"delayed reply":     {[]*fault.Rule{delay, reply}, time.Second},
		"delay after reply": {[]*fault.Rule{reply, delay}, 0},
		"two delays":        {[]*fault.Rule{delay, delay, reply}, 2 * time.Second},
		"first reply only":  {[]*fault.Rule{reply, fault.On("*", "").Hang()}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				for _, rule := range test.rules {
					h.faults.Add(rule)
				}
				start := time.Now()
				h.try(http.MethodGet, pod)
				if took := time.Since(start); took != test.want || h.faults.Requests()[0].Status != http.StatusServiceUnavailable {
					t.Fatalf("got delay %v, want %v; trace %+v", took, test.want, h.faults.Requests())
				}
			})
		})
	}
}

// reply sends a request that the rule answers and decodes the response with apimachinery, as a client does.
func reply(t *testing.T, rule *fault.Rule) (retryAfter string, err error) {
	t.Helper()
	h := newHarness(t)
	h.faults.Add(rule)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://api"+status, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil || int64(len(content)) != resp.ContentLength || h.server.log() != "" {
		t.Fatalf("got %d bytes, want %d, err %v; server executed %q", len(content), resp.ContentLength, err, h.server.log())
	}
	var status metav1.Status
	if err := json.Unmarshal(content, &status); err != nil {
		t.Fatalf("body is not a Status: %v: %s", err, content)
	}
	if status.Kind != "Status" || status.APIVersion != "v1" || int(status.Code) != resp.StatusCode {
		t.Fatalf("got status %+v with code %d", status, resp.StatusCode)
	}
	return resp.Header.Get("Retry-After"), apierrors.FromObject(&status)
}

func TestF4_F5_F6_F7_F8_Reply(t *testing.T) {
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
				t.Fatalf("got %v, Retry-After %q", err, retryAfter)
			}
		})
	}
}

func TestF4_RetryAfter(t *testing.T) {
	header, err := reply(t, fault.On("PATCH", "").Reply(http.StatusTooManyRequests, fault.RetryAfter(1500*time.Millisecond)))
	seconds, suggested := apierrors.SuggestsClientDelay(err)
	if header != "2" || !suggested || seconds != 2 {
		t.Fatalf("got header %q, status %d, want 2 seconds in both", header, seconds)
	}
}

func TestF7_InvalidField(t *testing.T) {
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
		t.Fatalf("status (-want +got):\n%s", diff)
	}
}

func TestSelector_ReplyBody(t *testing.T) {
	h := newHarness(t)
	h.faults.Add(fault.On("list", "").Reply(http.StatusOK, fault.Body("text/html", []byte("<html>"))))
	for range 2 {
		if got, err := h.get(pods); err != nil || got != "<html>" {
			t.Fatalf("got %q, %v, want the body", got, err)
		}
	}
}
