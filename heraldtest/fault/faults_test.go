package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heraldnode/herald/heraldtest/fault"
)

func TestF2ADelayedRequestTakesThatMuchLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.faults.Add(fault.On("GET", "").Delay(20 * time.Millisecond))
		start := time.Now()
		got, err := w.get(pod)
		if took := time.Since(start); err != nil || got != "answer 1" || took != 20*time.Millisecond {
			t.Fatalf("%q, %v after %v", got, err, took)
		}
	})
}

func TestF2JitterStaysInItsBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.faults.Add(fault.On("GET", "").DelayBetween(10*time.Millisecond, 30*time.Millisecond))
		seen := map[time.Duration]bool{}
		for range 50 {
			start := time.Now()
			w.try(http.MethodGet, pod)
			took := time.Since(start)
			if took < 10*time.Millisecond || took > 30*time.Millisecond {
				t.Fatalf("took %v", took)
			}
			seen[took] = true
		}
		if len(seen) < 2 {
			t.Fatal("there is no jitter")
		}
	})
}

func TestF3AClientWaitsForAHangOrADelayOnlyUntilItsDeadline(t *testing.T) {
	for name, rule := range map[string]func() *fault.Rule{
		"hang":  fault.On("GET", "").Hang,
		"delay": func() *fault.Rule { return fault.On("GET", "").Delay(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.faults.Add(rule())
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				_, err := w.call(ctx, http.MethodGet, pod, "")
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != 10*time.Second {
					t.Fatalf("%v after %v", err, took)
				}
				if w.server.log() != "" {
					t.Fatalf("the server got %s", w.server.log())
				}
			})
		})
	}
}

func TestBrokenConnectionsLookAsTheNetPackageReportsThem(t *testing.T) {
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
			w := newWorld(t)
			w.faults.Add(test.rule)
			_, err := w.call(t.Context(), http.MethodPatch, status, "{}")
			if !errors.Is(err, test.want) || w.server.log() != test.executed {
				t.Fatalf("%v, and the server executed %q; want %v, %q", err, w.server.log(), test.want, test.executed)
			}
		})
	}
}

func TestADuplicatedRequestIsExecutedTwiceAndAnsweredOnce(t *testing.T) {
	w := newWorld(t)
	w.faults.Add(fault.On("PATCH", "").Duplicate())
	got, err := w.call(t.Context(), http.MethodPatch, status, "{}")
	one := "PATCH " + status + " {}"
	if err != nil || got != "answer 2" || w.server.log() != one+", "+one {
		t.Fatalf("%q, %v; executed %s", got, err, w.server.log())
	}
	if requests := w.faults.Requests(); len(requests) != 1 || len(requests[0].Forwarded) != 2 {
		t.Fatalf("trace: %+v", requests)
	}
}

func TestF9AHeldRequestLandsAfterTheNewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		release := make(chan struct{})
		w.faults.Add(fault.On("PATCH", "").Times(1).HoldUntil(release))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.call(ctx, http.MethodPatch, status, "old"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the held request: %v", err)
		}
		if _, err := w.call(t.Context(), http.MethodPatch, status, "new"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		close(release)
		w.faults.Wait()

		want := fmt.Sprintf("PATCH %s new, PATCH %s old", status, status)
		if w.server.log() != want {
			t.Fatalf("executed %s, want %s", w.server.log(), want)
		}
		zombie := w.faults.Requests()[0]
		if zombie.Status != 0 || len(zombie.Forwarded) != 1 || zombie.Forwarded[0].Status != http.StatusOK ||
			zombie.Forwarded[0].Start.Sub(zombie.End) != time.Minute {
			t.Fatalf("the trace of the zombie: %+v", zombie)
		}
	})
}

func TestAClientThatIsStillThereGetsTheAnswerToItsHeldRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.faults.Add(fault.On("PATCH", "").HoldFor(3 * time.Second))
		start := time.Now()
		got, err := w.call(t.Context(), http.MethodPatch, status, "{}")
		if took := time.Since(start); err != nil || got != "answer 1" || took != 3*time.Second {
			t.Fatalf("%q, %v after %v", got, err, took)
		}
	})
}

func TestF12AStaleListRepeatsTheFirstAnswerUntilItsRuleIsRemoved(t *testing.T) {
	w := newWorld(t)
	heal := w.faults.Add(fault.On("list", "/pods").Stale())
	steps := []struct{ url, want string }{
		{pods, "answer 1"},
		{pods + "?limit=5", "answer 2"},
		{pods, "answer 1"},
		{pod, "answer 3"},
		{pods, "answer 1"},
	}
	for _, step := range steps {
		if got, err := w.get(step.url); err != nil || got != step.want {
			t.Fatalf("%s: %q, %v; want %q", step.url, got, err, step.want)
		}
	}
	heal()
	if got, err := w.get(pods); err != nil || got != "answer 4" {
		t.Fatalf("healed: %q, %v", got, err)
	}
}

func TestF10ARewrittenAnswerIsWhatTheClientSees(t *testing.T) {
	w := newWorld(t)
	w.faults.Add(fault.On("GET", "/pods").Rewrite(func(resp *http.Response) error {
		resp.Body.Close()
		resp.Body = io.NopCloser(strings.NewReader(`{"kind":"Po`))
		return nil
	}))
	if got, err := w.get(pod); err != nil || got != `{"kind":"Po` {
		t.Fatalf("%q, %v", got, err)
	}
	broken := errors.New("no more")
	w.faults.Add(fault.On("GET", "/readyz").Rewrite(func(*http.Response) error { return broken }))
	if _, err := w.get("/readyz"); !errors.Is(err, broken) {
		t.Fatalf("%v", err)
	}
}

func TestRulesNestInTheOrderInWhichTheyWereAdded(t *testing.T) {
	delay, reply := fault.On("*", "").Delay(time.Second), fault.On("*", "").Reply(http.StatusServiceUnavailable)
	tests := map[string]struct {
		rules []*fault.Rule
		want  time.Duration
	}{
		"a delayed reply":       {[]*fault.Rule{delay, reply}, time.Second},
		"no delay after it":     {[]*fault.Rule{reply, delay}, 0},
		"two delays add up":     {[]*fault.Rule{delay, delay, reply}, 2 * time.Second},
		"only the first answer": {[]*fault.Rule{reply, fault.On("*", "").Hang()}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for _, rule := range test.rules {
					w.faults.Add(rule)
				}
				start := time.Now()
				w.try(http.MethodGet, pod)
				if took := time.Since(start); took != test.want || w.faults.Requests()[0].Status != http.StatusServiceUnavailable {
					t.Fatalf("took %v, want %v: %+v", took, test.want, w.faults.Requests())
				}
			})
		})
	}
}
