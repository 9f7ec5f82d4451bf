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
	"slices"
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
  hostNetwork: %[3]v
  terminationGracePeriodSeconds: 1
  containers:
  - %[2]s
`

// node is a node without an API server, with the process runtime unless the test chooses another.
type node struct {
	t                    *testing.T
	dir, binary, address string
	client               string   // the path of kubectl
	runtime              []string // flags
	agent                *exec.Cmd
	log                  bytes.Buffer
}

// withKubectls runs a test with a new node for each kubectl: the machine's, and that of the Kubernetes version in go.mod.
func withKubectls(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	for name, find := range map[string]func(t *testing.T) string{"installed": installedKubectl, "built": builtKubectl} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, find(t))
			if out, err := n.kubectl("version", "--client"); err != nil {
				t.Errorf("version: %v: %s", err, out)
			} else {
				t.Log(strings.TrimSpace(out))
			}
			test(t, n)
		})
	}
}

func installedKubectl(t *testing.T) string {
	t.Helper()
	needs.Kubectl(t)
	path, err := exec.LookPath("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func builtKubectl(t *testing.T) string {
	t.Helper()
	path, _, err := program.Kubectl(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func newNode(t *testing.T, client string) *node {
	t.Helper()
	n := newUnstartedNode(t, client)
	n.write("web", "sleep 1000")
	n.write("crash", "exit 3")
	n.start()
	t.Cleanup(n.clean)
	return n
}

func newUnstartedNode(t *testing.T, client string) *node {
	t.Helper()
	binary, err := program.Herald(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{
		t: t, dir: t.TempDir(), binary: binary, client: client, address: listener.Addr().String(), runtime: []string{"--runtime=process"},
	}
	_ = listener.Close()
	if err := os.Mkdir(n.path("manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) write(name, script string) {
	n.t.Helper()
	n.writeManifest(name, fmt.Sprintf(`{name: main, image: host, command: [sh, -c, "%s"]}`, script))
}

// writeManifest writes the manifest of a pod with a container. Host processes have the host's network.
func (n *node) writeManifest(name, container string) {
	n.t.Helper()
	isProcess := slices.Contains(n.runtime, "--runtime=process")
	n.writeFile("manifests/"+name+".yaml", fmt.Sprintf(manifest, name, container, isProcess))
}

func (n *node) writeFile(name, content string) {
	n.t.Helper()
	if err := os.WriteFile(n.path(name), []byte(content), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) flags() []string {
	return append([]string{
		"--node-name=n1", "--manifests", n.path("manifests"), "--data-dir", n.path("data"), "--kubectl-listen", n.address,
	}, n.runtime...)
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

// command returns a kubectl whose editor changes labels.
func (n *node) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, n.client, append([]string{"--kubeconfig", n.path("kubeconfig"), "--cache-dir", n.path("cache")}, args...)...)
	cmd.Dir = n.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+n.dir, "KUBE_EDITOR=sed -i s/app:/changed:/")
	return cmd
}

func (n *node) kubectl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := n.command(ctx, args...).CombinedOutput()
	return string(out), err
}

func TestKubectl_Watch(t *testing.T) {
	withKubectls(t, func(t *testing.T, n *node) {
		const columns = "custom-columns=N:.metadata.name,P:.status.phase,D:.metadata.deletionTimestamp"
		all := n.watch(t, "get", "pods", "-w", "-l", "app=late", "-o", columns)
		only := n.watch(t, "get", "pods", "--watch-only", "--field-selector", "metadata.name=late-n1", "--output-watch-events", "-v=6")
		table := n.watch(t, "get", "pods", "-w")
		table(`web-n1 +`)
		only(`watch=true.* 200 OK|watch=true.*"200 OK"`) // the request is logged: it prints only what changes from now on
		n.write("late", "sleep 1000")
		all(`late-n1 +Running`)
		only(`(?m)^(ADDED|MODIFIED) +late-n1 +1/1 +Running`)
		table(`late-n1 +1/1 +Running`)
		if out, err := n.kubectl("wait", "pod/late-n1", "--for=condition=Ready", "--timeout=2m"); err != nil {
			t.Fatalf("wait: %v: %s", err, out)
		}
		if err := os.Remove(n.path("manifests/late.yaml")); err != nil {
			t.Fatal(err)
		}
		if out, err := n.kubectl("wait", "pod/late-n1", "--for=delete", "--timeout=2m"); err != nil {
			t.Errorf("wait for deletion: %v: %s", err, out)
		}
		only(`(?m)^DELETED +late-n1 `)
	})
}

// watch starts a kubectl that runs until the test ends. The returned function waits until its output matches.
func (n *node) watch(t *testing.T, args ...string) (await func(want string)) {
	t.Helper()
	file, err := os.CreateTemp(n.dir, "watch-*.txt")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	watching := n.command(ctx, args...)
	watching.Stdout, watching.Stderr = file, file
	if err := watching.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = watching.Wait()
		_ = file.Close()
	})
	return func(want string) {
		t.Helper()
		heraldtest.Eventually(t, func() error {
			content, err := os.ReadFile(file.Name())
			if err != nil || !regexp.MustCompile(want).Match(content) {
				return fmt.Errorf("kubectl %s: got %s (%w), want %s", strings.Join(args, " "), content, err, want)
			}
			return nil
		})
	}
}

// A client-go informer knows the node's pods, also after the agent was killed and restarted.
// TestKubectl_Top reads the use of resources, which a cluster has from metrics-server.
func TestKubectl_Top(t *testing.T) {
	withKubectls(t, func(t *testing.T, n *node) {
		n.write("busy", "while :; do :; done")
		out, err := "", error(nil)
		heraldtest.Eventually(t, func() error { // two readings make a rate
			out, err = n.kubectl("top", "pods", "--sort-by=cpu", "--no-headers")
			if err != nil || !strings.Contains(out, "web-n1") || !regexp.MustCompile(`(?m)^busy-n1 +[1-9]\d*m `).MatchString(out) {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		t.Log(out)
		if !strings.HasPrefix(out, "busy-n1") {
			t.Errorf("the busiest pod is not the first one:\n%s", out)
		}
		for args, want := range map[string]string{
			"top pods -A --containers":                        `(?m)^NAMESPACE +POD +NAME +CPU\(cores\) +MEMORY\(bytes\) *\n(?s:.*)^default +busy-n1 +main +\d+m +\d+Mi`,
			"top pod busy-n1":                                 `(?m)^busy-n1 +\d+m +\d+Mi`,
			"top pod busy-n1 --containers":                    `(?m)^busy-n1 +main +\d+m +\d+Mi`,
			"top pods -l app=web":                             `(?m)^web-n1 +\d+m +\d+Mi`,
			"top pods --sum --sort-by=memory":                 `(?m)^ +_+ +_+ *\n +\d+m +\d+Mi`,
			"top pods --use-protocol-buffers=false":           `(?m)^busy-n1 `,
			"top pods --field-selector=metadata.name=busy-n1": `(?m)^busy-n1 `,
			"top pods -n absent":                              "No resources found in absent namespace",
			"top node":                                        `(?m)^NAME +CPU\(cores\) +CPU(\(%\)|%) +MEMORY\(bytes\) +MEMORY(\(%\)|%) *\nn1 +\d+m +\d+% +\d+Mi +\d+%`,
			"top node n1 --show-capacity":                     `(?m)^n1 +\d+m +\d+% +\d+Mi +\d+%`,
			"get pods.metrics.k8s.io":                         `(?m)^NAME +CPU +MEMORY +WINDOW *\n(?s:.*)busy-n1 +\S+ +\S+ +1m0s`,
			"auth can-i list pods.metrics.k8s.io":             "^yes",
		} {
			out, err := n.kubectl(strings.Fields(args)...)
			if err != nil || !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%s: error %v, want %s, got:\n%s", args, err, want, out)
			}
		}
		if out, err := n.kubectl("top", "pod", "absent"); err == nil || !strings.Contains(out, "not found") {
			t.Errorf("top pod absent: got error %v:\n%s", err, out)
		}
	})
}

func TestInformer_AgentRestart(t *testing.T) {
	n := newNode(t, builtKubectl(t))
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
