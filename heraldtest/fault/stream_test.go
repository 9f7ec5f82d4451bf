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

// reader reads a stream in its own goroutine.
type reader struct {
	lines chan string
	done  chan error // the error that ended the stream
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

// read returns the lines received since the last call, and the error that ended the stream, if any.
func (r *reader) read() (lines []string, ended error) {
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

func TestF11_CutOpenWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		first, second := follow(h.watch(t.Context(), pods)), follow(h.watch(t.Context(), pods))
		h.server.send(t, 0, "added")
		if lines, ended := first.read(); len(lines) != 1 || ended != nil {
			t.Fatalf("before the cut: got %q, %v, want one line", lines, ended)
		}

		rule := fault.On("watch", "/pods").Times(1).Cut()
		h.faults.Add(rule)
		if lines, ended := first.read(); len(lines) != 0 || !errors.Is(ended, io.ErrUnexpectedEOF) {
			t.Fatalf("after the cut: got %q, %v, want unexpected EOF", lines, ended)
		}
		h.server.send(t, 1, "added")
		if lines, ended := second.read(); len(lines) != 1 || ended != nil || rule.Fired() != 1 {
			t.Fatalf("second watch: got %q, %v, %d faults, want one line, 1 fault", lines, ended, rule.Fired())
		}

		h.faults.Add(fault.On("watch", "/pods").Cut())
		if _, ended := second.read(); !errors.Is(ended, io.ErrUnexpectedEOF) {
			t.Fatalf("second watch: got %v, want unexpected EOF", ended)
		}
		for i, request := range h.faults.Requests() {
			if request.End.IsZero() || !errors.Is(request.Err, io.ErrUnexpectedEOF) || request.Status != http.StatusOK {
				t.Errorf("request %d: got %+v, want an end with unexpected EOF", i, request)
			}
		}
	})
}

func TestF11_CutNewWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.faults.Add(fault.On("watch", "/pods").Cut())
		if lines, ended := follow(h.watch(t.Context(), pods)).read(); len(lines) != 0 || !errors.Is(ended, io.ErrUnexpectedEOF) {
			t.Fatalf("got %q, %v, want unexpected EOF", lines, ended)
		}
	})
}

func TestF10_CutAfter(t *testing.T) {
	const whole = "response 1"
	for n := range int64(len(whole) + 2) {
		h := newHarness(t)
		h.faults.Add(fault.On("GET", "").CutAfter(n))
		got, err := h.get(pod)
		if n > int64(len(whole)) {
			if got != whole || err != nil {
				t.Fatalf("cut beyond the end: got %q, %v", got, err)
			}
			continue
		}
		if got != whole[:n] || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut after %d bytes: got %q, %v", n, got, err)
		}
	}
}

func TestF11_Stall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		watch := follow(h.watch(t.Context(), pods))
		remove := h.faults.Add(fault.On("watch", "").Stall())
		h.server.send(t, 0, "late")
		time.Sleep(time.Hour)
		if lines, ended := watch.read(); len(lines) != 0 || ended != nil {
			t.Fatalf("stalled: got %q, %v, want nothing", lines, ended)
		}
		remove()
		if lines, ended := watch.read(); len(lines) != 1 || lines[0] != "late" || ended != nil {
			t.Fatalf("after removal: got %q, %v, want the line", lines, ended)
		}
		h.server.watchers[0].Close()
		if _, ended := watch.read(); !errors.Is(ended, io.EOF) || h.faults.Requests()[0].Err != nil {
			t.Fatalf("end: got %v, trace %+v, want EOF", ended, h.faults.Requests())
		}
	})
}

func TestF11_StallEnds(t *testing.T) {
	tests := map[string]struct {
		end  func(h *harness, cancel func(), stream io.Closer)
		want error
	}{
		"context": {func(_ *harness, cancel func(), _ io.Closer) { cancel() }, context.Canceled},
		"close":   {func(_ *harness, _ func(), stream io.Closer) { stream.Close() }, http.ErrBodyReadAfterClose},
		"cut":     {func(h *harness, _ func(), _ io.Closer) { h.faults.Add(fault.On("watch", "").Cut()) }, io.ErrUnexpectedEOF},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				h.faults.Add(fault.On("watch", "").Stall())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stream := h.watch(ctx, pods)
				watch := follow(stream)
				h.server.send(t, 0, "not delivered")
				test.end(h, cancel, stream)
				if lines, ended := watch.read(); len(lines) != 0 || !errors.Is(ended, test.want) {
					t.Fatalf("got %q, %v, want %v", lines, ended, test.want)
				}
			})
		})
	}
}

func TestSelector_CutReply(t *testing.T) {
	h := newHarness(t)
	h.faults.Add(fault.On("GET", "").Reply(http.StatusServiceUnavailable, fault.Body("text/plain", []byte("sorry"))))
	h.faults.Add(fault.On("GET", "").CutAfter(2))
	if got, err := h.get(pod); got != "so" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("got %q, %v, want 2 bytes and unexpected EOF", got, err)
	}
}

// upgradeServer upgrades all connections to another protocol.
type upgradeServer struct{ io.ReadWriteCloser }

func (s upgradeServer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: s}, nil
}

func TestInjector_UpgradedConnection(t *testing.T) {
	faults := fault.NewInjector()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api"+pod+"/exec", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	connection, _ := net.Pipe()
	resp, err := faults.Wrap(upgradeServer{connection}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, writable := resp.Body.(io.Writer); !writable {
		t.Fatal("upgraded connection is not writable")
	}
	if faults.Requests()[0].End.IsZero() {
		t.Fatal("upgraded request has no end")
	}
}
