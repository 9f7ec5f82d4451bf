package process_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestRestart_ContainersKeepRunning(t *testing.T) {
	h := newHarness(t)
	sandboxID := h.sandbox("a")
	more := newFIFO(t)
	ended := h.run(sandboxID, shell("ended", "exit 5"))
	before := h.waitForExit(ended)
	created := h.create(sandboxID, shell("created", "exit 6"))
	running := h.run(sandboxID, shell("running", "while read -r line; do echo $line; done < "+more.file.Name()))
	pid := h.info(running).PID
	leaving := h.run(sandboxID, shell("leaving", "read -r code < "+more.file.Name()+".2; exit $code"))
	h.restart(func() {})

	if diff := cmp.Diff(before, h.status(ended), protocmp.Transform()); diff != "" {
		t.Errorf("status changed after the restart (-before +after):\n%s", diff)
	}
	h.wantState(created, runtimeapi.ContainerState_CONTAINER_CREATED)
	h.startContainer(created)
	if got := h.waitForExit(created); got.GetExitCode() != 6 {
		t.Errorf("got %v, want exit code 6", got)
	}
	h.wantState(running, runtimeapi.ContainerState_CONTAINER_RUNNING)
	if got := h.info(running).PID; got != pid {
		t.Errorf("got PID %d, want %d", got, pid)
	}
	more.writeLine("hello")
	waitForLine(t, h.status(running).GetLogPath(), "stdout F hello")
	h.stopContainer(running, 30)
	if got := h.status(running); got.GetExitCode() != 143 {
		t.Errorf("got %v, want exit code 143", got)
	}
	h.stopContainer(leaving, 0)
}

func TestRestart_ExitWithoutServer(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	shim := h.info(id).ShimPID
	h.restart(func() {
		ends := watchExits(t, []int{shim})
		if err := syscall.Kill(h.mainPID(id), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		ends()
	})
	if got := h.status(id); got.GetExitCode() != 143 || got.GetReason() != "Error" || got.GetFinishedAt() < got.GetStartedAt() {
		t.Errorf("got %v, want exit code 143, reason Error", got)
	}
}

func TestF26_ShimKilled(t *testing.T) {
	tests := map[string]func(h *harness, shim int){
		"server running": func(h *harness, shim int) { kill(h.t, shim) },
		"server stopped": func(h *harness, shim int) { h.restart(func() { kill(h.t, shim) }) },
	}
	for name, killShim := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			ready := newFIFO(t)
			script := "setsid sleep 1000 & sleep 1000 & " + ready.echo("$$") + "exec env -i sleep 1000"
			id := h.run(h.sandbox("a"), shell("web", script))
			main := ready.readPID()
			killShim(h, h.info(id).ShimPID)
			got := h.waitForExit(id)
			if got.GetExitCode() != 137 || got.GetReason() != "Unknown" || got.GetMessage() == "" || got.GetFinishedAt() < got.GetStartedAt() {
				t.Errorf("got %v, want exit code 137, reason Unknown", got)
			}
			wantGone(t, main)
			h.wantProcesses(0)
			h.restart(func() {})
			if diff := cmp.Diff(got, h.status(id), protocmp.Transform()); diff != "" {
				t.Errorf("status changed after the restart (-before +after):\n%s", diff)
			}
		})
	}
}

func TestF26_OneStoppedEvent(t *testing.T) {
	h := newHarness(t)
	sandboxID := h.sandbox("a")
	events := h.subscribe()
	id := h.run(sandboxID, shell("web", sleepForever))
	kill(t, h.info(id).ShimPID)
	h.waitForExit(id)
	h.remove(id)
	var got []runtimeapi.ContainerEventType
	for len(got) == 0 || got[len(got)-1] != runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		got = append(got, events.next().GetContainerEventType())
	}
	if diff := cmp.Diff(allEvents, got); diff != "" {
		t.Error(diff)
	}
}

func TestRestart_ReusedPID(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	shim := h.info(id).ShimPID
	bystander := startBystander(t)
	h.restart(func() {
		kill(t, shim)
		kill(t, h.mainPID(id))
		h.rewriteStarted(id, bystander)
	})
	if got := h.waitForExit(id); got.GetExitCode() != 137 {
		t.Errorf("got %v, want exit code 137", got)
	}
	if !alive(bystander) {
		t.Error("the process with the reused PID was killed")
	}
}

func TestRestart_ServerKilled(t *testing.T) {
	h := newStoppedHarness(t)
	killServer := h.startServerProcess()
	sandboxID := h.sandbox("a")
	created, running := h.create(sandboxID, shell("created", "exit 6")), h.run(sandboxID, shell("running", sleepForever))
	killServer()
	killServer = h.startServerProcess()
	h.wantState(created, runtimeapi.ContainerState_CONTAINER_CREATED)
	h.wantState(running, runtimeapi.ContainerState_CONTAINER_RUNNING)
	h.startContainer(created)
	if got := h.waitForExit(created); got.GetExitCode() != 6 {
		t.Errorf("got %v, want exit code 6", got)
	}
	killServer()
	h.startServer()
	if got := h.status(created); got.GetExitCode() != 6 {
		t.Errorf("got %v, want exit code 6", got)
	}
	h.stopContainer(running, 30)
}

