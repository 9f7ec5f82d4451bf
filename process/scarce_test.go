package process_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// starve leaves a process nothing more of something; what it returns gives it back.
func starve(t *testing.T, pid, resource int, left uint64) (feed func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Prlimit(pid, resource, nil, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: left, Max: before.Max}, nil); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := unix.Prlimit(pid, resource, &before, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestF28AServerWithoutDescriptorsTakesNobodyForDead(t *testing.T) {
	w := newIdleWorld(t)
	defer w.startApart()()
	ready := newSignpost(t)
	id := w.run(w.sandbox("a"), shell("web", "setsid sleep 1000 & "+ready.say("$$")+"exec sleep 1000"))
	main, shim := ready.hearPID(), w.info(id).ShimPID
	feed := starve(t, w.apart, unix.RLIMIT_NOFILE, 0)
	kill(t, shim)
	for range 200 { // long enough for the server to have looked
		if w.status(id).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			if left := w.processes(); len(left) > 0 {
				t.Errorf("the container has ended, and runs: %v", left)
			}
			break
		}
	}
	feed()
	if have := w.ended(id); have.GetExitCode() != 137 {
		t.Errorf("have %v", have)
	}
	wantGone(t, main)
	w.wantProcesses(0)
}

func TestF17AnEndThatCannotBeWrittenDownIsWrittenDownLater(t *testing.T) {
	w := newWorld(t)
	end := newSignpost(t)
	id := w.run(w.sandbox("a"), shell("web", "setsid sleep 1000 & read -r code < "+end.file.Name()+"; exit $code"))
	main := w.info(id)
	feed := starve(t, main.ShimPID, unix.RLIMIT_NOFILE, 0)
	ends := watchEnds(t, []int{main.PID})
	end.send("5")
	ends()
	for range 200 { // long enough for the shim to have tried
		if w.status(id).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			break
		}
	}
	feed()
	if have := w.ended(id); have.GetExitCode() != 5 {
		t.Errorf("have %v", have)
	}
	w.wantProcesses(0)
}

func TestF17ALineThatDidNotFitSpoilsNoOther(t *testing.T) {
	w := newWorld(t)
	more := newSignpost(t)
	id := w.run(w.sandbox("a"), shell("web", "while read -r line; do echo $line; done < "+more.file.Name()))
	log := w.status(id).GetLogPath()
	more.send("one")
	awaitLine(t, log, "stdout F one")
	info, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	feed := starve(t, w.info(id).ShimPID, unix.RLIMIT_FSIZE, uint64(info.Size())+50)
	more.send("two, of which only the beginning fits")
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		if now, err := os.Stat(log); err == nil && now.Size() > info.Size() {
			break
		}
	}
	feed()
	more.send("three")
	awaitLine(t, log, "stdout F three")
	w.halt(id, 0)
	if have := logLines(t, log); len(have) != 3 || have[0] != "stdout F one" || have[2] != "stdout F three" {
		t.Errorf("have %q", have)
	}
}

func TestAGraceWithoutEndIsOne(t *testing.T) {
	w := newWorld(t)
	ready := newSignpost(t)
	id := w.run(w.sandbox("a"), shell("web", `trap "exit 7" TERM; `+ready.say("ready")+"while :; do sleep 0.01; done"))
	ready.hear()
	w.halt(id, math.MaxInt64)
	if have := w.status(id); have.GetExitCode() != 7 {
		t.Errorf("have %v", have)
	}
}

func TestF18WhatCannotBeReadIsPutAsideAndTakesNoOtherAlong(t *testing.T) {
	tests := map[string]struct {
		file  func(w *world, box, id string) string
		boxes int
	}{
		"a container's record": {func(w *world, _, id string) string { return filepath.Join(w.root, "containers", id, "container.json") }, 2},
		"a sandbox's record":   {func(w *world, box, _ string) string { return filepath.Join(w.root, "sandboxes", box, "sandbox.json") }, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			spoilt, well := w.sandbox("a"), w.sandbox("b")
			bad, good := w.run(spoilt, shell("bad", "setsid sleep 1000 & "+forever)), w.run(well, shell("good", forever))
			main := w.info(bad).PID
			w.restart(func() {
				if err := os.WriteFile(test.file(w, spoilt, bad), []byte(`{"id":`), 0o600); err != nil {
					t.Fatal(err)
				}
			})
			w.wantState(good, runtimeapi.ContainerState_CONTAINER_RUNNING)
			list, err := w.ListContainers(w.ctx, &runtimeapi.ListContainersRequest{})
			if err != nil || len(list.GetContainers()) != 1 {
				t.Errorf("have %v, error %v", list, err)
			}
			boxes, err := w.ListPodSandbox(w.ctx, &runtimeapi.ListPodSandboxRequest{})
			if err != nil || len(boxes.GetItems()) != test.boxes {
				t.Errorf("have %v, error %v", boxes, err)
			}
			wantGone(t, main)
			w.wantProcesses(1)
			w.restart(func() {})
			aside, err := filepath.Glob(filepath.Join(w.root, "corrupt", "*", "*.json"))
			if err != nil || !strings.Contains(strings.Join(aside, " "), filepath.Base(test.file(w, spoilt, bad))) {
				t.Errorf("put aside: %v, error %v", aside, err)
			}
		})
	}
}

// TestAContainerWithoutItsSandboxGoes has what a server leaves that is killed while it makes a container in a sandbox that
// is removed.
func TestAContainerWithoutItsSandboxGoes(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox("a")
	w.create(box, shell("web", forever))
	w.restart(func() {
		if err := os.RemoveAll(filepath.Join(w.root, "sandboxes", box)); err != nil {
			t.Fatal(err)
		}
	})
	list, err := w.ListContainers(w.ctx, &runtimeapi.ListContainersRequest{})
	if diff := cmp.Diff(0, len(list.GetContainers())); err != nil || diff != "" {
		t.Errorf("have %v, error %v", list, err)
	}
}

func TestF28AServerWithoutDescriptorsLearnsOfAStartLater(t *testing.T) {
	w := newIdleWorld(t)
	defer w.startApart()()
	id := w.create(w.sandbox("a"), shell("web", forever))
	done := make(chan error, 1)
	go func() {
		_, err := w.StartContainer(w.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
		done <- err
	}()
	shim := w.awaitShim(id)
	signal(t, shim, unix.SIGSTOP) // before it has started anything, but for the quickest machines
	feed := starve(t, w.apart, unix.RLIMIT_NOFILE, 0)
	signal(t, shim, unix.SIGCONT)
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		if _, err := os.Stat(w.startedFile(id)); err == nil {
			break
		}
	}
	for range 200 { // long enough for the server to have looked
		w.awaitServer()
	}
	feed()
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.halt(id, 30)
}

func signal(t *testing.T, pid int, signal unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
}
