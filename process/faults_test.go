package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// setLimit sets a resource limit of a process. The returned function restores it.
func setLimit(t *testing.T, pid, resource int, value uint64) (restore func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Prlimit(pid, resource, nil, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: value, Max: before.Max}, nil); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := unix.Prlimit(pid, resource, &before, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestF28_ShimExitWithoutDescriptors(t *testing.T) {
	h := newStoppedHarness(t)
	defer h.startServerProcess()()
	ready := newFIFO(t)
	id := h.run(h.sandbox("a"), shell("web", "setsid sleep 1000 & "+ready.echo("$$")+"exec sleep 1000"))
	main, shim := ready.readPID(), h.info(id).ShimPID
	restore := setLimit(t, h.serverPID, unix.RLIMIT_NOFILE, 0)
	kill(t, shim)
	for range 200 { // long enough for the server to have tried
		if h.status(id).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			if left := h.processes(); len(left) > 0 {
				t.Errorf("container has exited, got processes %v", left)
			}
			break
		}
	}
	restore()
	if got := h.waitForExit(id); got.GetExitCode() != 137 {
		t.Errorf("got %v, want exit code 137", got)
	}
	wantGone(t, main)
	h.wantProcesses(0)
}

func TestF17_ExitRecordRetried(t *testing.T) {
	h := newHarness(t)
	end := newFIFO(t)
	id := h.run(h.sandbox("a"), shell("web", "setsid sleep 1000 & read -r code < "+end.file.Name()+"; exit $code"))
	main := h.info(id)
	restore := setLimit(t, main.ShimPID, unix.RLIMIT_NOFILE, 0)
	ends := watchExits(t, []int{main.PID})
	end.writeLine("5")
	ends()
	for range 200 { // long enough for the shim to have tried
		if h.status(id).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			break
		}
	}
	restore()
	if got := h.waitForExit(id); got.GetExitCode() != 5 {
		t.Errorf("got %v, want exit code 5", got)
	}
	h.wantProcesses(0)
}

func TestF17_PartialLogWrite(t *testing.T) {
	h := newHarness(t)
	more := newFIFO(t)
	id := h.run(h.sandbox("a"), shell("web", "while read -r line; do echo $line; done < "+more.file.Name()))
	log := h.status(id).GetLogPath()
	more.writeLine("one")
	waitForLine(t, log, "stdout F one")
	info, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	restore := setLimit(t, h.info(id).ShimPID, unix.RLIMIT_FSIZE, uint64(info.Size())+50)
	more.writeLine("two, of which only the beginning fits")
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); {
		if now, err := os.Stat(log); err == nil && now.Size() > info.Size() {
			break
		}
	}
	restore()
	more.writeLine("three")
	waitForLine(t, log, "stdout F three")
	h.stopContainer(id, 0)
	if got := logLines(t, log); len(got) != 3 || got[0] != "stdout F one" || got[2] != "stdout F three" {
		t.Errorf("got %q, want lines one and three whole", got)
	}
}

func TestF18_CorruptRecord(t *testing.T) {
	tests := map[string]struct {
		file      func(h *harness, sandboxID, id string) string
		sandboxes int
	}{
		"container record": {func(h *harness, _, id string) string {
			return filepath.Join(h.root, "containers", id, "container.json")
		}, 2},
		"sandbox record": {func(h *harness, sandboxID, _ string) string {
			return filepath.Join(h.root, "sandboxes", sandboxID, "sandbox.json")
		}, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			badSandbox, goodSandbox := h.sandbox("a"), h.sandbox("b")
			bad, good := h.run(badSandbox, shell("bad", "setsid sleep 1000 & "+sleepForever)), h.run(goodSandbox, shell("good", sleepForever))
			main := h.info(bad).PID
			h.restart(func() {
				if err := os.WriteFile(test.file(h, badSandbox, bad), []byte(`{"id":`), 0o600); err != nil {
					t.Fatal(err)
				}
			})
			h.wantState(good, runtimeapi.ContainerState_CONTAINER_RUNNING)
			list, err := h.ListContainers(h.ctx, &runtimeapi.ListContainersRequest{})
			if err != nil || len(list.GetContainers()) != 1 {
				t.Errorf("got %v, error %v, want 1 containers", list, err)
			}
			sandboxes, err := h.ListPodSandbox(h.ctx, &runtimeapi.ListPodSandboxRequest{})
			if err != nil || len(sandboxes.GetItems()) != test.sandboxes {
				t.Errorf("got %v, error %v, want %d items", sandboxes, err, test.sandboxes)
			}
			wantGone(t, main)
			h.wantProcesses(1)
			h.restart(func() {})
			quarantined, err := filepath.Glob(filepath.Join(h.root, "corrupt", "*", "*.json"))
			if err != nil || !strings.Contains(strings.Join(quarantined, " "), filepath.Base(test.file(h, badSandbox, bad))) {
				t.Errorf("got quarantined files %v, error %v", quarantined, err)
			}
		})
	}
}

// TestLoad_ContainerWithoutSandbox covers a server that was killed while it created a container in a sandbox that was being
// removed.
func TestLoad_ContainerWithoutSandbox(t *testing.T) {
	h := newHarness(t)
	sandboxID := h.sandbox("a")
	h.create(sandboxID, shell("web", sleepForever))
	h.restart(func() {
		if err := os.RemoveAll(filepath.Join(h.root, "sandboxes", sandboxID)); err != nil {
			t.Fatal(err)
		}
	})
	list, err := h.ListContainers(h.ctx, &runtimeapi.ListContainersRequest{})
	if diff := cmp.Diff(0, len(list.GetContainers())); err != nil || diff != "" {
		t.Errorf("got %v, error %v", list, err)
	}
}

func TestF28_StartWithoutDescriptors(t *testing.T) {
	h := newStoppedHarness(t)
	defer h.startServerProcess()()
	id := h.create(h.sandbox("a"), shell("web", sleepForever))
	done := make(chan error, 1)
	go func() {
		_, err := h.StartContainer(h.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
		done <- err
	}()
	shim := h.waitForShim(id)
	signal(t, shim, unix.SIGSTOP) // usually before it has started anything
	restore := setLimit(t, h.serverPID, unix.RLIMIT_NOFILE, 0)
	signal(t, shim, unix.SIGCONT)
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); {
		if _, err := os.Stat(h.startedFile(id)); err == nil {
			break
		}
	}
	for range 200 { // long enough for the server to have tried
		h.waitForServer()
	}
	restore()
	if err := <-done; err != nil {
		t.Error(err)
	}
	h.stopContainer(id, 30)
}
