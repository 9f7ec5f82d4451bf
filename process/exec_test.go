package process_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestExecSync_EnvironmentAndDir(t *testing.T) {
	h := newHarness(t)
	config := shell("web", sleepForever)
	config.Envs = []*runtimeapi.KeyValue{{Key: "GREETING", Value: []byte("hello \xff")}}
	config.WorkingDir = t.TempDir()
	id := h.run(h.sandbox("a"), config)
	got, err := h.exec(id, 0, `echo "$GREETING"; pwd; echo $HERALD_CONTAINER_ID; echo oops >&2; exit 4`)
	if err != nil {
		t.Fatal(err)
	}
	want := "hello \xff\n" + config.GetWorkingDir() + "\n" + id + "\n"
	if string(got.GetStdout()) != want || string(got.GetStderr()) != "oops\n" || got.GetExitCode() != 4 {
		t.Errorf("got %q and %q, code %d", got.GetStdout(), got.GetStderr(), got.GetExitCode())
	}
	h.wantState(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
}

func TestExecSync_Errors(t *testing.T) {
	h := newHarness(t)
	sandboxID := h.sandbox("a")
	running, created := h.run(sandboxID, shell("web", sleepForever)), h.create(sandboxID, shell("later", sleepForever))
	tests := map[string]struct {
		id      string
		command []string
		code    codes.Code
		want    string
	}{
		"no such program":   {running, []string{"no-such-program"}, codes.Unknown, "no-such-program"},
		"no command":        {running, nil, codes.InvalidArgument, "cmd is empty"},
		"not running":       {created, []string{"true"}, codes.FailedPrecondition, "not running"},
		"no such container": {"missing", []string{"true"}, codes.NotFound, "missing"},
		"not executable":    {running, []string{"/etc/passwd"}, codes.Unknown, "/etc/passwd"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := h.ExecSync(h.ctx, &runtimeapi.ExecSyncRequest{ContainerId: test.id, Cmd: test.command})
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want code %v, %q", err, test.code, test.want)
			}
		})
	}
}

// stubbornScript returns a script that starts two background processes, one in its own session, all of which ignore
// signals. It echoes their PIDs and its own.
func stubbornScript(echo func(word string) string) string {
	return `trap "" TERM HUP INT; sleep 1000 & ` + echo("$!") +
		"setsid sh -c '" + echo("$$") + "exec env -i sleep 1000' & " + echo("$$") + "while :; do sleep 0.01; done"
}

func TestBUG37_ExecTimeout(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	for timeout := int64(1); ; timeout *= 4 { // until the machine was fast enough to start all processes
		pidFile := filepath.Join(t.TempDir(), "pidFile")
		_, err := h.exec(id, timeout, stubbornScript(func(word string) string { return "echo " + word + " >> " + pidFile + "; " }))
		if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), fmt.Sprintf("timeout %ds exceeded", timeout)) {
			t.Fatalf("got %v, want code DeadlineExceeded", err)
		}
		words, _ := os.ReadFile(pidFile) // missing if no process was started
		pids := strings.Fields(string(words))
		for _, word := range pids {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			wantGone(t, pid)
		}
		if len(pids) == 3 {
			break
		}
	}
	h.wantProcesses(1)
	h.wantState(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
}

func TestBUG37_ExecCancelled(t *testing.T) {
	tests := map[string]func(h *harness, id string, cancel func()){
		"caller cancels":    func(_ *harness, _ string, cancel func()) { cancel() },
		"container stops":   func(h *harness, id string, _ func()) { h.stopContainer(id, 0) },
		"server stops":      func(h *harness, _ string, _ func()) { h.restart(func() {}) },
		"container removed": func(h *harness, id string, _ func()) { h.remove(id) },
		"pod stopped":       func(h *harness, id string, _ func()) { h.stopPod(id) },
	}
	for name, interrupt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			id := h.run(h.sandbox("a"), shell("web", sleepForever))
			ready := newFIFO(t)
			ctx, cancel := context.WithCancel(h.ctx)
			defer cancel()
			done := make(chan error, 1)
			go func() {
				request := &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", stubbornScript(ready.echo)}}
				_, err := h.ExecSync(ctx, request)
				done <- err
			}()
			pids := []int{ready.readPID(), ready.readPID(), ready.readPID()}
			interrupt(h, id, cancel)
			if err := <-done; err == nil {
				t.Error("exec succeeded, want an error")
			}
			h.restart(func() {}) // a stopped server has ended its execs
			wantGone(t, pids...)
		})
	}
}

func TestBUG37_ServerKilled(t *testing.T) {
	h := newStoppedHarness(t)
	killServer := h.startServerProcess()
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	ready := newFIFO(t)
	done := make(chan error, 1)
	go func() {
		_, err := h.exec(id, 0, ready.echo("$PPID")+stubbornScript(ready.echo))
		done <- err
	}()
	execShim := ready.readPID() // exits when all its descendants have
	ends := watchExits(t, []int{execShim, ready.readPID(), ready.readPID(), ready.readPID()})
	killServer()
	<-done
	ends()
	h.startServer()
	h.wantState(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
}

func TestExecSync_OutputLimit(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	got, err := h.exec(id, 0, "head -c 20000000 /dev/zero; head -c 20000000 /dev/zero >&2; exit 2")
	if err != nil {
		t.Fatal(err)
	}
	const kept = 1 << 20
	if len(got.GetStdout()) != kept || len(got.GetStderr()) != kept || got.GetExitCode() != 2 || bytes.Trim(got.GetStdout(), "\x00") != nil {
		t.Errorf("got %d and %d bytes, code %d", len(got.GetStdout()), len(got.GetStderr()), got.GetExitCode())
	}
}

func TestBUG37_ExecShimKilled(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	ready := newFIFO(t)
	done := make(chan error, 1)
	go func() {
		_, err := h.exec(id, 0, "setsid sleep 1000 & "+ready.echo("$PPID")+"exec sleep 1000")
		done <- err
	}()
	kill(t, ready.readPID())
	if err := <-done; err == nil || !strings.Contains(err.Error(), "exec shim exited") {
		t.Errorf("got %v, want %q", err, "exec shim exited")
	}
	h.wantProcesses(1)
}