func TestLoad_IncompleteDirs(t *testing.T) {
	h := newHarness(t)
	sandboxID := h.sandbox("a")
	id := h.create(sandboxID, shell("web", sleepForever))
	h.restart(func() {
		if err := os.Remove(filepath.Join(h.root, "containers", id, "container.json")); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(h.root, "sandboxes", "half"), 0o700); err != nil {
			t.Fatal(err)
		}
	})
	list, err := h.ListContainers(h.ctx, &runtimeapi.ListContainersRequest{})
	if err != nil || len(list.GetContainers()) != 0 {
		t.Errorf("got %v, error %v, want 0 containers", list, err)
	}
	h.create(sandboxID, shell("web", sleepForever))
}

// TestLoad_InterruptedStart covers a start that left the FIFO, but neither shim nor records.
func TestLoad_InterruptedStart(t *testing.T) {
	h := newHarness(t)
	id := h.create(h.sandbox("a"), shell("web", sleepForever))
	h.restart(func() {
		if err := syscall.Mkfifo(filepath.Join(h.root, "containers", id, "alive"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if got := h.waitForExit(id); got.GetExitCode() != 137 || got.GetReason() != "Unknown" || got.GetStartedAt() != 0 {
		t.Errorf("got %v, want exit code 137, reason Unknown", got)
	}
}

func TestShim_IgnoresSignals(t *testing.T) {
	h := newHarness(t)
	more := newFIFO(t)
	id := h.run(h.sandbox("a"), shell("web", "while read -r line; do echo $line; done < "+more.file.Name()))
	for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT} {
		if err := syscall.Kill(h.info(id).ShimPID, signal); err != nil {
			t.Fatal(err)
		}
	}
	more.writeLine("hello")
	waitForLine(t, h.status(id).GetLogPath(), "stdout F hello")
	h.wantState(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
}

// failFast makes a call fail if there is no server.
var failFast = grpc.WaitForReady(false)

// startUntilKilled creates and starts containers until the server is gone. It sends to begun before each one.
func (h *harness) startUntilKilled(sandboxID string, first uint32, begun chan<- struct{}) {
	for attempt := first; ; attempt++ {
		config := shell("web", sleepForever)
		config.Metadata.Attempt = attempt
		begun <- struct{}{}
		made, err := h.CreateContainer(h.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: config}, failFast)
		if err == nil {
			_, err = h.StartContainer(h.ctx, &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()}, failFast)
		}
		if err != nil {
			close(begun)
			return
		}
	}
}

func TestRestart_ServerKilledAtAnyMoment(t *testing.T) {
	const kills = 10
	h := newStoppedHarness(t)
	killServer := h.startServerProcess()
	sandboxID := h.sandbox("a")
	states := map[runtimeapi.ContainerState]int{}
	for round := range uint32(kills) {
		begun := make(chan struct{})
		go h.startUntilKilled(sandboxID, 1000*round, begun)
		for range 1 + rand.IntN(3) {
			<-begun
		}
		spin(rand.IntN(3_000_000))
		killServer()
		for range begun { // until startUntilKilled returns
		}
		killServer = h.startServerProcess()
		list, err := h.ListContainers(h.ctx, &runtimeapi.ListContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list.GetContainers() {
			states[c.GetState()]++
			h.stopContainer(c.GetId(), 0)
			h.wantStopped(c.GetId())
			h.remove(c.GetId())
		}
		h.wantProcesses(0)
	}
	killServer()
	t.Logf("%d kills, container states: %v", kills, states)
}

func (h *harness) wantStopped(id string) {
	h.t.Helper()
	if got := h.status(id); got.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
		h.t.Errorf("stopped container: got %v, want another state than RUNNING", got)
	}
}

// spin waits a random part of a call, so that a kill can hit any step.
func spin(iterations int) {
	for range iterations {
		rand.Uint32()
	}
}

func TestServer_ManyContainers(t *testing.T) {
	h := newHarness(t)
	sandboxID := h.sandbox("a")
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			config := shell("web", "exit "+strconv.Itoa(n))
			config.Metadata.Attempt = uint32(n)
			made, err := h.CreateContainer(h.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: config})
			id := made.GetContainerId()
			if err == nil {
				_, err = h.StartContainer(h.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
			}
			if err != nil {
				t.Error(err)
				return
			}
			for range 3 { // concurrently
				all.Go(func() {
					if _, err := h.StopContainer(h.ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 60}); err != nil {
						t.Error(err)
					}
					if _, err := h.RemoveContainer(h.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
	all.Wait()
	list, err := h.ListContainers(h.ctx, &runtimeapi.ListContainersRequest{})
	if err != nil || len(list.GetContainers()) != 0 {
		t.Errorf("got %v, error %v, want 0 containers", list, err)
	}
}

func TestF26_ShimKilledAtAnyMoment(t *testing.T) {
	const kills = 20
	h := newHarness(t)
	sandboxID := h.sandbox("a")
	started := 0
	for round := range uint32(kills) {
		config := shell("web", "setsid sleep 1000 & "+sleepForever)
		config.Metadata.Attempt = round
		id := h.create(sandboxID, config)
		done := make(chan struct{})
		go func() {
			_, _ = h.StartContainer(h.ctx, &runtimeapi.StartContainerRequest{ContainerId: id}) // may fail because of the kill
			close(done)
		}()
		shim := h.waitForShim(id)
		spin(rand.IntN(3_000_000))
		kill(t, shim)
		<-done
		got := h.waitForExit(id)
		if got.GetExitCode() != 137 || got.GetReason() != "Unknown" {
			t.Errorf("got %v, want exit code 137, reason Unknown", got)
		}
		if got.GetStartedAt() != 0 {
			started++
		}
		h.wantProcesses(0)
	}
	t.Logf("%d kills, %d of them of started containers", kills, started)
}
