// Package logs_test reads logs with kubectl through a real kube-apiserver from a real Herald on containerd: the installed one, and with
// CONTAINERD=2 on 2.x.
package logs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

const (
	nodeName  = "logging"
	namespace = "logs"
	// lines is what the counter prints in about 35 seconds: logs are checked every 10 seconds, and rotated if they have 16 KiB.
	lines = 1400
)

// node is a node of Herald with small logs.
type node struct {
	*recorder.Recorder
	t       *testing.T
	cluster *recorder.Cluster
	agent   *agents.Agent
}

func newNode(t *testing.T) *node {
	t.Helper()
	needs.Containers(t)
	needs.Kubectl(t)
	herald, err := agents.BuildHerald(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, cluster: recorder.ForTest(t)}
	runtime := containerd.ForTest(t)
	address, err := runtime.HostIP()
	if err != nil {
		t.Fatal(err)
	}
	n.agent, err = herald.NewAgent(agents.Config{
		ControlPlane: n.cluster.ControlPlane, Containerd: runtime, NodeName: nodeName, NodeIP: address, Address: address,
		HeraldConfig: `containerLogMaxSize: "16Ki"`,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log:\n%s", n.agent.LogTail())
		}
		if err := errors.Join(n.agent.Stop(), runtime.Close(), n.agent.RemoveCgroups()); err != nil {
			t.Error(err)
		}
	})
	core, ctx := recorder.NewClient(t, n.cluster.AdminConfig()).CoreV1(), t.Context()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	_, err = core.Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: meta(namespace)}, metav1.CreateOptions{})
	_, accountErr := core.ServiceAccounts(namespace).Create(ctx, &v1.ServiceAccount{ObjectMeta: meta("default")}, metav1.CreateOptions{})
	if err := errors.Join(err, accountErr, n.agent.Start(ctx)); err != nil {
		t.Fatal(err)
	}
	n.Recorder = recorder.Watch(t, n.cluster, nodeName, namespace)
	return n
}

func newContainer(name string, args ...string) v1.Container {
	return v1.Container{
		Name: name, Image: containerd.TestpodImage, ImagePullPolicy: v1.PullIfNotPresent, Command: append([]string{"/testpod"}, args...),
	}
}

func (n *node) create(name string, change func(*v1.PodSpec), containers ...v1.Container) {
	n.t.Helper()
	pod := heraldtest.NewPod(name, heraldtest.WithContainers(containers...), func(pod *v1.Pod) {
		pod.Namespace, pod.UID = "", ""
		pod.Spec.NodeName, pod.Spec.ServiceAccountName = nodeName, "default"
		pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
		if change != nil {
			change(&pod.Spec)
		}
	})
	if _, err := n.Admin.CoreV1().Pods(namespace).Create(n.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func neverRestart(spec *v1.PodSpec) { spec.RestartPolicy = v1.RestartPolicyNever }

// kubectl starts 'kubectl logs' with these arguments.
func (n *node) start(ctx context.Context, args ...string) (command *exec.Cmd, output *bytes.Buffer) {
	args = append([]string{"--kubeconfig", n.cluster.AdminKubeconfig(), "-n", namespace, "logs"}, args...)
	command, output = exec.CommandContext(ctx, "kubectl", args...), &bytes.Buffer{}
	command.Stdout, command.Stderr = output, output
	if err := command.Start(); err != nil {
		n.t.Fatal(err)
	}
	return command, output
}

// logs returns the output of 'kubectl logs', also if it fails.
func (n *node) logs(args ...string) string {
	n.t.Helper()
	command, output := n.start(n.t.Context(), args...)
	_ = command.Wait()
	return output.String()
}

// numbers returns what the counter prints from one number to another.
func numbers(from, to int) string {
	var text strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&text, "%059d\n", i)
	}
	return text.String()
}

func isRunning(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodRunning }

func isSucceeded(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodSucceeded }

