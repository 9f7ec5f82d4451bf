package process_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/process"
)

const sleepForever = "exec sleep 1000"

func TestContainer_CommandAndLog(t *testing.T) {
	h := newHarness(t)
	config := shell("web", `echo "$GREETING $HERALD_CONTAINER_ID"; echo oops >&2; pwd >&2; exit 3`)
	config.Envs = []*runtimeapi.KeyValue{{Key: "GREETING", Value: []byte("hello \xff")}}
	id := h.create(h.sandbox("a"), config)
	h.wantState(id, runtimeapi.ContainerState_CONTAINER_CREATED)
	h.startContainer(id)
	got := h.waitForExit(id)
	if got.GetExitCode() != 3 || got.GetReason() != "Error" || got.GetMessage() != "" {
		t.Errorf("got %v, want exit code 3, reason Error", got)
	}
	if got.GetCreatedAt() > got.GetStartedAt() || got.GetStartedAt() > got.GetFinishedAt() || got.GetStartedAt() == 0 {
		t.Errorf("timestamps out of order: %v", got)
	}
	if want := filepath.Join(h.logs, "a", "web", "0.log"); got.GetLogPath() != want {
		t.Errorf("got log path %s, want %s", got.GetLogPath(), want)
	}
	if got.GetAnnotations()["io.kubernetes.container.hash"] != "1" || got.GetMetadata().GetName() != "web" {
		t.Errorf("got %v, want name web and its annotations", got)
	}
	var stdout, stderr []string
	for _, line := range logLines(t, got.GetLogPath()) {
		if text, found := strings.CutPrefix(line, "stdout F "); found {
			stdout = append(stdout, text)
		} else {
			stderr = append(stderr, strings.TrimPrefix(line, "stderr F "))
		}
	}
	if diff := cmp.Diff([]string{"hello \xff " + id}, stdout); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"oops", h.info(id).Root}, stderr); diff != "" {
		t.Error(diff)
	}
}

func TestContainer_Completed(t *testing.T) {
	h := newHarness(t)
	if got := h.waitForExit(h.run(h.sandbox("a"), shell("job", "true"))); got.GetExitCode() != 0 || got.GetReason() != "Completed" {
		t.Errorf("got %v, want exit code 0, reason Completed", got)
	}
}

func TestContainer_Environment(t *testing.T) {
	t.Setenv("AGENTS_SECRET", "1")
	h := newHarness(t)
	config := shell("web", "env | sort")
	config.Envs = []*runtimeapi.KeyValue{
		{Key: "B", Value: []byte("1")}, {Key: "B", Value: []byte("2")}, {Key: "HERALD_CONTAINER_ID", Value: []byte("other")},
	}
	config.Command[0] = "/bin/sh"
	id := h.run(h.sandbox("a"), config)
	want := []string{
		"stdout F B=2", "stdout F HERALD_CONTAINER_ID=" + id, "stdout F HERALD_ROOT=" + h.info(id).Root,
		"stdout F PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "stdout F PWD=" + h.info(id).Root,
	}
	if diff := cmp.Diff(want, logLines(t, h.waitForExit(id).GetLogPath())); diff != "" {
		t.Error(diff)
	}
}

func TestLog_LongAndPartialLines(t *testing.T) {
	const longest = 16 << 10
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", `head -c 40000 /dev/zero | tr '\0' x; echo; printf end`))
	want := []string{
		"stdout P " + strings.Repeat("x", longest), "stdout P " + strings.Repeat("x", longest),
		"stdout F " + strings.Repeat("x", 40000-2*longest), "stdout P end",
	}
	if diff := cmp.Diff(want, logLines(t, h.waitForExit(id).GetLogPath())); diff != "" {
		t.Error(diff)
	}
}

func TestLog_CompleteAtExit(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", "yes | head -n 100000"))
	if got := logLines(t, h.waitForExit(id).GetLogPath()); len(got) != 100_000 {
		t.Errorf("got %d log lines, want 100000", len(got))
	}
}

func TestStartContainer_StartError(t *testing.T) {
	tests := map[string]struct {
		command []string
		dir     string
		want    string
	}{
		"no such program":   {command: []string{"no-such-program"}, want: "no-such-program"},
		"no such file":      {command: []string{"/no/such/program"}, want: "/no/such/program: no such file or directory"},
		"no such directory": {command: []string{"true"}, dir: "/no/such/dir", want: "working directory /no/such/dir"},
		"not a directory":   {command: []string{"true"}, dir: "/etc/passwd", want: "not a directory"},
	}
	h := newHarness(t)
	sandboxID := h.sandbox("a")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := shell(strings.ReplaceAll(name, " ", "-"), "")
			config.Command, config.Args, config.WorkingDir = test.command, nil, test.dir
			id := h.create(sandboxID, config)
			_, err := h.StartContainer(h.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			got := h.status(id)
			if got.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || got.GetExitCode() != 128 ||
				got.GetReason() != "StartError" || !strings.Contains(got.GetMessage(), test.want) {
				t.Errorf("got %v, want exit code 128, reason StartError, state EXITED, %q", got, test.want)
			}
		})
	}
}

