package nodeagent_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/podid"
)

// hangingTransport can be set to never answer a write of a pod.
type hangingTransport struct {
	http.RoundTripper
	hangs atomic.Bool
}

func (h *hangingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && strings.Contains(request.URL.Path, "/pods/") && h.hangs.Load() {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	return h.RoundTripper.RoundTrip(request)
}

func TestF16_StopWhileServerHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the flush timeout in real time")
	}
	server := heraldtest.NewAPIServer()
	server.AddNode("n1")
	transport := &hangingTransport{RoundTripper: server.Transport()}
	config := newConfig(t)
	config.API, config.AllowAPIPods, config.MaxPods = server.Config(), true, 2
	config.API.Transport = transport
	pidFile := filepath.Join(t.TempDir(), "pid")
	for name, script := range map[string]string{"job": "true", "web": "echo $$$$ > " + pidFile + "; exec sleep 1000"} {
		server.AddPod(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
			Spec: v1.PodSpec{NodeName: "n1", HostNetwork: true, RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{
				Name: "main", Image: "host", Command: []string{"sh", "-c", script},
			}}},
		})
	}
	job := podid.FullName{Namespace: "shop", Name: "job"}
	transport.hangs.Store(true)
	run(t, config, func(n *nodeagent.NodeAgent) { // run returns although the server hangs
		eventually(t, "the local statuses", func() bool {
			phases := map[v1.PodPhase]int{}
			for _, p := range n.Agent.LocalPods() {
				phases[p.Status.Phase]++
			}
			return phases[v1.PodSucceeded] == 1 && phases[v1.PodRunning] == 1
		})
	})
	pid := readPID(t, pidFile)
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("container did not outlive the agent: %v", err)
	}
	if phase := server.Pod(job).Status.Phase; phase == v1.PodSucceeded {
		t.Fatal("the status was stored although the server hangs")
	}
	transport.hangs.Store(false)
	run(t, config, func(*nodeagent.NodeAgent) {
		eventually(t, "the next agent to send the status", func() bool { return server.Pod(job).Status.Phase == v1.PodSucceeded })
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

func readPID(t *testing.T, file string) (pid int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

// constrainedVariable makes the test binary run a constrained agent on the directories that it names.
const constrainedVariable = "HERALD_TEST_CONSTRAINED_AGENT"

func TestF28_ConstrainedAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an agent in real time")
	}
	config := newConfig(t, job, strings.NewReplacer("name: job", "name: web", `["true"]`, `["sleep", "1000"]`,
		"hostNetwork: true", "hostNetwork: true\n  terminationGracePeriodSeconds: 1").Replace(job))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	constrained := exec.CommandContext(ctx, os.Args[0])
	constrained.Env = append(os.Environ(), "GOMAXPROCS=1", "GOMEMLIMIT=24MiB",
		constrainedVariable+"="+config.DataDir+":"+config.StaticPodPath)
	if output, err := constrained.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// runConstrained runs the child process of TestF28_ConstrainedAgent.
func runConstrained(folders string) error {
	const descriptors = 64
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: descriptors, Max: descriptors}); err != nil {
		return err
	}
	data, manifests, _ := strings.Cut(folders, ":")
	n, err := nodeagent.New(nodeagent.Config{
		NodeName: "n1", DataDir: data, StaticPodPath: manifests, Runtime: nodeagent.RuntimeProcess,
		FileCheckFrequency: time.Second,
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	err = checkConstrained(n, manifests)
	stop()
	if runErr := <-ended; err == nil {
		err = runErr
	}
	return err
}

func checkConstrained(n *nodeagent.NodeAgent, manifests string) error {
	if !hasPhases(n, "job Succeeded, web Running") {
		return fmt.Errorf("at start: %s", phases(n))
	}
	used, err := withoutDescriptors(2 * time.Second)
	if err != nil {
		return err
	}
	if used > time.Second {
		return fmt.Errorf("agent used %v of CPU in 2s without descriptors", used)
	}
	added := strings.Replace(job, "name: job", "name: added", 1)
	if err := os.WriteFile(filepath.Join(manifests, "c.yaml"), []byte(added), 0o600); err != nil {
		return err
	}
	if !hasPhases(n, "added Succeeded, job Succeeded, web Running") {
		return fmt.Errorf("after descriptors were exhausted: %s", phases(n))
	}
	for _, file := range []string{"a.yaml", "b.yaml", "c.yaml"} {
		if err := os.Remove(filepath.Join(manifests, file)); err != nil {
			return err
		}
	}
	if !hasPhases(n, "") {
		return fmt.Errorf("at the end: %s", phases(n))
	}
	return nil
}

// withoutDescriptors uses up all descriptors for a while and returns the CPU time that the process used meanwhile.
func withoutDescriptors(pause time.Duration) (time.Duration, error) {
	for {
		descriptor, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		defer syscall.Close(descriptor)
	}
	var before, after syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		return 0, err
	}
	time.Sleep(pause)
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
		return 0, err
	}
	return time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()), nil
}

func hasPhases(n *nodeagent.NodeAgent, want string) bool {
	for limit := time.Now().Add(30 * time.Second); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		if phases(n) == want {
			return true
		}
	}
	return false
}

// phases returns the pods with their phases, by name.
func phases(n *nodeagent.NodeAgent) string {
	var all []string
	for _, p := range n.Agent.LocalPods() {
		name, _, _ := strings.Cut(p.Name, "-")
		all = append(all, name+" "+string(p.Status.Phase))
	}
	return strings.Join(all, ", ")
}