func (n *node) check(t *testing.T, want string, args ...string) {
	t.Helper()
	if got := n.logs(args...); got != want {
		t.Errorf("kubectl logs %v: got %s, want %s", args, abridge(got), abridge(want))
	}
}

func abridge(text string) string {
	if len(text) <= 400 {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q ... %q (%d bytes)", text[:200], text[len(text)-200:], len(text))
}

func (n *node) logDir(pod *v1.Pod) string {
	return filepath.Join(n.agent.LogsDir(), namespace+"_"+pod.Name+"_"+string(pod.UID), "main")
}

func TestKubectlLogs(t *testing.T) {
	n := newNode(t)
	n.create("counter", neverRestart, newContainer("main", "count", fmt.Sprint(lines), "--every", "25ms"))
	n.create("crashing", nil, newContainer("main", "exit", "1", "--print", "crashed"))
	n.create("no-image", func(spec *v1.PodSpec) { spec.Containers[0].Image = "127.0.0.1:1/absent:1" }, newContainer("main", "pause"))
	n.create("initializing", func(spec *v1.PodSpec) {
		spec.InitContainers = []v1.Container{newContainer("first", "pause")}
	}, newContainer("main", "pause"))
	n.create("long", nil, newContainer("main", "count", "1000000", "--every", "25ms"))

	n.Await("counter", "running", isRunning)
	follower, followed := n.start(t.Context(), "-f", "counter")
	t.Run("LOG-12 instances", func(t *testing.T) { n.checkInstances(t) })
	t.Run("LOG-13 waiting", func(t *testing.T) { n.checkWaiting(t) })
	counter := n.Await("counter", "succeeded", isSucceeded)
	if err := follower.Wait(); err != nil {
		t.Errorf("kubectl logs -f: %v", err)
	}
	if got, want := followed.String(), numbers(1, lines); got != want {
		t.Errorf("kubectl logs -f over rotations: got %s, want all lines once: %s", abridge(got), abridge(want))
	}
	rotated, err := filepath.Glob(n.logDir(counter) + "/0.log.*")
	if err != nil || len(rotated) == 0 {
		t.Errorf("got rotated logs %v (%v), want some", rotated, err)
	}
	t.Run("options", func(t *testing.T) { n.checkOptions(t) })
	t.Run("restart of the agent", func(t *testing.T) { n.checkRestart(t) })
	t.Run("LOG-30 planted link", func(t *testing.T) { n.checkPlanted(t, counter) })
}

// checkOptions reads the log of the counter, which has ended.
func (n *node) checkOptions(t *testing.T) {
	n.check(t, numbers(lines-2, lines), "counter", "--tail", "3")
	n.check(t, numbers(lines-599, lines), "counter", "--tail", "600") // in several files
	n.check(t, "", "counter", "--tail", "0")
	n.check(t, numbers(lines, lines)[:10], "counter", "--tail", "1", "--limit-bytes", "10")
	stamped := n.logs("counter", "--tail", "2", "--timestamps")
	form := regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d{9}\S* 0*` + fmt.Sprint(lines-1) + `\n\S+ 0*` + fmt.Sprint(lines) + `\n$`)
	if !form.MatchString(stamped) {
		t.Fatalf("--timestamps: got %q", stamped)
	}
	since := n.logs("counter", "--since", "1h")
	if !strings.HasSuffix(numbers(1, lines), since) || len(since) < len(numbers(1, 600)) {
		t.Errorf("--since 1h: got %s, want also what is in rotated files", abridge(since))
	}
	first, _, _ := strings.Cut(n.logs("counter", "--tail", "500", "--timestamps"), " ")
	at, err := time.Parse(time.RFC3339Nano, first)
	if err != nil {
		t.Fatal(err)
	}
	since = n.logs("counter", "--since-time", at.Format(time.RFC3339)) // whole seconds
	if !strings.HasSuffix(since, numbers(lines-499, lines)) || len(since) > len(numbers(1, 500+100)) {
		t.Errorf("--since-time: got %s, want the last 500 lines and those of the same second", abridge(since))
	}
}

func (n *node) checkInstances(t *testing.T) {
	n.check(t, `Error from server (BadRequest): previous terminated container "main" in pod "counter" not found`+"\n", "counter", "-p")
	pod := n.Await("crashing", "restarted", func(pod *v1.Pod) bool {
		return len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].RestartCount > 0
	})
	n.check(t, "crashed\n", "crashing", "-p")
	n.check(t, "crashed\n", pod.Name)
	if got := n.logs("crashing", "-c", "other"); !strings.Contains(got, "container other is not valid for pod crashing") {
		t.Errorf("unknown container: got %q", got)
	}
}

func (n *node) checkWaiting(t *testing.T) {
	n.Await("initializing", "first container runs", func(pod *v1.Pod) bool {
		statuses := pod.Status.InitContainerStatuses
		return len(statuses) > 0 && statuses[0].State.Running != nil
	})
	n.check(t, `Error from server (BadRequest): container "main" in pod "initializing" is waiting to start: PodInitializing`+"\n",
		"initializing", "-c", "main")
	n.Await("no-image", "image cannot be pulled", func(pod *v1.Pod) bool {
		statuses := pod.Status.ContainerStatuses
		return len(statuses) > 0 && statuses[0].State.Waiting != nil && strings.Contains(statuses[0].State.Waiting.Reason, "Image")
	})
	pull := regexp.MustCompile(`^Error from server \(BadRequest\): container "main" in pod "no-image" is waiting to start: ` +
		`(image can't be pulled|trying and failing to pull image)\n$`)
	if got := n.logs("no-image"); !pull.MatchString(got) {
		t.Errorf("image that cannot be pulled: got %q", got)
	}
}

// checkRestart restarts the agent while a log is followed. The client gets a part of the log, without an error in it, and can go on
// where it ended.
func (n *node) checkRestart(t *testing.T) {
	n.Await("long", "running", isRunning)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follower, followed := n.start(ctx, "-f", "long", "--tail", "20")
	time.Sleep(2 * time.Second) // somewhere in the middle; nothing depends on it
	if err := n.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	_ = follower.Wait()
	before := regexp.MustCompile(`(?m)^\d{59}$`).FindAllString(followed.String(), -1)
	t.Logf("the client ended with %v and %d lines; the last line is %q", follower.ProcessState, len(before), lastLine(followed.String()))
	if err := n.agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	heraldtest.Eventually(t, func() error { // the Node was Ready all the time
		if got := n.logs("long", "--tail", "1"); len(got) != len(numbers(1, 1)) {
			return fmt.Errorf("after the restart: got %q", got)
		}
		return nil
	})
	for i := 1; i < len(before); i++ {
		last, lastErr := strconv.Atoi(before[i-1])
		next, err := strconv.Atoi(before[i])
		if errors.Join(err, lastErr) != nil || next != last+1 {
			t.Fatalf("got line %s after %s", before[i], before[i-1])
		}
	}
	follower, _ = n.start(ctx, "-f", "long", "--limit-bytes", "6000")
	if err := follower.Wait(); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

func lastLine(text string) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return all[len(all)-1]
}

// checkPlanted replaces the log by a link, as a pod can that mounts /var/log, and then removes it.
func (n *node) checkPlanted(t *testing.T, pod *v1.Pod) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("2026-01-02T12:00:00Z stdout F secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := n.logDir(pod) + "/0.log"
	if err := errors.Join(os.Remove(log), os.Symlink(secret, log)); err != nil {
		t.Fatal(err)
	}
	refused := regexp.MustCompile(`^Error from server \(BadRequest\): unable to retrieve container logs for containerd://[0-9a-f]{64}: (.+)\n$`)
	check := func(want string) {
		t.Helper()
		if got := refused.FindStringSubmatch(n.logs("counter")); len(got) != 2 || got[1] != want {
			t.Errorf("LOG-14: got %q, want %q", got, want)
		}
	}
	check("not a log: a link, or not a regular file")
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	check("its log file is gone")
}
