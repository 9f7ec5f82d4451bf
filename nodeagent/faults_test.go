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

// mute is a way to an API server that can be made to swallow every write about pods.
type mute struct {
	http.RoundTripper
	swallows atomic.Bool
}

func (m *mute) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && strings.Contains(request.URL.Path, "/pods/") && m.swallows.Load() {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	return m.RoundTripper.RoundTrip(request)
}

func TestF16AnAgentThatIsStoppedWhileTheServerHangsEndsAndTellsLater(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddNode("n1")
	way := &mute{RoundTripper: server.Transport()}
	config := alone(t)
	config.API, config.AllowAPIPods, config.MaxPods = server.Config(), true, 2
	config.API.Transport = way
	life := filepath.Join(t.TempDir(), "pid")
	for name, script := range map[string]string{"job": "true", "web": "echo $$$$ > " + life + "; exec sleep 1000"} {
		server.AddPod(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
			Spec: v1.PodSpec{NodeName: "n1", HostNetwork: true, RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{
				Name: "main", Image: "host", Command: []string{"sh", "-c", script},
			}}},
		})
	}
	job := podid.FullName{Namespace: "shop", Name: "job"}
	way.swallows.Store(true)
	run(t, config, func(n *nodeagent.Node) { // returns when Run has, whatever the server does
		eventually(t, "the node knows that the job is done, and the other runs", func() bool {
			phases := map[v1.PodPhase]int{}
			for _, p := range n.Agent.LocalPods() {
				phases[p.Status.Phase]++
			}
			return phases[v1.PodSucceeded] == 1 && phases[v1.PodRunning] == 1
		})
	})
	pid := pidIn(t, life)
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the container did not outlive the agent: %v", err)
	}
	if phase := server.Pod(job).Status.Phase; phase == v1.PodSucceeded {
		t.Fatal("the server was told although it hangs")
	}
	way.swallows.Store(false)
	run(t, config, func(*nodeagent.Node) {
		eventually(t, "the next agent tells it", func() bool { return server.Pod(job).Status.Phase == v1.PodSucceeded })
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

func pidIn(t *testing.T, file string) (pid int) {
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

// poorVariable has this program be an agent with next to nothing, on the folders that it names.
const poorVariable = "HERALD_TEST_POOR_AGENT"

func TestF28AnAgentWithNextToNothingGoesOn(t *testing.T) {
	config := alone(t, job, strings.NewReplacer("name: job", "name: web", `["true"]`, `["sleep", "1000"]`,
		"hostNetwork: true", "hostNetwork: true\n  terminationGracePeriodSeconds: 1").Replace(job))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	poor := exec.CommandContext(ctx, os.Args[0])
	poor.Env = append(os.Environ(), "GOMAXPROCS=1", "GOMEMLIMIT=24MiB",
		poorVariable+"="+config.DataDir+":"+config.StaticPodPath)
	if output, err := poor.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// poorAgent is what the child of the test above does. It returns what went wrong.
func poorAgent(folders string) error {
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
	err = poorLife(n, manifests)
	stop()
	if ending := <-ended; err == nil {
		err = ending
	}
	return err
}

func poorLife(n *nodeagent.Node, manifests string) error {
	if !soon(n, "job Succeeded, web Running") {
		return fmt.Errorf("at first: %s", phases(n))
	}
	spent, err := withoutDescriptors(2 * time.Second)
	if err != nil {
		return err
	}
	if spent > time.Second {
		return fmt.Errorf("without descriptors the agent worked for %v in 2 s", spent)
	}
	late := strings.Replace(job, "name: job", "name: late", 1)
	if err := os.WriteFile(filepath.Join(manifests, "c.yaml"), []byte(late), 0o600); err != nil {
		return err
	}
	if !soon(n, "job Succeeded, late Succeeded, web Running") {
		return fmt.Errorf("after a time without descriptors: %s", phases(n))
	}
	for _, file := range []string{"a.yaml", "b.yaml", "c.yaml"} {
		if err := os.Remove(filepath.Join(manifests, file)); err != nil {
			return err
		}
	}
	if !soon(n, "") {
		return fmt.Errorf("in the end: %s", phases(n))
	}
	return nil
}

// withoutDescriptors takes all that there are for a time, and returns how long this process worked meanwhile.
func withoutDescriptors(pause time.Duration) (time.Duration, error) {
	for {
		hog, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		defer syscall.Close(hog)
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

func soon(n *nodeagent.Node, want string) bool {
	for limit := time.Now().Add(30 * time.Second); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		if phases(n) == want {
			return true
		}
	}
	return false
}

// phases are the pods with their phases, by name.
func phases(n *nodeagent.Node) string {
	var all []string
	for _, p := range n.Agent.LocalPods() {
		name, _, _ := strings.Cut(p.Name, "-")
		all = append(all, name+" "+string(p.Status.Phase))
	}
	return strings.Join(all, ", ")
}