// A container that cannot have the scope that it needs does not start in the agent's cgroup.
func TestStartContainer_NoScope(t *testing.T) {
	h := newStoppedHarness(t)
	config := h.config()
	config.Slice = "not a slice" // rejected by systemd, if there is one
	server, err := process.New(config)
	if err != nil {
		t.Fatal(err)
	}
	h.serve(server)
	id := h.create(h.sandbox("a"), shell("web", sleepForever))
	_, err = h.StartContainer(h.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	if err == nil || !strings.Contains(err.Error(), "create systemd scope of container "+id) {
		t.Errorf("got error %v", err)
	}
	if got := h.waitForExit(id); got.GetReason() != "StartError" {
		t.Errorf("got %v", got)
	}
}

func TestStartContainer_Twice(t *testing.T) {
	h := newHarness(t)
	id := h.run(h.sandbox("a"), shell("web", sleepForever))
	_, err := h.StartContainer(h.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("got %v, want code FailedPrecondition", err)
	}
}

func TestStartContainer_Concurrent(t *testing.T) {
	h := newHarness(t)
	id := h.create(h.sandbox("a"), shell("web", sleepForever))
	answers := make(chan error)
	for range 8 {
		go func() {
			_, err := h.StartContainer(h.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
			answers <- err
		}()
	}
	got := map[codes.Code]int{}
	for range 8 {
		got[status.Code(<-answers)]++
	}
	if diff := cmp.Diff(map[codes.Code]int{codes.OK: 1, codes.FailedPrecondition: 7}, got); diff != "" {
		t.Error(diff)
	}
	h.wantProcesses(1)
}

func TestStopContainer_ProcessGroup(t *testing.T) {
	h := newHarness(t)
	ready := newFIFO(t)
	child := `sh -c 'trap "exit 0" TERM; ` + ready.echo("child") + ` while :; do sleep 0.01; done' & `
	parent := `trap "wait; exit 7" TERM; ` + ready.echo("parent") + "while :; do sleep 0.01; done"
	id := h.run(h.sandbox("a"), shell("web", child+parent))
	ready.readLine()
	ready.readLine()
	h.stopContainer(id, 30)
	if got := h.status(id); got.GetExitCode() != 7 || got.GetReason() != "Error" {
		t.Errorf("got %v, want exit code 7, reason Error", got)
	}
	h.stopContainer(id, 30)
}

func TestStopContainer_DuringStart(t *testing.T) {
	h := newHarness(t)
	id := h.create(h.sandbox("a"), shell("web", sleepForever))
	done := make(chan error, 1)
	go func() {
		_, err := h.StartContainer(h.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
		done <- err
	}()
	h.waitForShim(id)
	h.stopContainer(id, 0)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := h.status(id); got.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || got.GetExitCode() != 137 {
		t.Errorf("got %v, want exit code 137, state EXITED", got)
	}
}

func TestStopContainer_StopSignal(t *testing.T) {
	h := newHarness(t)
	sandboxID := h.sandbox("a")
	for signal, number := range map[runtimeapi.Signal]int32{
		runtimeapi.Signal_SIGUSR1: 10, runtimeapi.Signal_SIGRTMIN: 34, runtimeapi.Signal_SIGRTMINPLUS3: 37,
		runtimeapi.Signal_SIGRTMAXMINUS1: 63, runtimeapi.Signal_SIGRTMAX: 64,
	} {
		config := shell("web-"+signal.String(), sleepForever)
		config.StopSignal = signal
		id := h.run(sandboxID, config)
		h.stopContainer(id, 30)
		if got := h.status(id); got.GetExitCode() != 128+number || got.GetStopSignal() != signal {
			t.Errorf("%v: got %v, want exit code %d", signal, got, 128+number)
		}
	}
}

func TestStopContainer_KillAfterGracePeriod(t *testing.T) {
	for name, grace := range map[string]int64{"no grace": 0, "one second": 1} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			ready := newFIFO(t)
			id := h.run(h.sandbox("a"), shell("web", `trap "" TERM; `+ready.echo("ready")+"while :; do sleep 0.01; done"))
			ready.readLine()
			h.stopContainer(id, grace)
			if got := h.status(id); got.GetExitCode() != 137 || got.GetReason() != "Error" {
				t.Errorf("got %v, want exit code 137, reason Error", got)
			}
			h.wantProcesses(0)
		})
	}
}

