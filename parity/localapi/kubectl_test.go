// Package localapi_test runs an unmodified kubectl and client-go informers against a node that has no API server.
package localapi_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/internal/program"
)

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %[1]s}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: host, command: [sh, -c, "%s"]}
`

// node is a node with the process runtime and without an API server.
type node struct {
	t                    *testing.T
	dir, binary, address string
	agent                *exec.Cmd
	log                  bytes.Buffer
}

func newNode(t *testing.T) *node {
	t.Helper()
	needs.Kubectl(t)
	binary, err := program.Herald(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: t.TempDir(), binary: binary, address: listener.Addr().String()}
	_ = listener.Close()
	if err := os.Mkdir(n.path("manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.write("web", "sleep 1000")
	n.write("crash", "exit 3")
	n.start()
	t.Cleanup(n.clean)
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) write(name, script string) {
	n.t.Helper()
	if err := os.WriteFile(n.path("manifests/"+name+".yaml"), fmt.Appendf(nil, manifest, name, script), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) flags() []string {
	return []string{
		"--node-name=n1", "--runtime=process", "--manifests", n.path("manifests"), "--data-dir", n.path("data"),
		"--kubectl-listen", n.address,
	}
}

func (n *node) start() {
	n.t.Helper()
	n.agent = exec.CommandContext(context.Background(), n.binary, append([]string{"run"}, n.flags()...)...)
	n.agent.Stderr = &n.log
	n.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also if the test is aborted
	if err := n.agent.Start(); err != nil {
		n.t.Fatal(err)
	}
	heraldtest.Eventually(n.t, func() error {
		out, err := exec.CommandContext(n.t.Context(), n.binary, append([]string{"kubeconfig", "--write", n.path("kubeconfig")}, n.flags()...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if out, err := n.kubectl("get", "--raw", "/readyz"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func (n *node) kill() {
	_ = n.agent.Process.Signal(syscall.SIGKILL)
	_ = n.agent.Wait()
}

// clean removes the manifests, waits until the pods have ended, and stops the agent.
func (n *node) clean() {
	n.t.Helper()
	if err := os.RemoveAll(n.path("manifests")); err != nil {
		n.t.Error(err)
	}
	if err := os.Mkdir(n.path("manifests"), 0o755); err != nil {
		n.t.Error(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) { // the test's context has ended
		out, err := n.kubectl("get", "pods", "-A", "-o", "name")
		if err == nil && !strings.Contains(out, "pod/") {
			break
		}
		if time.Now().After(deadline) {
			n.t.Errorf("pods are left: %s (%v)", out, err)
			break
		}
	}
	_ = n.agent.Process.Signal(syscall.SIGTERM)
	_ = n.agent.Wait()
	if n.t.Failed() {
		n.t.Logf("agent:\n%s", n.log.String())
	}
}

func (n *node) kubectl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	args = append([]string{"--kubeconfig", n.path("kubeconfig"), "--cache-dir", n.path("cache")}, args...)
	out, err := exec.CommandContext(ctx, "kubectl", args...).CombinedOutput()
	return string(out), err
}

func TestKubectl(t *testing.T) {
	n := newNode(t)
	for _, object := range []string{"pod/web-n1", "node/n1"} {
		if out, err := n.kubectl("wait", object, "--for=condition=Ready", "--timeout=60s"); err != nil {
			t.Fatalf("wait: %v: %s", err, out)
		}
	}
	heraldtest.Eventually(t, func() error {
		out, _ := n.kubectl("get", "pod", "crash-n1")
		if !strings.Contains(out, "CrashLoopBackOff") {
			return fmt.Errorf("got %s", out)
		}
		return nil
	})
	for _, c := range []struct {
		command, want string // a regular expression
		fails         bool
	}{
		{"get pods", `(?m)^web-n1 +1/1 +Running +0 `, false},
		{"get pods -A -o wide --show-labels", `(?m)^default +web-n1 .* n1 +<none> +<none> +app=web$`, false},
		{"get all -o name", `pod/crash-n1\npod/web-n1`, false},
		{"get pods -l app=web -o name", `^pod/web-n1\n$`, false},
		{"get pods --field-selector metadata.name=web-n1 -o jsonpath={.items[*].status.phase}", `^Running$`, false},
		{"get pods --field-selector spec.image=x", "field label not supported: spec.image", true},
		{"get pods --sort-by=.metadata.name -o custom-columns=N:.metadata.name --no-headers", `^crash-n1\nweb-n1\n$`, false},
		{"get pod web-n1 -o yaml", `(?m)^kind: Pod$`, false},
		{"get pod absent", `pods "absent" not found`, true},
		{"get nodes -o wide", `(?m)^n1 +Ready +<none> .* process://`, false},
		{"get ns", `(?m)^default +Active`, false},
		{"describe pod web-n1", `(?s)Name: +web-n1\n.*Events:.*Started`, false},
		{"describe pod crash-n1", `(?s)Exit Code: +3\n.*BackOff`, false},
		{"describe node n1", `(?s)Name: +n1\n.*Ready +True.*Non-terminated Pods: +\(2 in total\)`, false},
		{"events", `(?m)BackOff +Pod/crash-n1`, false},
		{"events --for pod/web-n1", `Started +Pod/web-n1`, false},
		{"get events --field-selector involvedObject.name=web-n1", `pod/web-n1`, false},
		{"api-resources", `(?m)^pods +po +v1 +true +Pod$`, false},
		{"api-versions", `(?m)^v1$`, false},
		{"version", `Server Version: v1\.36`, false},
		{"explain pod.spec.containers.livenessProbe", `(?s)KIND: +Pod.*failureThreshold\t<integer>`, false},
		{"auth can-i list pods", "^yes", false},
		{"auth can-i delete pods", "^no", true},
		{"auth whoami", "herald:owner", false},
		{"delete pod web-n1", "read-only", true},
		{"run x --image=y", `\(MethodNotAllowed\).*manifests`, true},
		{"label pod web-n1 a=b", "read-only", true},
		{"get deployments", `doesn't have a resource type "deployments"`, true},
		{"wait pod/absent --for=create --timeout=1s", "timed out", true},
	} {
		out, err := n.kubectl(strings.Fields(c.command)...)
		if !regexp.MustCompile(c.want).MatchString(out) || (err != nil) != c.fails {
			t.Errorf("kubectl %s: got %v and\n%swant it to match %s", c.command, err, out, c.want)
		}
	}
	if err := os.WriteFile(n.path("pod.yaml"), fmt.Appendf(nil, manifest, "new", "sleep 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := n.kubectl("apply", "-f", n.path("pod.yaml")); err == nil || !strings.Contains(out, "read-only") {
		t.Errorf("apply: got %v: %s, want the answer that the node is read-only", err, out)
	}
	if out, err := n.kubectl("--token=wrong", "get", "pods"); err == nil || !strings.Contains(out, "logged in") {
		t.Errorf("wrong token: got %v: %s", err, out)
	}
}

