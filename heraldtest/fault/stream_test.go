package fault_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heraldnode/herald/heraldtest/fault"
)

// reader collects what a stream delivers, in a goroutine of its own.
type reader struct {
	lines chan string
	done  chan error // nil at a clean end
}

func follow(stream io.ReadCloser) *reader {
	r := &reader{lines: make(chan string, 100), done: make(chan error, 1)}
	go func() {
		defer stream.Close()
		buffer := make([]byte, 100)
		for {
			n, err := stream.Read(buffer)
			if n > 0 {
				r.lines <- string(buffer[:n])
			}
			if err != nil {
				r.done <- err
				return
			}
		}
	}()
	return r
}

// now is what has arrived and whether it ended, once nothing moves any more.
func (r *reader) now() (lines []string, ended error) {
	synctest.Wait()
	for {
		select {
		case line := <-r.lines:
			lines = append(lines, line)
		default:
			select {
			case ended = <-r.done:
			default:
			}
			return lines, ended
		}
	}
}

func TestF11ARunningWatchIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first, second := follow(w.watch(t.Context(), pods)), follow(w.watch(t.Context(), pods))
		w.server.send(t, 0, "added")
		if lines, ended := first.now(); len(lines) != 1 || ended != nil {
			t.Fatalf("before: %q, %v", lines, ended)
		}

		rule := fault.On("watch", "/pods").Times(1).Cut()
		w.faults.Add(rule)
		if lines, ended := first.now(); len(lines) != 0 || !errors.Is(ended, io.ErrUnexpectedEOF) {
			t.Fatalf("cut: %q, %v", lines, ended)
		}
		w.server.send(t, 1, "added")
		if lines, ended := second.now(); len(lines) != 1 || ended != nil || rule.Fired() != 1 {
			t.Fatalf("the other watch: %q, %v; fired %d times", lines, ended, rule.Fired())
		}

		w.faults.Add(fault.On("watch", "/pods").Cut())
		if _, ended := second.now(); !errors.Is(ended, io.ErrUnexpectedEOF) {
			t.Fatalf("the other watch: %v", ended)
		}
		for i, request := range w.faults.Requests() {
			if request.End.IsZero() || !errors.Is(request.Err, io.ErrUnexpectedEOF) || request.Status != http.StatusOK {
				t.Errorf("trace %d: %+v", i, request)
			}
		}
	})
}

func TestF11AWatchThatBeginsUnderACutEndsAfterItsHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.faults.Add(fault.On("watch", "/pods").Cut())
		if lines, ended := follow(w.watch(t.Context(), pods)).now(); len(lines) != 0 || !errors.Is(ended, io.ErrUnexpectedEOF) {
			t.Fatalf("%q, %v", lines, ended)
		}
	})
}

func TestF10AResponseIsCutAtEveryByte(t *testing.T) {
	const whole = "answer 1"
	for n := range int64(len(whole) + 2) {
		w := newWorld(t)
		w.faults.Add(fault.On("GET", "").CutAfter(n))
		got, err := w.get(pod)
		if n > int64(len(whole)) {
			if got != whole || err != nil {
				t.Fatalf("a cut beyond the end: %q, %v", got, err)
			}
			continue
		}
		if got != whole[:n] || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut after %d: %q, %v", n, got, err)
		}
	}
}

func TestF11AStalledWatchDeliversNothingUntilItsRuleIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		watch := follow(w.watch(t.Context(), pods))
		heal := w.faults.Add(fault.On("watch", "").Stall())
		w.server.send(t, 0, "late")
		time.Sleep(time.Hour)
		if lines, ended := watch.now(); len(lines) != 0 || ended != nil {
			t.Fatalf("stalled: %q, %v", lines, ended)
		}
		heal()
		if lines, ended := watch.now(); len(lines) != 1 || lines[0] != "late" || ended != nil {
			t.Fatalf("healed: %q, %v", lines, ended)
		}
		w.server.watchers[0].Close()
		if _, ended := watch.now(); !errors.Is(ended, io.EOF) || w.faults.Requests()[0].Err != nil {
			t.Fatalf("the end: %v; %+v", ended, w.faults.Requests())
		}
	})
}

func TestF11AStalledWatchEndsWhenItsClientWantsItTo(t *testing.T) {
	tests := map[string]struct {
		end  func(w *world, cancel func(), stream io.Closer)
		want error
	}{
		"by its context":  {func(_ *world, cancel func(), _ io.Closer) { cancel() }, context.Canceled},
		"by closing":      {func(_ *world, _ func(), stream io.Closer) { stream.Close() }, http.ErrBodyReadAfterClose},
		"or by a cut too": {func(w *world, _ func(), _ io.Closer) { w.faults.Add(fault.On("watch", "").Cut()) }, io.ErrUnexpectedEOF},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.faults.Add(fault.On("watch", "").Stall())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stream := w.watch(ctx, pods)
				watch := follow(stream)
				w.server.send(t, 0, "never seen")
				test.end(w, cancel, stream)
				if lines, ended := watch.now(); len(lines) != 0 || !errors.Is(ended, test.want) {
					t.Fatalf("%q, %v; want %v", lines, ended, test.want)
				}
			})
		})
	}
}

func TestStreamFaultsApplyToInjectedRepliesToo(t *testing.T) {
	w := newWorld(t)
	w.faults.Add(fault.On("GET", "").Reply(http.StatusServiceUnavailable, fault.Body("text/plain", []byte("sorry"))))
	w.faults.Add(fault.On("GET", "").CutAfter(2))
	if got, err := w.get(pod); got != "so" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("%q, %v", got, err)
	}
}

// upgraded answers as a server does that goes on to speak another protocol.
type upgraded struct{ io.ReadWriteCloser }

func (u upgraded) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: u}, nil
}

func TestAnUpgradedConnectionStaysWritable(t *testing.T) {
	faults := fault.NewInjector()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api"+pod+"/exec", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	connection, _ := net.Pipe()
	resp, err := faults.Wrap(upgraded{connection}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, writable := resp.Body.(io.Writer); !writable {
		t.Fatal("the connection can no longer be written to")
	}
	if faults.Requests()[0].End.IsZero() {
		t.Fatal("the request counts as open for ever")
	}
}