func TestContainer_DescendantsEnd(t *testing.T) {
	h := newHarness(t)
	ready, end := newFIFO(t), newFIFO(t)
	daemon := "setsid sh -c '" + ready.echo("$$") + "exec env -i sleep 1000' & "
	id := h.run(h.sandbox("a"), shell("web", daemon+"read -r line < "+end.file.Name()))
	pid := ready.readPID()
	end.writeLine("now")
	h.waitForExit(id)
	wantGone(t, pid)
}

func TestContainer_NoNewPrivs(t *testing.T) {
	h := newHarness(t)
	config := shell("web", "grep NoNewPrivs /proc/self/status")
	config.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NoNewPrivs: true}}
	if diff := cmp.Diff([]string{"stdout F NoNewPrivs:\t1"}, logLines(t, h.waitForExit(h.run(h.sandbox("a"), config)).GetLogPath())); diff != "" {
		t.Error(diff)
	}
}

func TestReopenContainerLog(t *testing.T) {
	h := newHarness(t)
	ready, more := newFIFO(t), newFIFO(t)
	id := h.run(h.sandbox("a"), shell("web", "while read -r line; do echo $line; "+ready.echo("$line")+"done < "+more.file.Name()))
	log := h.status(id).GetLogPath()
	write := func(word string) {
		t.Helper()
		more.writeLine(word)
		if got := ready.readLine(); got != word {
			t.Fatalf("got %q, want %q", got, word)
		}
	}
	write("one")
	waitForLine(t, log, "stdout F one")
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	write("two")
	waitForLine(t, log+".1", "stdout F two")
	if _, err := os.Stat(log); !os.IsNotExist(err) {
		t.Fatalf("log exists before ReopenContainerLog: %v", err)
	}
	if err := os.Symlink(log+".planted", log); err != nil {
		t.Fatal(err)
	}
	if _, err := h.ReopenContainerLog(h.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err == nil {
		t.Error("ReopenContainerLog followed a link")
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	if _, err := h.ReopenContainerLog(h.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	write("three")
	waitForLine(t, log, "stdout F three")
	h.stopContainer(id, 0)
	if diff := cmp.Diff([]string{"stdout F one", "stdout F two"}, logLines(t, log+".1")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"stdout F three"}, logLines(t, log)); diff != "" {
		t.Error(diff)
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	_, err := h.ReopenContainerLog(h.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("exited container: got %v, want code FailedPrecondition", err)
	}
	if _, err := os.Stat(log); !os.IsNotExist(err) {
		t.Errorf("failed ReopenContainerLog created a log: %v", err)
	}
}

func TestStopContainer_MaxGracePeriod(t *testing.T) {
	h := newHarness(t)
	ready := newFIFO(t)
	id := h.run(h.sandbox("a"), shell("web", `trap "exit 7" TERM; `+ready.echo("ready")+"while :; do sleep 0.01; done"))
	ready.readLine()
	h.stopContainer(id, math.MaxInt64)
	if got := h.status(id); got.GetExitCode() != 7 {
		t.Errorf("got %v, want exit code 7", got)
	}
}

// startServerWithGate runs a server whose shims each wait for a line in the gate, a FIFO.
func (h *harness) startServerWithGate() (gate string) {
	h.t.Helper()
	gate = filepath.Join(h.t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		h.t.Fatal(err)
	}
	config := h.config()
	config.Shim = append([]string{"/bin/sh", "-c", `read line <` + gate + `; exec "$0" "$@"`}, config.Shim...)
	server, err := process.New(config)
	if err != nil {
		h.t.Fatal(err)
	}
	h.serve(server)
	return gate
}

// An agent that is killed during StartContainer must not make its successor start the container again.
func TestPW53_StatusDuringStart(t *testing.T) {
	h := newStoppedHarness(t)
	gate := h.startServerWithGate()
	id := h.create(h.sandbox("web"), shell("main", "sleep 1000"))
	agent, kill := context.WithCancel(h.ctx)
	killed := make(chan error, 1)
	go func() {
		_, err := h.StartContainer(agent, &runtimeapi.StartContainerRequest{ContainerId: id})
		killed <- err
	}()
	for asked := false; !asked; time.Sleep(time.Millisecond) {
		_, err := os.Stat(filepath.Join(h.root, "containers", id, "alive"))
		asked = err == nil
	}
	kill()
	if err := <-killed; status.Code(err) != codes.Canceled {
		t.Fatalf("StartContainer: got %v, want code Canceled", err)
	}
	impatient, cancel := context.WithTimeout(h.ctx, 100*time.Millisecond)
	defer cancel()
	if got, err := h.ContainerStatus(impatient, &runtimeapi.ContainerStatusRequest{ContainerId: id}); err == nil {
		t.Errorf("got state %v, want no answer during the start", got.GetStatus().GetState())
	}
	if err := os.WriteFile(gate, []byte("open\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.wantState(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
}
