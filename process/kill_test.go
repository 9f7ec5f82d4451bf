package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watchEnds holds on to processes; what it returns waits until all have ended.
func watchEnds(t *testing.T, pids []int) (wait func()) {
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
			n, err := unix.Poll(handles[i:i+1], int(limit.Milliseconds()))
			for errors.Is(err, unix.EINTR) {
				n, err = unix.Poll(handles[i:i+1], int(limit.Milliseconds()))
			}
			if n != 1 {
				t.Fatalf("process %d has not ended: %v", pids[i], err)
			}
		}
	}
}

// identity is that of a process in started.json.
type identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// started is started.json.
type started struct {
	Started    string `json:"started"`
	Main, Shim identity
}

func (w *world) startedFile(id string) string {
	return filepath.Join(w.root, "containers", id, "started.json")
}

func (w *world) readStarted(id string) (have started) {
	w.t.Helper()
	data, err := os.ReadFile(w.startedFile(id))
	if err == nil {
		err = json.Unmarshal(data, &have)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return have
}

func (w *world) pidOnRecord(id string) int { return w.readStarted(id).Main.PID }

// rewriteStarted puts another PID on record, as if the container's had been given to that process since.
func (w *world) rewriteStarted(id string, pid int) {
	w.t.Helper()
	record := w.readStarted(id)
	record.Main.PID = pid
	record.Main.Start-- // both may have started within one tick of the clock
	data, err := json.Marshal(record)
	if err == nil {
		err = os.WriteFile(w.startedFile(id), data, 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// startBystander starts a process that leads its own group and has nothing to do with the runtime.
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

// awaitShim waits until the container has a shim, whether or not that has done anything yet.
func (w *world) awaitShim(id string) int {
	w.t.Helper()
	wanted := []byte("\x00process-shim\x00" + filepath.Join(w.root, "containers", id) + "\x00")
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		all, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			w.t.Fatal(err)
		}
		for _, one := range all {
			command, err := os.ReadFile(filepath.Join(one, "cmdline"))
			if pid, _ := strconv.Atoi(filepath.Base(one)); err == nil && bytes.Contains(command, wanted) {
				return pid
			}
		}
	}
	w.t.Fatal("there is no shim")
	return 0
}

// alive reports whether the process runs, and has not only not been waited for.
func alive(pid int) bool {
	state, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(state), ") Z ")
}
