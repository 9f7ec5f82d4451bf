package agent_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/heraldtest/runtimesuite"
	"github.com/heraldnode/herald/podid"
)

// machineVariable names the machine of which this program is to be the agent, as one that can be killed.
const machineVariable = "HERALD_TEST_MACHINE"

func runAgentOfMachine() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	a, err := machine(os.Getenv(machineVariable)).assemble()
	if err == nil {
		err = a.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// site is a machine that runs as long as its test.
type site struct {
	*testing.T
	machine
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &site{t, machine(dir)}
	if err := os.Mkdir(s.path("manifests"), 0o700); err != nil {
		t.Fatal(err)
	}
	server, err := s.newServer()
	if err != nil {
		t.Fatal(err)
	}
	s.background("the runtime", server.Run)
	s.Cleanup(s.endAll)
	return s
}

// endAll leaves no process behind, also when the test went wrong.
func (s *site) endAll() {
	client, err := cri.New(cri.Config{
		Endpoint: "unix://" + s.path("cri.sock"), Provisioner: runtimesuite.Provision{}, Root: s.path("pods"), LogDir: s.path("logs"),
	})
	if err != nil {
		s.Error(err)
		return
	}
	defer func() { _ = client.Close() }()
	pods, err := client.ListPods(context.Background())
	if err != nil {
		s.Error(err)
	}
	for _, p := range pods {
		for _, sandbox := range p.Sandboxes {
			if err := client.StopSandbox(context.Background(), sandbox.ID); err != nil {
				s.Error(err)
			}
		}
	}
}

// background runs something until the test ends.
func (s *site) background(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	s.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Errorf("%s: %v", name, err)
		}
	})
}

// write puts a manifest in its place: a pod with one container that runs the script.
func (s *site) write(name, policy, script string) {
	s.Helper()
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"hostNetwork":true,`+
		`"restartPolicy":%q,"terminationGracePeriodSeconds":1,`+
		`"containers":[{"name":"main","image":"host","command":["/bin/sh","-c",%q]}]}}`, name, policy, script)
	if err := os.WriteFile(s.path("manifests/"+name+".json"), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

func (s *site) remove(names ...string) {
	s.Helper()
	for _, name := range names {
		if err := os.Remove(s.path("manifests/" + name + ".json")); err != nil {
			s.Fatal(err)
		}
	}
}

// eventually waits until it is so.
func (s *site) eventually(what string, isSo func() bool) {
	s.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for range 2000 {
		if isSo() {
			return
		}
		<-again.C
	}
	s.Fatalf("%s: not so after 20 s", what)
}

// held are the names of the pods of which the runtime still has something.
func (a *assembly) held() []string {
	pods, err := a.runtime.ListPods(context.Background())
	if err != nil {
		return []string{err.Error()}
	}
	names := make([]string, 0, len(pods))
	for _, p := range pods {
		names = append(names, strings.TrimSuffix(p.Name.Name, "-"+nodeName))
	}
	slices.Sort(names)
	return names
}

func (a *assembly) status(name string) v1.PodStatus {
	p, found := a.Pods.GetPodByFullName(podid.FullName{Namespace: "default", Name: name + "-" + nodeName})
	if !found {
		return v1.PodStatus{}
	}
	status, _ := a.Statuses.GetPodStatus(p.UID)
	return status
}

func (a *assembly) container(name string) v1.ContainerStatus {
	if containers := a.status(name).ContainerStatuses; len(containers) == 1 {
		return containers[0]
	}
	return v1.ContainerStatus{}
}

const (
	waits    = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
	stubborn = "trap '' TERM; while :; do sleep 0.05; done"
)

func TestPodsRunAsProcesses(t *testing.T) {
	s := newSite(t)
	a, err := s.assemble()
	if err != nil {
		t.Fatal(err)
	}
	s.background("the agent", a.run)
	s.write("web", "Always", waits)
	s.write("stubborn", "Always", stubborn)
	s.write("job", "Never", `printf 'no such table' >"$HERALD_TERMINATION_LOG"; exit 3`)
	s.write("crash", "Always", "exit 1")

	s.eventually("web runs", func() bool { return a.status("web").Phase == v1.PodRunning && a.container("web").Ready })
	s.eventually("job failed with its code and words", func() bool {
		end := a.container("job").State.Terminated
		return a.status("job").Phase == v1.PodFailed && end != nil && end.ExitCode == 3 && end.Message == "no such table"
	})
	s.eventually("crash waits ten seconds", func() bool {
		c := a.container("crash")
		return c.RestartCount == 1 && c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff" &&
			strings.HasPrefix(c.State.Waiting.Message, "back-off 10s ")
	})
	if err := a.Healthy(); err != nil {
		t.Errorf("the agent is not healthy: %v", err)
	}
	s.eventually("stubborn runs", func() bool { return a.status("stubborn").Phase == v1.PodRunning })
	s.remove("web", "stubborn", "job", "crash")
	s.eventually("all are gone", func() bool { return len(a.held()) == 0 })
}

// spawn starts an agent as a process of its own.
func (s *site) spawn() *exec.Cmd {
	s.Helper()
	program, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	command := exec.CommandContext(s.Context(), program)
	command.Env = append(os.Environ(), machineVariable+"="+string(s.machine))
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		s.Fatal(err)
	}
	return command
}

func (s *site) lines(file string) int {
	text, err := os.ReadFile(s.path(file))
	if err != nil {
		return 0
	}
	return strings.Count(string(text), "\n")
}

func TestPW53AnAgentThatIsKilledLeavesItsContainersToTheNext(t *testing.T) {
	s := newSite(t)
	pods := []string{"a", "b", "c", "d", "e"}
	for _, name := range pods {
		killed := s.spawn()
		s.write(name, "Always", "echo started >>"+s.path(name+".starts")+"; "+waits)
		s.eventually(name+" was started", func() bool { return s.lines(name+".starts") > 0 }) // who did it may not know yet
		if err := killed.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = killed.Wait()
	}
	last := s.spawn()
	s.write("z", "Always", "echo started >>"+s.path("z.starts")+"; "+waits)
	s.eventually("the last agent works", func() bool { return s.lines("z.starts") == 1 })
	s.remove(append(pods, "z")...)
	s.eventually("all pods were ended", func() bool {
		logs, err := os.ReadDir(s.path("logs"))
		return err == nil && len(logs) == 0
	})
	for _, name := range pods {
		if starts := s.lines(name + ".starts"); starts != 1 {
			t.Errorf("%s was started %d times", name, starts)
		}
	}
	if err := last.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := last.Wait(); err != nil {
		t.Errorf("the agent that was asked to end: %v", err)
	}
}