func TestKubectl_Watch(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	watching := exec.CommandContext(ctx, "kubectl", "--kubeconfig", n.path("kubeconfig"), "--cache-dir", n.path("cache"),
		"get", "pods", "-w", "-l", "app=late", "-o", "custom-columns=N:.metadata.name,P:.status.phase,D:.metadata.deletionTimestamp")
	output := n.path("watch.txt")
	file, err := os.Create(output)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	watching.Stdout = file
	if err := watching.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = watching.Wait()
	}()
	n.write("late", "sleep 1000")
	await := func(want string) {
		t.Helper()
		heraldtest.Eventually(t, func() error {
			content, err := os.ReadFile(output)
			if err != nil || !regexp.MustCompile(want).Match(content) {
				return fmt.Errorf("got %s (%w), want %s", content, err, want)
			}
			return nil
		})
	}
	await(`late-n1 +Running`)
	if out, err := n.kubectl("wait", "pod/late-n1", "--for=condition=Ready"); err != nil {
		t.Fatalf("wait: %v: %s", err, out)
	}
	if err := os.Remove(n.path("manifests/late.yaml")); err != nil {
		t.Fatal(err)
	}
	if out, err := n.kubectl("wait", "pod/late-n1", "--for=delete", "--timeout=60s"); err != nil {
		t.Errorf("wait for deletion: %v: %s", err, out)
	}
}

// A client-go informer knows the node's pods, also after the agent was killed and restarted.
func TestInformer_AgentRestart(t *testing.T) {
	n := newNode(t)
	config, err := clientcmd.BuildConfigFromFlags("", n.path("kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(config), 0)
	pods := factory.Core().V1().Pods().Informer()
	nodes := factory.Core().V1().Nodes().Informer()
	ctx, cancel := context.WithCancel(t.Context())
	defer factory.Shutdown()
	defer cancel()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced, nodes.HasSynced) {
		t.Fatal("informers did not sync")
	}
	awaitPods := func(want ...string) {
		t.Helper()
		heraldtest.Eventually(t, func() error {
			ready := map[string]bool{}
			for _, obj := range pods.GetStore().List() {
				pod := obj.(*v1.Pod)
				ready[pod.Name] = pod.Status.Phase == v1.PodRunning
			}
			for _, name := range want {
				if !ready[name] {
					return fmt.Errorf("got %v, want %v", ready, want)
				}
			}
			if len(ready) != len(want) {
				return fmt.Errorf("got %v, want %v", ready, want)
			}
			return nil
		})
	}
	awaitPods("web-n1", "crash-n1")
	if nodes.GetStore().ListKeys()[0] != "n1" {
		t.Errorf("got nodes %v, want n1", nodes.GetStore().ListKeys())
	}
	n.kill()
	if err := os.Remove(n.path("manifests/crash.yaml")); err != nil {
		t.Fatal(err)
	}
	n.write("late", "sleep 1000")
	n.start()
	awaitPods("web-n1", "late-n1")
	list, err := kubernetes.NewForConfigOrDie(config).CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("got %d pods and %v, want 2", len(list.Items), err)
	}
}
