package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const forever = "exec sleep 1000"

func TestAContainerRunsItsCommandAndItsOutputIsInItsLog(t *testing.T) {
	w := newWorld(t)
	config := shell("web", `echo "$GREETING $HERALD_CONTAINER_ID"; echo oops >&2; pwd >&2; exit 3`)
	config.Envs = []*runtimeapi.KeyValue{{Key: "GREETING", Value: []byte("hello \xff")}}
	id := w.create(w.sandbox("a"), config)
	w.wantState(id, runtimeapi.ContainerState_CONTAINER_CREATED)
	w.begin(id)
	have := w.ended(id)
	if have.GetExitCode() != 3 || have.GetReason() != "Error" || have.GetMessage() != "" {
		t.Errorf("have %v", have)
	}
	if have.GetCreatedAt() > have.GetStartedAt() || have.GetStartedAt() > have.GetFinishedAt() || have.GetStartedAt() == 0 {
		t.Errorf("times out of order: %v", have)
	}
	if want := filepath.Join(w.logs, "a", "web", "0.log"); have.GetLogPath() != want {
		t.Errorf("log path is %s, want %s", have.GetLogPath(), want)
	}
	if have.GetAnnotations()["io.kubernetes.container.hash"] != "1" || have.GetMetadata().GetName() != "web" {
		t.Errorf("have %v", have)
	}
	var stdout, stderr []string
	for _, line := range logLines(t, have.GetLogPath()) {
		if text, found := strings.CutPrefix(line, "stdout F "); found {
			stdout = append(stdout, text)
		} else {
			stderr = append(stderr, strings.TrimPrefix(line, "stderr F "))
		}
	}
	if diff := cmp.Diff([]string{"hello \xff " + id}, stdout); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"oops", w.info(id).Root}, stderr); diff != "" {
		t.Error(diff)
	}
}

func TestACommandThatSucceedsIsCompleted(t *testing.T) {
	w := newWorld(t)
	if have := w.ended(w.run(w.sandbox("a"), shell("job", "true"))); have.GetExitCode() != 0 || have.GetReason() != "Completed" {
		t.Errorf("have %v", have)
	}
}

func TestTheEnvironmentIsTheContainersAndNotTheAgents(t *testing.T) {
	t.Setenv("AGENTS_SECRET", "1")
	w := newWorld(t)
	config := shell("web", "env | sort")
	config.Envs = []*runtimeapi.KeyValue{
		{Key: "B", Value: []byte("1")}, {Key: "B", Value: []byte("2")}, {Key: "HERALD_CONTAINER_ID", Value: []byte("other")},
	}
	config.Command[0] = "/bin/sh"
	id := w.run(w.sandbox("a"), config)
	want := []string{
		"stdout F B=2", "stdout F HERALD_CONTAINER_ID=" + id, "stdout F HERALD_ROOT=" + w.info(id).Root,
		"stdout F PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "stdout F PWD=" + w.info(id).Root,
	}
	if diff := cmp.Diff(want, logLines(t, w.ended(id).GetLogPath())); diff != "" {
		t.Error(diff)
	}
}

func TestLongLinesAreCutAndALineWithoutEndIsPartial(t *testing.T) {
	const longest = 16 << 10
	w := newWorld(t)
	id := w.run(w.sandbox("a"), shell("web", `head -c 40000 /dev/zero | tr '\0' x; echo; printf end`))
	want := []string{
		"stdout P " + strings.Repeat("x", longest), "stdout P " + strings.Repeat("x", longest),
		"stdout F " + strings.Repeat("x", 40000-2*longest), "stdout P end",
	}
	if diff := cmp.Diff(want, logLines(t, w.ended(id).GetLogPath())); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsSaidLastIsInTheLogWhenTheContainerHasEnded(t *testing.T) {
	w := newWorld(t)
	id := w.run(w.sandbox("a"), shell("web", "yes | head -n 100000"))
	if have := logLines(t, w.ended(id).GetLogPath()); len(have) != 100_000 {
		t.Errorf("%d lines are in the log", len(have))
	}
}

func TestWhatCannotBeStartedHasEndedAndSaysWhy(t *testing.T) {
	tests := map[string]struct {
		command []string
		folder  string
		want    string
	}{
		"no such program":     {command: []string{"no-such-program"}, want: "no-such-program"},
		"no such file":        {command: []string{"/no/such/program"}, want: "/no/such/program: no such file or directory"},
		"no such folder":      {command: []string{"true"}, folder: "/no/such/folder", want: "working directory /no/such/folder"},
		"a file for a folder": {command: []string{"true"}, folder: "/etc/passwd", want: "not a directory"},
	}
	w := newWorld(t)
	box := w.sandbox("a")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := shell(strings.ReplaceAll(name, " ", "-"), "")
			config.Command, config.Args, config.WorkingDir = test.command, nil, test.folder
			id := w.create(box, config)
			_, err := w.StartContainer(w.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("have %v, want to hear of %s", err, test.want)
			}
			have := w.status(id)
			if have.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || have.GetExitCode() != 128 ||
				have.GetReason() != "StartError" || !strings.Contains(have.GetMessage(), test.want) {
				t.Errorf("have %v", have)
			}
		})
	}
}

func TestAContainerIsStartedOnce(t *testing.T) {
	w := newWorld(t)
	id := w.run(w.sandbox("a"), shell("web", forever))
	_, err := w.StartContainer(w.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("have %v", err)
	}
}

