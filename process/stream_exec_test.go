package process_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestSTR20_SocketAndURL(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	if info, err := os.Stat(h.streamSocket()); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Fatalf("got %v, error %v, want a socket with mode 0600", info.Mode(), err)
	}
	var stdout bytes.Buffer
	options := remotecommand.StreamOptions{Stdout: &stdout}
	address := h.execURL(id, options, "echo", "once")
	if !strings.HasPrefix(address, "http://unix/exec/") {
		t.Errorf("got URL %q", address)
	}
	if err := h.executor(address).StreamWithContext(h.ctx, options); err != nil || stdout.String() != "once\n" {
		t.Errorf("got %q, error %v", &stdout, err)
	}
	if err := h.executor(address).StreamWithContext(h.ctx, options); err == nil || !strings.Contains(err.Error(), "can be used once") {
		t.Errorf("second use: got %v, want an error", err)
	}
}

func TestSTR21_InvalidRequests(t *testing.T) {
	h := newHarness(t)
	sandboxID := h.sandbox("a")
	running, created := h.run(sandboxID, shell("web", sleepForever)), h.create(sandboxID, shell("later", sleepForever))
	command := []string{"true"}
	tests := map[string]struct {
		request *runtimeapi.ExecRequest
		code    codes.Code
	}{
		"tty with stderr":   {&runtimeapi.ExecRequest{ContainerId: running, Cmd: command, Tty: true, Stderr: true}, codes.InvalidArgument},
		"no stream":         {&runtimeapi.ExecRequest{ContainerId: running, Cmd: command}, codes.InvalidArgument},
		"no command":        {&runtimeapi.ExecRequest{ContainerId: running, Stdout: true}, codes.InvalidArgument},
		"not running":       {&runtimeapi.ExecRequest{ContainerId: created, Cmd: command, Stdout: true}, codes.FailedPrecondition},
		"no such container": {&runtimeapi.ExecRequest{ContainerId: "missing", Cmd: command, Stdout: true}, codes.NotFound},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := h.Exec(h.ctx, test.request); status.Code(err) != test.code {
				t.Errorf("got %v, want code %v", err, test.code)
			}
		})
	}
}

func TestSTR21_ExitCodes(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	for script, want := range map[string]int{"true": 0, "exit 3": 3, "kill -9 $$": 137, "kill -TERM $$": 143, "exit 255": 255} {
		for _, tty := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, tty %v", script, tty), func(t *testing.T) {
				err := h.stream(id, remotecommand.StreamOptions{Stdout: io.Discard, Tty: tty}, script)
				if got := exitCodeOf(t, err); got != want {
					t.Errorf("got exit code %d, want %d", got, want)
				}
			})
		}
	}
}

func TestSTR14_CommandThatCannotStart(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	options := remotecommand.StreamOptions{Stdout: io.Discard}
	err := h.executor(h.execURL(id, options, "no-such-program")).StreamWithContext(h.ctx, options)
	if err == nil || !strings.Contains(err.Error(), `"no-such-program"`) {
		t.Errorf("got %v, want the name of the program", err)
	}
}

// TestSTR15_ExactOutput compares 10 MB of output, whose end is written immediately before the command exits.
func TestSTR15_ExactOutput(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	var want strings.Builder
	for i := 1; want.Len() < 10_000_000; i++ {
		fmt.Fprintln(&want, i)
	}
	lines := strings.Count(want.String(), "\n")
	for range 3 {
		var stdout, stderr bytes.Buffer
		err := h.stream(id, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr},
			fmt.Sprintf("seq %d >&2 & seq %d; wait; exit 7", lines, lines))
		if got := exitCodeOf(t, err); got != 7 {
			t.Errorf("got exit code %d, want 7", got)
		}
		if stdout.String() != want.String() || stderr.String() != want.String() {
			t.Fatalf("got %d bytes of stdout, %d of stderr, want %d of each", stdout.Len(), stderr.Len(), want.Len())
		}
	}
	var terminal bytes.Buffer
	if err := h.stream(id, remotecommand.StreamOptions{Stdout: &terminal, Tty: true}, fmt.Sprintf("seq %d", lines/10)); err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(terminal.String(), "\r\n", "\n")
	if lineCount := strings.Count(got, "\n"); !strings.HasPrefix(want.String(), got) || lineCount != lines/10 {
		t.Errorf("terminal: got %d lines, want %d", lineCount, lines/10)
	}
}

func TestSTR31_StandardInput(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	input := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB
	tests := map[string]struct {
		script string
		want   []byte
		code   int
	}{
		"end of input is passed on":     {"cat; echo end", append(bytes.Clone(input), "end\n"...), 0},
		"command ignores its input":     {"echo done; exit 5", []byte("done\n"), 5},
		"command closes its input":      {"exec <&-; echo closed", []byte("closed\n"), 0},
		"command reads a part only":     {"head -c 16", input[:16], 0},
		"archive as kubectl cp does it": {"tar xmf - 2>/dev/null; test $? = 2 && echo bad", []byte("bad\n"), 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout bytes.Buffer
			err := h.stream(id, remotecommand.StreamOptions{Stdin: bytes.NewReader(input), Stdout: &stdout}, test.script)
			if got := exitCodeOf(t, err); got != test.code || !bytes.Equal(stdout.Bytes(), test.want) {
				t.Errorf("got exit code %d, want %d; got %d bytes, want %d", got, test.code, stdout.Len(), len(test.want))
			}
		})
	}
}

