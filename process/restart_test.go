package process_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestContainersOutliveTheirServer(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox("a")
	more := newSignpost(t)
	ended := w.run(box, shell("ended", "exit 5"))
	before := w.ended(ended)
	created := w.create(box, shell("created", "exit 6"))
	running := w.run(box, shell("running", "while read -r line; do echo $line; done < "+more.file.Name()))
	pid := w.info(running).PID
	leaving := w.run(box, shell("leaving", "read -r code < "+more.file.Name()+".2; exit $code"))
	w.restart(func() {})

	if diff := cmp.Diff(before, w.status(ended), protocmp.Transform()); diff != "" {
		t.Errorf("the container that had ended is another now:\n%s", diff)
	}
	w.wantState(created, runtimeapi.ContainerState_CONTAINER_CREATED)
	w.begin(created)
	if have := w.ended(created); have.GetExitCode() != 6 {
		t.Errorf("have %v", have)
	}
	w.wantState(running, runtimeapi.ContainerState_CONTAINER_RUNNING)
	if have := w.info(running).PID; have != pid {
		t.Errorf("process %d is now %d", pid, have)
	}
	more.send("hello")
	awaitLine(t, w.status(running).GetLogPath(), "stdout F hello")
	w.halt(running, 30)
	if have := w.status(running); have.GetExitCode() != 143 {
		t.Errorf("have %v", have)
	}
	w.halt(leaving, 0)
}

func TestAnEndThatNoServerSawIsOnRecord(t *testing.T) {
	w := newWorld(t)
	id := w.run(w.sandbox("a"), shell("web", forever))
	shim := w.info(id).ShimPID
	w.restart(func() {
		ends := watchEnds(t, []int{shim})
		if err := syscall.Kill(w.pidOnRecord(id), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		ends()
	})
	if have := w.status(id); have.GetExitCode() != 143 || have.GetReason() != "Error" || have.GetFinishedAt() < have.GetStartedAt() {
		t.Errorf("have %v", have)
	}
}

func TestF26AShimThatIsKilledIsAnEndOnce(t *testing.T) {
	tests := map[string]func(w *world, shim int){
		"while the server runs": func(w *world, shim int) { kill(w.t, shim) },
		"while none runs":       func(w *world, shim int) { w.restart(func() { kill(w.t, shim) }) },
	}
	for name, killShim := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ready := newSignpost(t)
			script := "setsid sleep 1000 & sleep 1000 & " + ready.say("$$") + "exec env -i sleep 1000"
			id := w.run(w.sandbox("a"), shell("web", script))
			main := ready.hearPID()
			killShim(w, w.info(id).ShimPID)
			have := w.ended(id)
			if have.GetExitCode() != 137 || have.GetReason() != "Unknown" || have.GetMessage() == "" || have.GetFinishedAt() < have.GetStartedAt() {
				t.Errorf("have %v", have)
			}
			wantGone(t, main)
			w.wantProcesses(0)
			w.restart(func() {})
			if diff := cmp.Diff(have, w.status(id), protocmp.Transform()); diff != "" {
				t.Errorf("the end is told otherwise the second time:\n%s", diff)
			}
		})
	}
}

func TestF26TheEndByAKilledShimIsToldOnce(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox("a")
	events := w.listen()
	id := w.run(box, shell("web", forever))
	kill(t, w.info(id).ShimPID)
	w.ended(id)
	w.removed(id)
	var have []runtimeapi.ContainerEventType
	for len(have) == 0 || have[len(have)-1] != runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		have = append(have, events.next().GetContainerEventType())
	}
	if diff := cmp.Diff(wholeLife, have); diff != "" {
		t.Error(diff)
	}
}

func TestAPIDThatIsUsedAgainIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	id := w.run(w.sandbox("a"), shell("web", forever))
	shim := w.info(id).ShimPID
	bystander := startBystander(t)
	w.restart(func() {
		kill(t, shim)
		kill(t, w.pidOnRecord(id))
		w.rewriteStarted(id, bystander)
	})
	if have := w.ended(id); have.GetExitCode() != 137 {
		t.Errorf("have %v", have)
	}
	if !alive(bystander) {
		t.Error("the process that has the PID now was killed")
	}
}

func TestAServerThatIsKilledLeavesAConsistentRecord(t *testing.T) {
	w := newIdleWorld(t)
	killServer := w.startApart()
	box := w.sandbox("a")
	created, running := w.create(box, shell("created", "exit 6")), w.run(box, shell("running", forever))
	killServer()
	killServer = w.startApart()
	w.wantState(created, runtimeapi.ContainerState_CONTAINER_CREATED)
	w.wantState(running, runtimeapi.ContainerState_CONTAINER_RUNNING)
	w.begin(created)
	if have := w.ended(created); have.GetExitCode() != 6 {
		t.Errorf("have %v", have)
	}
	killServer()
	w.start()
	if have := w.status(created); have.GetExitCode() != 6 {
		t.Errorf("have %v", have)
	}
	w.halt(running, 30)
}