func TestOfStartsAtOnceOneIsTheStart(t *testing.T) {
	w := newWorld(t)
	id := w.create(w.sandbox("a"), shell("web", forever))
	answers := make(chan error)
	for range 8 {
		go func() {
			_, err := w.StartContainer(w.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
			answers <- err
		}()
	}
	have := map[codes.Code]int{}
	for range 8 {
		have[status.Code(<-answers)]++
	}
	if diff := cmp.Diff(map[codes.Code]int{codes.OK: 1, codes.FailedPrecondition: 7}, have); diff != "" {
		t.Error(diff)
	}
	w.wantProcesses(1)
}

func TestAStopAsksTheWholeGroup(t *testing.T) {
	w := newWorld(t)
	ready := newSignpost(t)
	child := `sh -c 'trap "exit 0" TERM; ` + ready.say("child") + ` while :; do sleep 0.01; done' & `
	parent := `trap "wait; exit 7" TERM; ` + ready.say("parent") + "while :; do sleep 0.01; done"
	id := w.run(w.sandbox("a"), shell("web", child+parent))
	ready.hear()
	ready.hear()
	w.halt(id, 30)
	if have := w.status(id); have.GetExitCode() != 7 || have.GetReason() != "Error" {
		t.Errorf("have %v", have)
	}
	w.halt(id, 30)
}

func TestAStopDuringTheStartStopsWhatIsStarted(t *testing.T) {
	w := newWorld(t)
	id := w.create(w.sandbox("a"), shell("web", forever))
	done := make(chan error, 1)
	go func() {
		_, err := w.StartContainer(w.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
		done <- err
	}()
	w.awaitShim(id)
	w.halt(id, 0)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if have := w.status(id); have.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || have.GetExitCode() != 137 {
		t.Errorf("have %v", have)
	}
}

func TestTheContainersOwnStopSignalIsSent(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox("a")
	for signal, number := range map[runtimeapi.Signal]int32{
		runtimeapi.Signal_SIGUSR1: 10, runtimeapi.Signal_SIGRTMIN: 34, runtimeapi.Signal_SIGRTMINPLUS3: 37,
		runtimeapi.Signal_SIGRTMAXMINUS1: 63, runtimeapi.Signal_SIGRTMAX: 64,
	} {
		config := shell("web-"+signal.String(), forever)
		config.StopSignal = signal
		id := w.run(box, config)
		w.halt(id, 30)
		if have := w.status(id); have.GetExitCode() != 128+number || have.GetStopSignal() != signal {
			t.Errorf("%v: have %v", signal, have)
		}
	}
}

func TestAContainerThatDoesNotListenIsKilledAfterItsGrace(t *testing.T) {
	for name, grace := range map[string]int64{"no grace": 0, "one second": 1} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ready := newSignpost(t)
			id := w.run(w.sandbox("a"), shell("web", `trap "" TERM; `+ready.say("ready")+"while :; do sleep 0.01; done"))
			ready.hear()
			w.halt(id, grace)
			if have := w.status(id); have.GetExitCode() != 137 || have.GetReason() != "Error" {
				t.Errorf("have %v", have)
			}
			w.wantProcesses(0)
		})
	}
}

func TestWhatAContainerStartedEndsWithIt(t *testing.T) {
	w := newWorld(t)
	ready, end := newSignpost(t), newSignpost(t)
	daemon := "setsid sh -c '" + ready.say("$$") + "exec env -i sleep 1000' & "
	id := w.run(w.sandbox("a"), shell("web", daemon+"read -r line < "+end.file.Name()))
	pid := ready.hearPID()
	end.send("now")
	w.ended(id)
	wantGone(t, pid)
}

func TestNoNewPrivilegesIsHonoured(t *testing.T) {
	w := newWorld(t)
	config := shell("web", "grep NoNewPrivs /proc/self/status")
	config.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NoNewPrivs: true}}
	if diff := cmp.Diff([]string{"stdout F NoNewPrivs:\t1"}, logLines(t, w.ended(w.run(w.sandbox("a"), config)).GetLogPath())); diff != "" {
		t.Error(diff)
	}
}

func TestARotatedLogGoesOnInANewFileWhenItIsReopened(t *testing.T) {
	w := newWorld(t)
	ready, more := newSignpost(t), newSignpost(t)
	id := w.run(w.sandbox("a"), shell("web", "while read -r line; do echo $line; "+ready.say("$line")+"done < "+more.file.Name()))
	log := w.status(id).GetLogPath()
	write := func(word string) {
		t.Helper()
		more.send(word)
		if have := ready.hear(); have != word {
			t.Fatalf("have %q, want %q", have, word)
		}
	}
	write("one")
	awaitLine(t, log, "stdout F one")
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	write("two")
	awaitLine(t, log+".1", "stdout F two")
	if _, err := os.Stat(log); !os.IsNotExist(err) {
		t.Fatalf("there is a log before it was reopened: %v", err)
	}
	if _, err := w.ReopenContainerLog(w.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	write("three")
	awaitLine(t, log, "stdout F three")
	w.halt(id, 0)
	if diff := cmp.Diff([]string{"stdout F one", "stdout F two"}, logLines(t, log+".1")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"stdout F three"}, logLines(t, log)); diff != "" {
		t.Error(diff)
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	_, err := w.ReopenContainerLog(w.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("reopening the log of a container that ended: %v", err)
	}
	if _, err := os.Stat(log); !os.IsNotExist(err) {
		t.Errorf("a refused reopening made a log: %v", err)
	}
}
