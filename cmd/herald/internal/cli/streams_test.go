package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/heraldtest"
)

// exec, attach and port-forward on a real agent, without an API server.
func TestStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an agent and pods")
	}
	n := startNode(t)
	port := echoPort(t)
	n.write("web", "exec sleep 1000", fmt.Sprintf("    ports: [{name: http, containerPort: %d}, {name: dns, containerPort: 53, protocol: UDP}]\n"+
		"  - {name: side, image: host, command: [sleep, '1000']}\n", port))
	n.write("cat", "while read line; do echo got $line; done", "    stdin: true\n")
	n.write("shell", "while read line; do echo got $line; done", "    stdin: true\n    tty: true\n")
	n.write("job", "exit 0", "  restartPolicy: Never\n")
	n.must(0, "wait pod web-n1 cat-n1 shell-n1 -n shop "+waitReady)
	n.must(0, "wait pod job-n1 -n shop --for=phase=Succeeded --timeout=3m")

	t.Run("exec", n.testExec)
	t.Run("exec at a terminal", n.testExecTerminal)
	t.Run("attach", n.testAttach)
	t.Run("attach at a terminal", n.testAttachTerminal)
	t.Run("port-forward", func(t *testing.T) { n.testPortForward(t, port) })
	t.Run("completion", n.testStreamCompletion)
}

