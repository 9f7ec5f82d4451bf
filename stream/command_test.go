package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	clientexec "k8s.io/client-go/util/exec"
)

// executors are kubectl's two clients: a v5 web socket, which the node translates, and SPDY, which it copies.
var executors = map[string]func(t *testing.T, h *harness, path, query string) remotecommand.Executor{
	"SPDY": func(t *testing.T, h *harness, path, query string) remotecommand.Executor {
		t.Helper()
		executor, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: h.server.URL}, http.MethodPost, h.url(t, path, query))
		if err != nil {
			t.Fatal(err)
		}
		return executor
	},
	"web socket": func(t *testing.T, h *harness, path, query string) remotecommand.Executor {
		t.Helper()
		executor, err := remotecommand.NewWebSocketExecutor(&rest.Config{Host: h.server.URL}, http.MethodGet, h.url(t, path, query).String())
		if err != nil {
			t.Fatal(err)
		}
		return executor
	},
}

// run runs a command through a client and returns its output and its error.
func (h *harness) run(t *testing.T, client, path, query string, options remotecommand.StreamOptions) (string, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	if strings.Contains(query, "output=1") {
		options.Stdout = &stdout
	}
	if strings.Contains(query, "error=1") {
		options.Stderr = &stderr
	}
	err := executors[client](t, h, path, query).StreamWithContext(ctx, options)
	return stdout.String(), stderr.String(), err
}

func TestSTR14_ExitCodes(t *testing.T) {
	for client := range executors {
		for _, code := range []int{0, 1, 137, 255} {
			t.Run(fmt.Sprint(client, " ", code), func(t *testing.T) {
				h := newHarness(t)
				h.commands["end"] = func(p process) error {
					_, _ = io.WriteString(p.stdout, "out of "+p.container)
					_, _ = io.WriteString(p.stderr, "err")
					if code == 0 {
						return nil
					}
					return exited(code)
				}
				stdout, stderr, err := h.run(t, client, exec, "output=1&error=1&command=end", remotecommand.StreamOptions{})
				if stdout != "out of new" || stderr != "err" {
					t.Errorf("got output %q and %q, want that of the running instance", stdout, stderr)
				}
				if requests := h.runtime.recorded(); len(requests) != 1 || h.cache.observations != 0 {
					t.Errorf("got requests %v and %d observations, want one request (STR-19)", requests, h.cache.observations)
				}
				var status clientexec.CodeExitError
				switch {
				case code == 0 && err != nil:
					t.Errorf("got %v, want success", err)
				case code != 0 && (!errors.As(err, &status) || status.Code != code):
					t.Errorf("got %v, want exit code %d", err, code)
				}
			})
		}
	}
}
