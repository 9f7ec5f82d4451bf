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

func TestAnExecHasTheContainersEnvironmentAndFolder(t *testing.T) {
	w := newWorld(t)
	config := shell("web", forever)
	config.Envs = []*runtimeapi.KeyValue{{Key: "GREETING", Value: []byte("hello \xff")}}
	config.WorkingDir = t.TempDir()
	id := w.run(w.sandbox("a"), config)
	have, err := w.exec(id, 0, `echo "$GREETING"; pwd; echo $HERALD_CONTAINER_ID; echo oops >&2; exit 4`)
	if err != nil {
		t.Fatal(err)
	}
	want := "hello \xff\n" + config.GetWorkingDir() + "\n" + id + "\n"
	if string(have.GetStdout()) != want || string(have.GetStderr()) != "oops\n" || have.GetExitCode() != 4 {
		t.Errorf("have %q and %q, code %d", have.GetStdout(), have.GetStderr(), have.GetExitCode())
	}
	w.wantState(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
}

func TestAnExecThatCannotBeRunSaysWhy(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox("a")
	running, created := w.run(box, shell("web", forever)), w.create(box, shell("later", forever))
	tests := map[string]struct {
		id      string
		command []string
		code    codes.Code
		want    string
	}{
		"no such program":      {running, []string{"no-such-program"}, codes.Unknown, "no-such-program"},
		"no command":           {running, nil, codes.InvalidArgument, "cmd is empty"},
		"not running":          {created, []string{"true"}, codes.FailedPrecondition, "not running"},
		"no such container":    {"nobody", []string{"true"}, codes.NotFound, "nobody"},
		"not a program at all": {running, []string{"/etc/passwd"}, codes.Unknown, "/etc/passwd"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := w.ExecSync(w.ctx, &runtimeapi.ExecSyncRequest{ContainerId: test.id, Cmd: test.command})
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.want) {
				t.Errorf("have %v", err)
			}
		})
	}
}

// stubborn is a script that has started two processes in the background, one of them in a session of its own, none of
// which cares to be asked to end; it says both PIDs and its own.
func stubborn(say func(word string) string) string {
	return `trap "" TERM HUP INT; sleep 1000 & ` + say("$!") +
		"setsid sh -c '" + say("$$") + "exec env -i sleep 1000' & " + say("$$") + "while :; do sleep 0.01; done"
}

func wantGone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
}

func TestBUG37AnExecThatTimesOutLeavesNoProcess(t *testing.T) {
	w := newWorld(t)
	id := w.run(w.sandbox("a"), shell("web", forever))
	for timeout := int64(1); ; timeout *= 4 { // until the machine was quick enough to start all of it
		noted := filepath.Join(t.TempDir(), "noted")
		_, err := w.exec(id, timeout, stubborn(func(word string) string { return "echo " + word + " >> " + noted + "; " }))
		if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), fmt.Sprintf("timeout %ds exceeded", timeout)) {
			t.Fatalf("have %v", err)
		}
		words, _ := os.ReadFile(noted) // there is none when not even the first was started
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
	w.wantProcesses(1)
	w.wantState(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
}

func TestBUG37AnExecLeavesNoProcessWhoeverGoesAway(t *testing.T) {
	tests := map[string]func(w *world, id string, cancel func()){
		"the caller":     func(_ *world, _ string, cancel func()) { cancel() },
		"the container":  func(w *world, id string, _ func()) { w.halt(id, 0) },
		"the server":     func(w *world, _ string, _ func()) { w.restart(func() {}) },
		"it is removed":  func(w *world, id string, _ func()) { w.removed(id) },
		"all of the pod": func(w *world, id string, _ func()) { w.podStopped(id) },
	}
	for name, leave := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := w.run(w.sandbox("a"), shell("web", forever))
			ready := newSignpost(t)
			ctx, cancel := context.WithCancel(w.ctx)
			defer cancel()
			done := make(chan error, 1)
			go func() {
				request := &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", stubborn(ready.say)}}
				_, err := w.ExecSync(ctx, request)
				done <- err
			}()
			pids := []int{ready.hearPID(), ready.hearPID(), ready.hearPID()}
			leave(w, id, cancel)
			if err := <-done; err == nil {
				t.Error("the exec succeeded")
			}
			w.restart(func() {}) // a server that has ended has ended its execs
			wantGone(t, pids...)
		})
	}
}

func (w *world) removed(id string) {
	w.t.Helper()
	if _, err := w.RemoveContainer(w.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) podStopped(id string) {
	w.t.Helper()
	list, err := w.ListContainers(w.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id}})
	if err != nil || len(list.GetContainers()) != 1 {
		w.t.Fatalf("have %v, error %v", list, err)
	}
	request := &runtimeapi.StopPodSandboxRequest{PodSandboxId: list.GetContainers()[0].GetPodSandboxId()}
	if _, err := w.StopPodSandbox(w.ctx, request); err != nil {
		w.t.Fatal(err)
	}
}

func TestBUG37AnExecEndsWithAServerThatIsKilled(t *testing.T) {
	w := newIdleWorld(t)
	killServer := w.startApart()
	id := w.run(w.sandbox("a"), shell("web", forever))
	ready := newSignpost(t)
	done := make(chan error, 1)
	go func() {
		_, err := w.exec(id, 0, ready.say("$PPID")+stubborn(ready.say))
		done <- err
	}()
	runner := ready.hearPID() // ends when nothing is left that it started
	ends := watchEnds(t, []int{runner, ready.hearPID(), ready.hearPID(), ready.hearPID()})
	killServer()
	<-done
	ends()
	w.start()
	w.wantState(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
}

func TestWhatAnExecSaysTooMuchIsDroppedAndItSucceeds(t *testing.T) {
	w := newWorld(t)
	id := w.run(w.sandbox("a"), shell("web", forever))
	have, err := w.exec(id, 0, "head -c 20000000 /dev/zero; head -c 20000000 /dev/zero >&2; exit 2")
	if err != nil {
		t.Fatal(err)
	}
	const kept = 8<<20 - 4096
	if len(have.GetStdout()) != kept || len(have.GetStderr()) != kept || have.GetExitCode() != 2 || bytes.Trim(have.GetStdout(), "\x00") != nil {
		t.Errorf("have %d and %d bytes, code %d", len(have.GetStdout()), len(have.GetStderr()), have.GetExitCode())
	}
}

func TestBUG37ARunnerThatIsKilledLeavesNothingThatIsMarked(t *testing.T) {
	w := newWorld(t)
	id := w.run(w.sandbox("a"), shell("web", forever))
	ready := newSignpost(t)
	done := make(chan error, 1)
	go func() {
		_, err := w.exec(id, 0, "setsid sleep 1000 & "+ready.say("$PPID")+"exec sleep 1000")
		done <- err
	}()
	kill(t, ready.hearPID())
	if err := <-done; err == nil || !strings.Contains(err.Error(), "runner ended") {
		t.Errorf("have %v", err)
	}
	w.wantProcesses(1)
}