// echoPort answers what it gets at the end of the input, and returns the port.
func echoPort(t *testing.T) int {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				text, _ := io.ReadAll(conn)
				_, _ = conn.Write(append([]byte("echo "), text...))
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

func (n *testNode) testExec(t *testing.T) {
	exec := func(input string, args ...string) result {
		return runHeraldWithInput(input, append([]string{"exec", "--server", n.address(), "-n", "shop"}, args...)...)
	}
	tests := map[string]struct {
		input string
		args  []string
		want  result
	}{
		"output": {"", []string{"web-n1", "-c", "main", "--", "sh", "-c", "echo out; echo err >&2"}, result{0, "out\n", "err\n"}},
		"default container": {"", []string{"web-n1", "--", "sh", "-c", "echo hello"},
			result{0, "hello\n", "Defaulted container \"main\" out of: main, side\n"}},
		"exit code": {"", []string{"web-n1", "-q", "--", "sh", "-c", "exit 3"}, result{3, "", "command terminated with exit code 3\n"}},
		"signal":    {"", []string{"pod/web-n1", "-q", "--", "sh", "-c", "kill -9 $$"}, result{137, "", "command terminated with exit code 137\n"}},
		"input":     {"some input", []string{"-i", "web-n1", "-c", "side", "--", "cat"}, result{0, "some input", ""}},
		"no input":  {"some input", []string{"web-n1", "-c", "side", "--", "cat"}, result{0, "", ""}},
		"no terminal": {"x", []string{"-it", "cat-n1", "--", "cat"},
			result{0, "x", "Unable to use a TTY - input is not a terminal or the right kind of file\n"}},
		"no such container": {"", []string{"web-n1", "-c", "x", "--", "true"},
			result{1, "", "herald: container x is not valid for pod web-n1 out of: main, side\n"}},
		"completed pod": {"", []string{"job-n1", "--", "true"},
			result{1, "", "herald: cannot exec into a container in a completed pod; current phase is Succeeded\n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := exec(test.input, test.args...); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	if got := exec("", "nothing-n1", "--", "true"); got.status != 1 || !strings.Contains(got.stderr, `pods "nothing-n1" not found`) {
		t.Errorf("no such pod: got %+v", got)
	}
	if got := exec("", "web-n1", "-q", "--", "no-such-program"); got.status != 1 || !strings.Contains(got.stderr, "no-such-program") {
		t.Errorf("no such program: got %+v", got)
	}
	if got := exec("", "web-n1", "-q", "--", "seq", "1000000"); got.status != 0 || !strings.HasSuffix(got.stdout, "\n999999\n1000000\n") || len(got.stdout) != 6888896 {
		t.Errorf("got status %d, %d bytes", got.status, len(got.stdout))
	}
	for _, args := range [][]string{{"web-n1"}, {"web-n1", "date"}, {"--", "date"}, {"web-n1", "--"}} {
		if got := exec("", args...); got.status != 2 {
			t.Errorf("%v: got %+v, want a usage error", args, got)
		}
	}
	if got := runHerald("exec", "web", "--server", "unix:///nowhere.sock", "--", "date"); got.status != 3 {
		t.Errorf("got %+v, want status 3", got)
	}
}

// terminalSession is a herald command at a pseudo-terminal.
type terminalSession struct {
	t       *testing.T
	master  *os.File
	command *exec.Cmd

	mu     sync.Mutex
	output bytes.Buffer
}

// atTerminal starts the command in a session of its own, whose terminal has 100 columns and 40 lines.
func (n *testNode) atTerminal(t *testing.T, args ...string) *terminalSession {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	master := os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	s := &terminalSession{t: t, master: master}
	s.resize(100, 40)
	s.command = exec.CommandContext(context.Background(), "/proc/self/exe", append(args, "--server", n.address())...)
	if args[0] == "exec" { // the flag must be before the command
		s.command.Args = append([]string{"herald", "exec", "--server", n.address()}, args[1:]...)
	}
	s.command.Env = append(os.Environ(), actAsHerald+"=1")
	s.command.Stdin, s.command.Stdout, s.command.Stderr = terminal, terminal, terminal
	s.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for buffer := make([]byte, 4096); ; {
			n, err := master.Read(buffer)
			s.mu.Lock()
			s.output.Write(buffer[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *terminalSession) resize(width, height uint16) {
	s.t.Helper()
	connection, err := s.master.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	_ = connection.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width})
	})
}

func (s *terminalSession) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.String()
}

func (s *terminalSession) waitFor(text string) {
	s.t.Helper()
	heraldtest.Eventually(s.t, func() error {
		if got := s.text(); !strings.Contains(got, text) {
			return fmt.Errorf("got %q, want %q", got, text)
		}
		return nil
	})
}

func (s *terminalSession) typeKeys(keys string) {
	s.t.Helper()
	if _, err := io.WriteString(s.master, keys); err != nil {
		s.t.Fatal(err)
	}
}

// wait returns the exit status.
func (s *terminalSession) wait() int {
	s.t.Helper()
	_ = s.command.Wait() // the status says it
	return s.command.ProcessState.ExitCode()
}

// isRaw reports whether the terminal passes keys on as they are.
func (s *terminalSession) isRaw() bool {
	var state *unix.Termios
	connection, err := s.master.SyscallConn()
	if err == nil {
		_ = connection.Control(func(fd uintptr) { state, err = unix.IoctlGetTermios(int(fd), unix.TCGETS) })
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return state.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0
}

func (n *testNode) testExecTerminal(t *testing.T) {
	s := n.atTerminal(t, "exec", "-it", "web-n1", "-n", "shop", "-c", "main", "--", "sh", "-c", `test -t 0 && test -t 1 && echo at a terminal
		until [ "$(stty size)" = "40 100" ]; do sleep 0.01; done; echo first size
		until [ "$(stty size)" = "25 81" ]; do sleep 0.01; done; echo second size
		trap 'echo interrupted; exit 9' INT; while :; do sleep 0.01; done`)
	s.waitFor("at a terminal\r\n")
	s.waitFor("first size\r\n")
	if !s.isRaw() {
		t.Error("the terminal is not in raw mode")
	}
	s.resize(81, 25)
	s.waitFor("second size\r\n")
	s.typeKeys("\x03") // Ctrl-C is for the command, not for herald
	if got := s.wait(); got != 9 {
		t.Errorf("got exit status %d, want 9", got)
	}
	s.waitFor("interrupted\r\n")
	s.waitFor("command terminated with exit code 9\r\n")
	if s.isRaw() {
		t.Error("the terminal was not restored")
	}

	killed := n.atTerminal(t, "exec", "-it", "web-n1", "-n", "shop", "-c", "main", "--", "sh", "-c", "echo $$ started; sleep 1000")
	killed.waitFor(" started\r\n")
	if err := killed.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := killed.wait(); got != 1 {
		t.Errorf("got exit status %d, want 1", got)
	}
	if killed.isRaw() {
		t.Error("the terminal was not restored after a signal")
	}
	pid := regexp.MustCompile(`(\d+) started`).FindStringSubmatch(killed.text())[1]
	heraldtest.Eventually(t, func() error { // STR-16
		if _, err := os.Stat("/proc/" + pid); err == nil {
			return errors.New("the command runs on")
		}
		return nil
	})
}

func (n *testNode) testAttach(t *testing.T) {
	got := runHeraldWithInput("hello\n", "attach", "-i", "cat-n1", "-n", "shop", "--server", n.address())
	if got.status != 0 || !strings.Contains(got.stderr, "If you don't see a command prompt, try pressing enter.\n") {
		t.Errorf("got %+v", got)
	}
	quiet := runHeraldWithInput("again\n", "attach", "-iq", "-t", "cat-n1", "-n", "shop", "--server", n.address())
	if quiet.status != 0 || quiet.stderr != "" {
		t.Errorf("got %+v", quiet)
	}
	n.mustPrint(0, "get pods cat-n1 -n shop", "Running")
	if got := n.run("attach job-n1 -n shop"); got.status != 1 || !strings.Contains(got.stderr, "completed pod; current phase is Succeeded") {
		t.Errorf("got %+v", got)
	}
}

func (n *testNode) testAttachTerminal(t *testing.T) {
	for i := range 2 { // the second after a restart of the agent
		s := n.atTerminal(t, "attach", "-it", "shell-n1", "-n", "shop")
		s.waitFor("try pressing enter.")
		s.typeKeys(fmt.Sprintf("%d\n", i))
		s.waitFor(fmt.Sprintf("got %d\r\n", i))
		if i == 0 {
			n.kill()
			s.wait()
			n.start()
			n.mustPrint(0, "get pods shell-n1 -n shop", "Running", " 0 ")
			continue
		}
		n.remove("manifests/shell.yaml")
		if got := s.wait(); got != 0 {
			t.Errorf("got exit status %d, want 0", got)
		}
		s.waitFor("Session ended, resume using 'herald attach shell-n1 -c main -n shop -i -t' command")
	}
}

func (n *testNode) testPortForward(t *testing.T, port int) {
	command := exec.CommandContext(t.Context(), "/proc/self/exe", "port-forward", "pod/web-n1", ":http", "-n", "shop", "--address", "127.0.0.1",
		"--server", n.address())
	command.Env = append(os.Environ(), actAsHerald+"=1")
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 16)
	go func() {
		defer close(lines)
		all := &bytes.Buffer{}
		for buffer := make([]byte, 1024); ; {
			n, err := stdout.Read(buffer)
			all.Write(buffer[:n])
			for line, lineErr := all.ReadString('\n'); lineErr == nil; line, lineErr = all.ReadString('\n') {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	first := <-lines
	match := regexp.MustCompile(fmt.Sprintf(`^Forwarding from 127\.0\.0\.1:(\d+) -> %d\n$`, port)).FindStringSubmatch(first)
	if match == nil {
		t.Fatalf("got %q", first)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:"+match[1])
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "hello")
	_ = conn.(*net.TCPConn).CloseWrite()
	if answer, err := io.ReadAll(conn); err != nil || string(answer) != "echo hello" {
		t.Errorf("got %q, error %v", answer, err)
	}
	if got, want := <-lines, "Handling connection for "+match[1]+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := command.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for range lines { // until it has ended
	}
	if err := command.Wait(); err != nil {
		t.Errorf("interrupted: got %v, want exit status 0", err)
	}
	for arguments, want := range map[string]string{
		"job-n1 80":            "unable to forward port because pod is not running. Current status=Succeeded",
		"web-n1 nothing":       `port "nothing": the pod has no port of that name`,
		"web-n1 dns":           "UDP protocol is not supported for 53",
		"web-n1 99999":         "port",
		"web-n1":               "a pod and ports are required",
		"none-n1 80":           `pods "none-n1" not found`,
		"web-n1 --address x 1": "x is not a valid IP",
	} {
		if got := n.run("port-forward -n shop " + arguments); got.status == 0 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: got %+v, want %q", arguments, got, want)
		}
	}
}

func (n *testNode) testStreamCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"exec -n shop we":             "web-n1",
		"exec web-n1 -n shop -c ":     "side",
		"attach -n shop pod/ca":       "pod/cat-n1",
		"port-forward -n shop we":     "web-n1",
		"port-forward web-n1 -n shop": "",
	} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		args = append(args[:2:2], append([]string{"--server", n.address()}, args[2:]...)...)
		if got := runHerald(args...); !strings.Contains(got.stdout, want) {
			t.Errorf("%s: got %q, want %q", line, got.stdout, want)
		}
	}
}
