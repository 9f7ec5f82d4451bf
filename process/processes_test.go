package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watchExits opens handles of processes. The returned function waits until all have exited.
func watchExits(t *testing.T, pids []int) (wait func()) {
	t.Helper()
	var handles []unix.PollFd
	for _, pid := range pids {
		handle, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatalf("process %d: %v", pid, err)
		}
		t.Cleanup(func() { unix.Close(handle) })
		handles = append(handles, unix.PollFd{Fd: int32(handle), Events: unix.POLLIN})
	}
	return func() {
		t.Helper()
		for i := range handles {
			n, err := unix.Poll(handles[i:i+1], int(testTimeout.Milliseconds()))
			for errors.Is(err, unix.EINTR) {
				n, err = unix.Poll(handles[i:i+1], int(testTimeout.Milliseconds()))
			}
			if n != 1 {
				t.Fatalf("process %d has not exited: %v", pids[i], err)
			}
		}
	}
}

// identity is a process in started.json.
type identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// started is the content of started.json.
type started struct {
	Started    string `json:"started"`
	Main, Shim identity
}

func (h *harness) startedFile(id string) string {
	return filepath.Join(h.root, "containers", id, "started.json")
}

func (h *harness) readStarted(id string) (got started) {
	h.t.Helper()
	data, err := os.ReadFile(h.startedFile(id))
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return got
}

func (h *harness) mainPID(id string) int { return h.readStarted(id).Main.PID }

// rewriteStarted replaces the PID in started.json, as if the container's PID had been reused by that process.
func (h *harness) rewriteStarted(id string, pid int) {
	h.t.Helper()
	record := h.readStarted(id)
	record.Main.PID = pid
	record.Main.Start-- // both may have started within one clock tick
	data, err := json.Marshal(record)
	if err == nil {
		err = os.WriteFile(h.startedFile(id), data, 0o600)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// startBystander starts an unrelated process that leads its own group.
func startBystander(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error is the kill
	})
	return cmd.Process.Pid
}

// waitForShim waits until the shim of the container was executed.
func (h *harness) waitForShim(id string) int {
	h.t.Helper()
	wanted := []byte("\x00process-shim\x00" + filepath.Join(h.root, "containers", id) + "\x00")
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); {
		all, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			h.t.Fatal(err)
		}
		for _, proc := range all {
			command, err := os.ReadFile(filepath.Join(proc, "cmdline"))
			if pid, _ := strconv.Atoi(filepath.Base(proc)); err == nil && bytes.Contains(command, wanted) {
				return pid
			}
		}
	}
	h.t.Fatal("shim not found")
	return 0
}

// alive reports whether the process exists and is not a zombie.
func alive(pid int) bool {
	state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(state), ") Z ")
}

func wantGone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is still alive", pid)
		}
	}
}

// logLines returns the lines of the log without their timestamps, which it validates.
func logLines(t *testing.T, file string) (lines []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		timestamp, rest, _ := strings.Cut(line, " ")
		if _, err := time.Parse(time.RFC3339Nano, timestamp); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("line %q: %v", line, err)
		}
		lines = append(lines, strings.TrimSuffix(rest, "\n"))
	}
	return lines
}

// fifo is a named pipe between a test and a script.
type fifo struct {
	t    *testing.T
	file *os.File
}

func newFIFO(t *testing.T) fifo {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return fifo{t: t, file: file}
}

// echo returns a shell command that writes a line.
func (f fifo) echo(word string) string { return "echo " + word + " > " + f.file.Name() + "; " }

// readLine waits for a line of the script.
func (f fifo) readLine() string {
	f.t.Helper()
	_ = f.file.SetReadDeadline(time.Now().Add(testTimeout))
	var line []byte
	for char := make([]byte, 1); ; {
		if _, err := io.ReadFull(f.file, char); err != nil {
			f.t.Fatalf("after %q: %v", line, err)
		}
		if char[0] == '\n' {
			return string(line)
		}
		line = append(line, char[0])
	}
}

func (f fifo) writeLine(word string) {
	f.t.Helper()
	if _, err := f.file.WriteString(word + "\n"); err != nil {
		f.t.Fatal(err)
	}
}

func (f fifo) readPID() int {
	f.t.Helper()
	pid, err := strconv.Atoi(f.readLine())
	if err != nil {
		f.t.Fatal(err)
	}
	return pid
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// waitForLine waits until the file ends with that line.
func waitForLine(t *testing.T, file, want string) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); runtime.Gosched() {
		if data, err := os.ReadFile(file); err == nil && strings.HasSuffix(string(data), want+"\n") {
			return
		}
	}
	t.Fatalf("%s does not end with %q", file, want)
}

func signal(t *testing.T, pid int, signal unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
}
