package process_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// withStdin makes the input of a container open to clients.
func withStdin(config *runtimeapi.ContainerConfig, once, tty bool) *runtimeapi.ContainerConfig {
	config.Stdin, config.StdinOnce, config.Tty = true, once, tty
	return config
}

func TestSTR22_AttachTwoClients(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), withStdin(shell("echo", `while read line; do echo "out $line"; echo "err $line" >&2; done; exit 3`), false, false))
	first, second, silent := h.attach(id, true, false), h.attach(id, true, false), h.attach(id, false, false)
	for _, client := range []*attachment{first, second} { // attached when their input is echoed
		client.send("0\n")
		client.stdout.waitFor(h, "out 0\n")
	}
	for i := 1; !strings.Contains(silent.stderr.String(), "err"); i++ { // until the silent client is attached
		first.send(fmt.Sprintf("%d\n", i))
		first.stdout.waitFor(h, fmt.Sprintf("out %d\n", i))
	}
	second.send("both\n")
	for _, client := range []*attachment{first, second, silent} {
		client.stdout.waitFor(h, "out both\n")
		client.stderr.waitFor(h, "err both\n")
	}
	h.stopContainer(id, 0)
	for _, client := range []*attachment{first, second, silent} {
		if err := <-client.done; err != nil {
			t.Errorf("after the end of the container: got %v, want none", err)
		}
	}
	log := logLines(t, filepath.Join(h.logs, "a", "echo", "0.log"))
	if !slices.Contains(log, "stdout F out both") || !slices.Contains(log, "stderr F err both") {
		t.Errorf("got log %q", log)
	}
}

// TestSTR22_AttachGetsAllOutput checks that a client has got everything when the attachment ends, also text without a newline.
func TestSTR22_AttachGetsAllOutput(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), withStdin(shell("echo", "printf 'name? '; read name; printf \"hello $name\"; seq 200000; printf end"), false, false))
	client := h.attach(id, true, false)
	client.send("you\n")
	if err := <-client.done; err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("hello you")
	for i := 1; i <= 200000; i++ {
		fmt.Fprintln(&want, i)
	}
	want.WriteString("end")
	if got := strings.TrimPrefix(client.stdout.String(), "name? "); got != want.String() { // it may have been attached before or after
		t.Errorf("got %d bytes, want %d", len(got), want.Len())
	}
	if got := h.waitForExit(id); got.GetExitCode() != 0 {
		t.Errorf("got exit code %d", got.GetExitCode())
	}
}

func TestSTR22_StdinOnce(t *testing.T) {
	tests := map[string]func(client *attachment){
		"end of input":  func(client *attachment) { client.stdin.Close() },
		"client leaves": func(client *attachment) { client.leave() },
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			done := newFIFO(t)
			id := h.run(h.sandbox("a"), withStdin(shell("cat", "cat; echo input ended; "+done.echo("ended")+sleepForever), true, false))
			client := h.attach(id, true, false)
			client.send("first\n")
			client.stdout.waitFor(h, "first\n")
			end(client)
			if got := done.readLine(); got != "ended" {
				t.Errorf("got %q", got)
			}
			if name == "end of input" {
				client.stdout.waitFor(h, "input ended\n") // it still gets the output
			}
			late := h.attach(id, true, false)
			late.send("dropped\n")
			h.wantState(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
			log := logLines(t, filepath.Join(h.logs, "a", "cat", "0.log"))
			if !slices.Equal(log, []string{"stdout F first", "stdout F input ended"}) {
				t.Errorf("got log %q", log)
			}
		})
	}
}

// TestSTR22_StdinStaysOpen checks that without stdinOnce the end of a client's input ends only its attachment.
func TestSTR22_StdinStaysOpen(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), withStdin(shell("cat", "cat"), false, false))
	for i := range 3 {
		client := h.attach(id, true, false)
		client.send(fmt.Sprintf("line %d\n", i))
		client.stdout.waitFor(h, fmt.Sprintf("line %d\n", i))
		client.stdin.Close()
		if err := <-client.done; err != nil {
			t.Fatal(err)
		}
	}
	h.wantState(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
}