func TestWhatWasHalfMadeOrHalfRemovedIsGone(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox("a")
	id := w.create(box, shell("web", forever))
	w.restart(func() {
		if err := os.Remove(filepath.Join(w.root, "containers", id, "container.json")); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(w.root, "sandboxes", "half"), 0o700); err != nil {
			t.Fatal(err)
		}
	})
	list, err := w.ListContainers(w.ctx, &runtimeapi.ListContainersRequest{})
	if err != nil || len(list.GetContainers()) != 0 {
		t.Errorf("have %v, error %v", list, err)
	}
	w.create(box, shell("web", forever))
}

// TestAStartThatAKilledServerBeganIsNoSecondChance has the FIFO of a start, and neither shim nor record of it.
func TestAStartThatAKilledServerBeganIsNoSecondChance(t *testing.T) {
	w := newWorld(t)
	id := w.create(w.sandbox("a"), shell("web", forever))
	w.restart(func() {
		if err := syscall.Mkfifo(filepath.Join(w.root, "containers", id, "alive"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if have := w.ended(id); have.GetExitCode() != 137 || have.GetReason() != "Unknown" || have.GetStartedAt() != 0 {
		t.Errorf("have %v", have)
	}
}

func TestAShimIgnoresWhatIsMeantForTheAgent(t *testing.T) {
	w := newWorld(t)
	more := newSignpost(t)
	id := w.run(w.sandbox("a"), shell("web", "while read -r line; do echo $line; done < "+more.file.Name()))
	for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT} {
		if err := syscall.Kill(w.info(id).ShimPID, signal); err != nil {
			t.Fatal(err)
		}
	}
	more.send("hello")
	awaitLine(t, w.status(id).GetLogPath(), "stdout F hello")
	w.wantState(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
}

// hasty makes a call fail when there is no server.
var hasty = grpc.WaitForReady(false)

// startUntilKilled makes and starts containers until the server is gone, and says on the channel when each has begun.
func (w *world) startUntilKilled(box string, first uint32, begun chan<- struct{}) {
	for attempt := first; ; attempt++ {
		config := shell("web", forever)
		config.Metadata.Attempt = attempt
		begun <- struct{}{}
		made, err := w.CreateContainer(w.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: box, Config: config}, hasty)
		if err == nil {
			_, err = w.StartContainer(w.ctx, &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()}, hasty)
		}
		if err != nil {
			close(begun)
			return
		}
	}
}

func TestAServerKilledAtAnyMomentLosesNoProcess(t *testing.T) {
	const kills = 10
	w := newIdleWorld(t)
	killServer := w.startApart()
	box := w.sandbox("a")
	states := map[runtimeapi.ContainerState]int{}
	for round := range uint32(kills) {
		begun := make(chan struct{})
		go w.startUntilKilled(box, 1000*round, begun)
		for range 1 + rand.IntN(3) {
			<-begun
		}
		spin(rand.IntN(3_000_000))
		killServer()
		for range begun { // until it has noticed
		}
		killServer = w.startApart()
		list, err := w.ListContainers(w.ctx, &runtimeapi.ListContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list.GetContainers() {
			states[c.GetState()]++
			w.halt(c.GetId(), 0)
			w.wantDown(c.GetId())
			w.removed(c.GetId())
		}
		w.wantProcesses(0)
	}
	killServer()
	t.Logf("%d kills found containers in these states: %v", kills, states)
}

func (w *world) wantDown(id string) {
	w.t.Helper()
	if have := w.status(id); have.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
		w.t.Errorf("stopped and running: %v", have)
	}
}

// spin lets a part of a call go by, so that the kill comes at no particular step.
func spin(turns int) {
	for range turns {
		rand.Uint32()
	}
}

func TestManyContainersAtOnceEachHaveTheirOwnLife(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox("a")
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			config := shell("web", "exit "+itoa(n))
			config.Metadata.Attempt = uint32(n)
			made, err := w.CreateContainer(w.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: box, Config: config})
			id := made.GetContainerId()
			if err == nil {
				_, err = w.StartContainer(w.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
			}
			if err != nil {
				t.Error(err)
				return
			}
			for range 3 { // in each other's way
				all.Go(func() {
					if _, err := w.StopContainer(w.ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 60}); err != nil {
						t.Error(err)
					}
					if _, err := w.RemoveContainer(w.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
	all.Wait()
	list, err := w.ListContainers(w.ctx, &runtimeapi.ListContainersRequest{})
	if err != nil || len(list.GetContainers()) != 0 {
		t.Errorf("have %v, error %v", list, err)
	}
}

func TestF26AShimKilledAtAnyMomentLeavesNoProcess(t *testing.T) {
	const kills = 20
	w := newWorld(t)
	box := w.sandbox("a")
	started := 0
	for round := range uint32(kills) {
		config := shell("web", "setsid sleep 1000 & "+forever)
		config.Metadata.Attempt = round
		id := w.create(box, config)
		done := make(chan struct{})
		go func() {
			_, _ = w.StartContainer(w.ctx, &runtimeapi.StartContainerRequest{ContainerId: id}) // as the kill comes
			close(done)
		}()
		shim := w.awaitShim(id)
		spin(rand.IntN(3_000_000))
		kill(t, shim)
		<-done
		have := w.ended(id)
		if have.GetExitCode() != 137 || have.GetReason() != "Unknown" {
			t.Errorf("have %v", have)
		}
		if have.GetStartedAt() != 0 {
			started++
		}
		w.wantProcesses(0)
	}
	t.Logf("%d kills, %d of them of a container on record as started", kills, started)
}
