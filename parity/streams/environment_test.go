// Package streams_test runs kubectl's exec, attach, cp, port-forward, debug and run against `herald run`: real kube-apiserver, containerd and
// kubectl. Each is tried with both of kubectl's clients, web sockets and SPDY. It runs on the installed containerd, and with CONTAINERD=2
// on 2.x.
package streams_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

const (
	nodeName  = "streams"
	namespace = "streams"
	// shellImage has one program, busybox, which install links to its names.
	shellImage = "heraldnode.test/busybox:1"
	install    = "/busybox mkdir -p /bin /tmp && /busybox --install -s /bin && export PATH=/bin && "
	// hangTimeout ends a command that hangs.
	hangTimeout = 5 * time.Minute
)

// clients are kubectl's two, with the environment variables that choose them.
var clients = map[string]string{"web socket": "true", "SPDY": "false"}

// node is a node with one agent.
type node struct {
	*recorder.Recorder
	t          *testing.T
	cluster    *recorder.Cluster
	containerd *containerd.Containerd
	agent      *agents.Agent
	program    string // path of herald
}

func newNode(t *testing.T) *node {
	t.Helper()
	needs.Containers(t)
	needs.Kubectl(t)
	busybox := needs.Busybox(t)
	programDir := t.TempDir()
	herald, err := agents.BuildHerald(t.Context(), programDir)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, cluster: recorder.ForTest(t), containerd: containerd.ForTest(t), program: filepath.Join(programDir, "herald")}
	if err := n.containerd.ImportImage(t.Context(), shellImage, busybox); err != nil {
		t.Fatal(err)
	}
	address, err := n.containerd.HostIP()
	if err != nil {
		t.Fatal(err)
	}
	n.agent, err = herald.NewAgent(agents.Config{
		ControlPlane: n.cluster.ControlPlane, Containerd: n.containerd, NodeName: nodeName, NodeIP: address, Address: address,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	core := recorder.NewClient(t, n.cluster.AdminConfig()).CoreV1()
	_, namespaceErr := core.Namespaces().Create(
		t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	_, accountErr := core.ServiceAccounts(namespace).Create(
		t.Context(), &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err := errors.Join(namespaceErr, accountErr); err != nil {
		t.Fatal(err)
	}
	n.Recorder = recorder.Watch(t, n.cluster, nodeName, namespace)
	n.start()
	return n
}

func (n *node) start() {
	n.t.Helper()
	if err := n.agent.Start(n.t.Context()); err != nil {
		_ = n.agent.Kill() // it may have exited on its own
		n.t.Fatal(err)
	}
}

func (n *node) close() {
	if n.t.Failed() {
		n.t.Logf("end of the log:\n%s", n.agent.LogTail())
	}
	_ = n.agent.Stop() // a test may have stopped it
	if err := errors.Join(n.containerd.Close(), n.agent.RemoveCgroups()); err != nil {
		n.t.Error(err)
	}
}

// createPod creates a pod whose container runs a script of the shell, and waits until it runs or has ended.
func (n *node) createPod(name, script string, change ...func(*v1.Pod)) {
	n.t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{
			NodeName: nodeName, TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []v1.Container{{
				Name: "main", Image: shellImage, ImagePullPolicy: v1.PullNever, Command: []string{"/busybox", "sh", "-c", install + script},
				ReadinessProbe: &v1.Probe{
					ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/bin/true"}}},
					PeriodSeconds: 1, TimeoutSeconds: 30,
				},
			}},
		},
	}
	for _, apply := range change {
		apply(pod)
	}
	if _, err := n.Admin.CoreV1().Pods(namespace).Create(n.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	n.Await(name, "ready or succeeded", func(pod *v1.Pod) bool {
		return pod.Status.Phase == v1.PodSucceeded || recorder.PodCondition(&pod.Status, v1.PodReady).Status == v1.ConditionTrue
	})
}

// kubectl returns a command that has not been started.
func (n *node) kubectl(ctx context.Context, client string, args ...string) *exec.Cmd {
	args = append([]string{"--kubeconfig", n.cluster.AdminKubeconfig(), "-n", namespace}, args...)
	command := exec.CommandContext(ctx, "kubectl", args...)
	command.Env = append(os.Environ(),
		"KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+clients[client], "KUBECTL_PORT_FORWARD_WEBSOCKETS="+clients[client],
		"HOME="+filepath.Dir(n.cluster.AdminKubeconfig()))
	command.WaitDelay = time.Minute
	return command
}

// result is how a command ended.
type result struct {
	stdout, stderr string
	code           int
}

// run runs kubectl to its end.
func (n *node) run(t *testing.T, client string, stdin io.Reader, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	command := n.kubectl(ctx, client, args...)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = stdin, &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return result{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}