func TestSTR22_ContainerWithTerminal(t *testing.T) {
	h := newHarness(t)
	script := `test -t 0 && test -t 1 && test -t 2 && echo terminal $TERM
		until [ "$(stty size)" = "40 100" ]; do sleep 0.01; done; echo sized
		while read line; do echo "got $line"; done`
	id := h.run(h.sandbox("a"), withStdin(shell("sh", script), true, true))
	stdin, input := io.Pipe()
	queue, stdout := make(sizes, 2), newOutput()
	queue <- remotecommand.TerminalSize{Width: 101, Height: 41} // as kubectl attach does, to have the screen redrawn
	queue <- remotecommand.TerminalSize{Width: 100, Height: 40}
	options := remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Tty: true, TerminalSizeQueue: queue}
	done := make(chan error, 1)
	executor := h.executor(h.attachURL(id, options))
	go func() { done <- executor.StreamWithContext(h.ctx, options) }()
	stdout.waitFor(h, "sized\r\n")
	if _, err := io.WriteString(input, "a\n"); err != nil {
		t.Fatal(err)
	}
	stdout.waitFor(h, "a\r\ngot a\r\n")
	input.Close() // detaches, and a terminal stays open in spite of stdinOnce
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	close(queue)
	again := h.attach(id, true, true)
	again.send("b\n\x04") // and Ctrl-D
	again.stdout.waitFor(h, "got b\r\n")
	if err := <-again.done; err != nil {
		t.Fatal(err)
	}
	if got := h.waitForExit(id); got.GetExitCode() != 0 && got.GetExitCode() != 1 {
		t.Errorf("got exit code %d", got.GetExitCode())
	}
	log := strings.Join(logLines(t, filepath.Join(h.logs, "a", "sh", "0.log")), "\n")
	for _, want := range []string{"stdout F terminal xterm\r", "stdout F got a\r", "stdout F got b\r"} {
		if !strings.Contains(log, want) {
			t.Errorf("got log %q, want %q", log, want)
		}
	}
}

// TestSTR22_InputOutlivesServers checks that clients can attach again after the server was stopped or killed.
func TestSTR22_InputOutlivesServers(t *testing.T) {
	for _, tty := range []bool{false, true} {
		t.Run(fmt.Sprint("tty ", tty), func(t *testing.T) {
			h := newStoppedHarness(t)
			kill := h.startServerProcess()
			id := h.run(h.sandbox("a"), withStdin(shell("cat", "while read line; do echo got $line; done"), false, tty))
			pid := h.info(id).PID
			send := func(line string) *attachment {
				client := h.attach(id, true, tty)
				client.send(line + "\n")
				client.stdout.waitFor(h, "got "+line)
				return client
			}
			client := send("1")
			kill()
			if err := <-client.done; err != nil && !strings.Contains(err.Error(), "EOF") && !strings.Contains(err.Error(), "reset") {
				t.Errorf("client of the killed server: %v", err)
			}
			h.startServer()
			client = send("2")
			h.restart(func() {})
			if err := <-client.done; err == nil || !strings.Contains(err.Error(), "the runtime is stopping") {
				t.Errorf("client of the stopped server: got %v", err)
			}
			send("3")
			if got := h.info(id).PID; got != pid {
				t.Errorf("got process %d, want %d: the container was restarted", got, pid)
			}
		})
	}
}

func TestSTR22_AttachWithoutStdin(t *testing.T) {
	h := newHarness(t)
	release := newFIFO(t)
	id := h.run(h.sandbox("a"), shell("web", "cat; until read go < "+release.file.Name()+"; do :; done; while :; do echo tick; sleep 0.01; done"))
	client := h.attach(id, true, false)
	client.send("dropped\n")
	release.writeLine("go")
	client.stdout.waitFor(h, "tick\n")
	if strings.Contains(client.stdout.String(), "dropped") {
		t.Error("the container got input, though it has no stdin")
	}
	client.leave()
	h.wantState(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
}

// TestSTR22_StuckClient checks that a client that takes no output does not stop the container and its log.
func TestSTR22_StuckClient(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), withStdin(shell("web", "read go; seq 300000; echo all"), false, false))
	socket, err := os.Open(filepath.Join(h.root, "containers", id))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	conn, err := (&net.Dialer{}).DialContext(h.ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/attach", socket.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	open := `{"stdin":true,"stdout":true}`
	if _, err := conn.Write(append([]byte{'o', 0, 0, 0, byte(len(open))}, open+"i\x00\x00\x00\x03go\n"...)); err != nil {
		t.Fatal(err)
	}
	if got := h.waitForExit(id); got.GetExitCode() != 0 {
		t.Errorf("got exit code %d", got.GetExitCode())
	}
	if log := logLines(t, filepath.Join(h.logs, "a", "web", "0.log")); len(log) != 300001 || log[300000] != "stdout F all" {
		t.Errorf("got %d lines of log", len(log))
	}
}
