package process_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup/host"
	"github.com/heraldnode/herald/cgroup/usage"
)

// burn is a shell command that uses CPU time for at least three clock ticks, in single quotes.
const (
	burn   = `while read -r a b c d e f g h i j k l m ticks rest < /proc/$$/stat && [ $ticks -lt 3 ]; do :; done; `
	burned = 30 * time.Millisecond
)

func (h *harness) containerCPU(id string) time.Duration {
	h.t.Helper()
	got, err := h.ContainerStats(h.ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		h.t.Fatal(err)
	}
	return time.Duration(got.GetStats().GetCpu().GetUsageCoreNanoSeconds().GetValue())
}

func (h *harness) podStats(sandbox string) *runtimeapi.LinuxPodSandboxStats {
	h.t.Helper()
	got, err := h.PodSandboxStats(h.ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: sandbox})
	if err != nil {
		h.t.Fatal(err)
	}
	return got.GetStats().GetLinux()
}

func podCPU(stats *runtimeapi.LinuxPodSandboxStats) time.Duration {
	return time.Duration(stats.GetCpu().GetUsageCoreNanoSeconds().GetValue())
}

func TestContainerStats(t *testing.T) {
	h := newHarness(t)
	sandboxID := h.sandbox("a")
	ready := newFIFO(t)
	// An orphan uses CPU time.
	id := h.run(sandboxID, shell("web", "(sh -c '"+burn+ready.echo("done")+"' &); "+sleepForever))
	h.create(sandboxID, shell("later", sleepForever))
	ready.readLine()
	got, err := h.ContainerStats(h.ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	if err != nil || got.GetStats().GetMemory().GetWorkingSetBytes().GetValue() == 0 || got.GetStats().GetAttributes().GetId() != id ||
		got.GetStats().GetMemory().GetPageFaults().GetValue() == 0 {
		t.Errorf("got %v, error %v", got, err)
	}
	if cpu := h.containerCPU(id); cpu < burned {
		t.Errorf("got CPU time %v, want at least %v", cpu, burned)
	}
	list, err := h.ListContainerStats(h.ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil || len(list.GetStats()) != 1 {
		t.Errorf("got %v, error %v, want 1 stats", list, err)
	}
	h.stopContainer(id, 0)
	if _, err := h.ContainerStats(h.ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("got %v, want code FailedPrecondition", err)
	}
}

// A parent that ignores the exits of its children loses their CPU time. What was measured stays.
func TestRES18_CPUTimeNeverDecreases(t *testing.T) {
	h := newHarness(t)
	done, release := newFIFO(t), newFIFO(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config := shell("web", "")
	config.Command = []string{program, carelessArg, burn + done.echo("burned") + "read -r x < " + release.file.Name()}
	config.Args = nil
	id := h.run(h.sandbox("a"), config)
	done.readLine()
	before := h.containerCPU(id)
	if before < burned {
		t.Errorf("got CPU time %v, want at least %v", before, burned)
	}
	release.writeLine("go")
	waitForLine(t, h.status(id).GetLogPath(), "exited")
	if after := h.containerCPU(id); after < before {
		t.Errorf("got CPU time %v after %v", after, before)
	}
}

// A command of ExecSync counts as the container, while it runs and afterwards.
func TestRES18_CPUTimeOfCommands(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	done, release := newFIFO(t), newFIFO(t)
	ended := make(chan error, 1)
	go func() {
		_, err := h.exec(id, 0, "sh -c '"+burn+done.echo("burned")+"read -r x < "+release.file.Name()+"'")
		ended <- err
	}()
	done.readLine()
	running := h.containerCPU(id)
	if running < burned {
		t.Errorf("got CPU time %v while the command runs, want at least %v", running, burned)
	}
	release.writeLine("go")
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if after := h.containerCPU(id); after < running {
		t.Errorf("got CPU time %v after %v", after, running)
	}
}

func TestRES16_PodSandboxStats(t *testing.T) {
	h := newHarness(t)
	sandboxID, idle := h.sandbox("a"), h.sandbox("b")
	ready := newFIFO(t)
	first := h.run(sandboxID, shell("first", "sh -c '"+burn+ready.echo("done")+"'; "+sleepForever))
	ready.readLine()
	second := h.run(sandboxID, shell("second", "sleep 1000 & "+sleepForever))
	stats := h.podStats(sandboxID)
	var names []string
	for _, container := range stats.GetContainers() {
		names = append(names, container.GetAttributes().GetMetadata().GetName())
	}
	if !slices.Equal(names, []string{"first", "second"}) || stats.GetProcess().GetProcessCount().GetValue() < 2 ||
		stats.GetMemory().GetWorkingSetBytes().GetValue() == 0 || stats.GetNetwork() != nil {
		t.Errorf("got %v", stats)
	}
	before := podCPU(stats)
	if before < burned {
		t.Errorf("got CPU time %v, want at least %v", before, burned)
	}
	h.stopContainer(first, 0)
	if stats := h.podStats(sandboxID); podCPU(stats) < before || len(stats.GetContainers()) != 1 {
		t.Errorf("after the exit of a container: got %v, want at least %v", stats, before)
	}
	h.remove(first)
	h.remove(second)
	stats = h.podStats(sandboxID)
	memory := stats.GetMemory().GetWorkingSetBytes()
	if podCPU(stats) < before || memory == nil || memory.GetValue() != 0 || stats.GetProcess().GetProcessCount().GetValue() != 0 {
		t.Errorf("without containers: got %v, want the CPU time of before and nothing else", stats)
	}
	list := func(filter *runtimeapi.PodSandboxStatsFilter) (ids []string) {
		all, err := h.ListPodSandboxStats(h.ctx, &runtimeapi.ListPodSandboxStatsRequest{Filter: filter})
		if err != nil {
			t.Fatal(err)
		}
		for _, stats := range all.GetStats() {
			ids = append(ids, stats.GetAttributes().GetId())
		}
		return ids
	}
	if ids := list(nil); !slices.Equal(ids, []string{sandboxID, idle}) {
		t.Errorf("got sandboxes %v", ids)
	}
	if ids := list(&runtimeapi.PodSandboxStatsFilter{LabelSelector: map[string]string{"pod": "b"}}); !slices.Equal(ids, []string{idle}) {
		t.Errorf("got sandboxes %v, want the one with the label", ids)
	}
	if _, err := h.StopPodSandbox(h.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: idle}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.PodSandboxStats(h.ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: idle}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("stopped sandbox: got %v, want code FailedPrecondition", err)
	}
	if ids := list(nil); !slices.Equal(ids, []string{sandboxID}) {
		t.Errorf("got sandboxes %v, want the one that runs", ids)
	}
	if _, err := h.PodSandboxStats(h.ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("got %v, want code NotFound", err)
	}
}

// newScope creates the cgroup of a scope in every hierarchy, as systemd does, and moves processes there.
func newScope(t *testing.T, parent, name string, pids []int) usage.Group {
	t.Helper()
	v2, err := host.IsV2(host.Mount)
	if err != nil {
		t.Fatal(err)
	}
	mounts := []string{host.Mount}
	if !v2 {
		mounts = nil
		for _, controller := range []string{"cpu", "cpuacct", "memory", "pids"} {
			mounts = append(mounts, filepath.Join(host.Mount, controller))
		}
	}
	for _, mount := range mounts {
		dir := filepath.Join(mount, parent, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || os.Geteuid() != 0 {
				t.Skipf("cannot create cgroups here: %v", err)
			}
			t.Fatal(err)
		}
		for _, pid := range pids {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return usage.Reader{V2: v2}.Group(filepath.Join("/", parent, name))
}

func removeScope(t *testing.T, parent, name string) {
	t.Helper()
	for _, pattern := range []string{filepath.Join(host.Mount, parent), filepath.Join(host.Mount, "*", parent)} {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			for _, path := range []string{filepath.Join(dir, name), dir} {
				err := os.Remove(path)
				for deadline := time.Now().Add(testTimeout); err != nil && !errors.Is(err, fs.ErrNotExist) && time.Now().Before(deadline); {
					time.Sleep(10 * time.Millisecond) // a cgroup stays busy for a moment after its last process has exited
					err = os.Remove(path)
				}
			}
		}
	}
}

// A container in a scope of its own is measured by its cgroup.
func TestRES21_ScopeOfContainer(t *testing.T) {
	parent := fmt.Sprintf("heraldtest%d", os.Getpid())
	var scope string
	t.Cleanup(func() { removeScope(t, parent, scope) }) // after the harness has ended
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	info := h.info(id)
	scope = "herald-" + id + ".scope"
	group := newScope(t, parent, scope, []int{info.ShimPID, info.PID})
	done := newFIFO(t)
	if _, err := h.exec(id, 0, "sh -c '"+burn+done.echo("burned")+"'"); err != nil { // joins the cgroups of the container
		t.Fatal(err)
	}
	done.readLine()
	number := func(sample usage.Sample) time.Duration {
		seconds, _ := sample.CPUSeconds.Get()
		return time.Duration(seconds * float64(time.Second))
	}
	low := number(group.Read())
	got := h.containerCPU(id)
	high := number(group.Read())
	if got < low-time.Microsecond || got > high+time.Microsecond || got < burned {
		t.Errorf("got CPU time %v, want one between %v and %v", got, low, high)
	}
}