// sizes is a queue of terminal sizes.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, isOpen := <-s
	if !isOpen {
		return nil
	}
	return &size
}

func TestSTR22_Terminal(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	stdin, input := io.Pipe()
	stdout, queue := newOutput(), make(sizes, 1)
	queue <- remotecommand.TerminalSize{Width: 100, Height: 40}
	options := remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Tty: true, TerminalSizeQueue: queue}
	script := `for fd in 0 1 2; do test -t $fd || echo "$fd is no terminal"; done
		echo "TERM $TERM" >&2
		until [ "$(stty size)" = "40 100" ]; do sleep 0.01; done; echo first size
		until [ "$(stty size)" = "24 80" ]; do sleep 0.01; done; echo second size
		echo "leader $(ps -o sid= -p $$ | tr -d ' ') $$"
		trap 'echo interrupted; exit 6' INT
		echo ready; cat; while :; do sleep 0.01; done`
	done := make(chan error, 1)
	go func() { done <- h.stream(id, options, script) }()
	stdout.waitFor(h, "first size\r\n")
	queue <- remotecommand.TerminalSize{Width: 80, Height: 24}
	stdout.waitFor(h, "ready\r\n")
	if _, err := io.WriteString(input, "typed\n"); err != nil {
		t.Fatal(err)
	}
	stdout.waitFor(h, "typed\r\ntyped\r\n") // the echo of the terminal, and cat's output
	if _, err := io.WriteString(input, "\x03"); err != nil {
		t.Fatal(err)
	}
	if got := exitCodeOf(t, <-done); got != 6 {
		t.Errorf("got exit code %d, want 6", got)
	}
	input.Close()
	close(queue)
	got := stdout.String()
	if strings.Contains(got, "is no terminal") || !strings.Contains(got, "TERM xterm\r\n") || !strings.Contains(got, "interrupted\r\n") {
		t.Errorf("got %q", got)
	}
}

// TestSTR16_ClientLeaves checks that a command whose client has left ends with all its descendants, even if it ignores that.
func TestSTR16_ClientLeaves(t *testing.T) {
	tests := map[string]struct {
		options remotecommand.StreamOptions
		script  func(ready fifo) string
	}{
		"terminal": {
			remotecommand.StreamOptions{Stdout: io.Discard, Tty: true},
			func(ready fifo) string { return ready.echo("$$") + "while :; do sleep 0.01; done" },
		},
		"without terminal": {
			remotecommand.StreamOptions{Stdout: io.Discard},
			func(ready fifo) string { return "sleep 1000 & " + ready.echo("$!") + ready.echo("$$") + "wait" },
		},
		"ignores everything": {
			remotecommand.StreamOptions{Stdout: io.Discard},
			func(ready fifo) string { return stubbornScript(ready.echo) },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			id := h.run(h.sandbox("a"), shell("web", sleepForever))
			ready := newFIFO(t)
			ctx, leave := context.WithCancel(h.ctx)
			defer leave()
			executor := h.executor(h.execURL(id, test.options, "sh", "-c", test.script(ready)))
			go func() { _ = executor.StreamWithContext(ctx, test.options) }()
			var pids []int
			for range strings.Count(test.script(ready), ready.file.Name()) {
				pids = append(pids, ready.readPID())
			}
			ends := watchExits(t, pids)
			leave()
			ends()
			h.wantState(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
		})
	}
}

func TestSTR16_HangUpIsAnnounced(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	for _, tty := range []bool{false, true} {
		ready, heard := newFIFO(t), newFIFO(t)
		ctx, leave := context.WithCancel(h.ctx)
		defer leave()
		options := remotecommand.StreamOptions{Stdout: io.Discard, Tty: tty}
		script := "trap '" + heard.echo("$$") + "exit' HUP; " + ready.echo("$$") + "while :; do sleep 0.01; done"
		executor := h.executor(h.execURL(id, options, "sh", "-c", script))
		go func() { _ = executor.StreamWithContext(ctx, options) }()
		pid := ready.readPID()
		leave()
		if got := heard.readPID(); got != pid {
			t.Errorf("tty %v: got %d, want %d", tty, got, pid)
		}
	}
}

// TestSTR14_EndOfContainerAndServer checks that a client is never told that a command succeeded that was killed.
func TestSTR14_EndOfContainerAndServer(t *testing.T) {
	tests := map[string]struct {
		end  func(h *harness, id string)
		want string
	}{
		"container stopped": {func(h *harness, id string) { h.stopContainer(id, 0) }, "command terminated with exit code 137"},
		"pod stopped":       {func(h *harness, id string) { h.stopPod(id) }, "command terminated with exit code 137"},
		"server stopped":    {func(h *harness, _ string) { h.restart(func() {}) }, "the runtime is stopping"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			id := h.run(h.sandbox("a"), shell("web", sleepForever))
			ready := newFIFO(t)
			done := make(chan error, 1)
			go func() {
				done <- h.stream(id, remotecommand.StreamOptions{Stdout: io.Discard}, ready.echo("$$")+"exec sleep 1000")
			}()
			pid := ready.readPID()
			test.end(h, id)
			if err := <-done; err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			wantGone(t, pid)
		})
	}
}
