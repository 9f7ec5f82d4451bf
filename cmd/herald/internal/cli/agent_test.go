package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/heraldnode/herald/heraldtest"
)

// testNode is a real agent, in a process of its own, with the process runtime and without an API server.
type testNode struct {
	t     *testing.T
	dir   string
	args  []string // further ones
	agent *exec.Cmd
	log   bytes.Buffer
}

func startNode(t *testing.T) *testNode {
	t.Helper()
	n := &testNode{t: t, dir: shortTempDir(t)}
	for _, dir := range []string{"manifests", "alerts.d"} {
		if err := os.Mkdir(n.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n.writeFile("config.yaml", "apiVersion: heraldnode.github.io/v1alpha1\nkind: HeraldConfiguration\n")
	n.args = []string{"--config", n.path("config.yaml")} // its folder has alerts.d
	n.start()
	t.Cleanup(n.clean)
	return n
}

func (n *testNode) path(name string) string { return filepath.Join(n.dir, name) }

func (n *testNode) address() string { return "unix://" + n.path("data/herald.sock") }

func (n *testNode) start() {
	n.t.Helper()
	args := append([]string{
		"run", "--node-name=n1", "--runtime=process", "--node-ip=127.0.0.1", "--manifests", n.path("manifests"), "--data-dir", n.path("data"),
	}, n.args...)
	n.agent = exec.CommandContext(context.Background(), "/proc/self/exe", args...)
	n.agent.Env = append(os.Environ(), actAsHerald+"=1")
	n.agent.Stderr = &n.log
	n.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also if the test is aborted
	if err := n.agent.Start(); err != nil {
		n.t.Fatal(err)
	}
}

// kill ends the agent as a crash does. Pods keep running.
func (n *testNode) kill() {
	_ = n.agent.Process.Kill()
	_ = n.agent.Wait()
}

// write writes the manifest of a pod in the namespace shop with one container.
func (n *testNode) write(name, script, fields string) {
	n.t.Helper()
	manifest := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, labels: {app: %[1]s}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: host
    command: [sh, -c, %q]
%s`, name, script, fields)
	n.writeFile("manifests/"+name+".yaml", manifest)
}

func (n *testNode) writeFile(name, content string) {
	n.t.Helper()
	temporary := n.path("temporary") // renamed, so that the agent never reads a part
	if err := os.WriteFile(temporary, []byte(content), 0o600); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(temporary, n.path(name)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) remove(name string) {
	n.t.Helper()
	if err := os.Remove(n.path(name)); err != nil {
		n.t.Fatal(err)
	}
}

// run runs a command of one line that asks the agent. Single quotes group words.
func (n *testNode) run(command string) result {
	var args []string
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	return runHerald(append(args, "--server", n.address())...)
}

// must runs a command, which must end with the status.
func (n *testNode) must(status int, command string) string {
	n.t.Helper()
	got := n.run(command)
	if got.status != status {
		n.t.Errorf("%s: got exit status %d, want %d\n%s%s", command, got.status, status, got.stdout, got.stderr)
	}
	return got.stdout + got.stderr
}

// mustPrint runs a command until it ends with the status and prints all texts.
func (n *testNode) mustPrint(status int, command string, texts ...string) string {
	n.t.Helper()
	var got result
	heraldtest.Eventually(n.t, func() error {
		got = n.run(command)
		if got.status != status {
			return fmt.Errorf("%s: got exit status %d, want %d\n%s%s", command, got.status, status, got.stdout, got.stderr)
		}
		for _, text := range texts {
			if !strings.Contains(got.stdout+got.stderr, text) {
				return fmt.Errorf("%s: got\n%s%s\nwant %q", command, got.stdout, got.stderr, text)
			}
		}
		return nil
	})
	return got.stdout
}

// clean removes the manifests, waits until the pods have ended, and stops the agent.
func (n *testNode) clean() {
	n.t.Helper()
	if err := os.RemoveAll(n.path("manifests")); err != nil {
		n.t.Error(err)
	}
	if err := os.Mkdir(n.path("manifests"), 0o700); err != nil {
		n.t.Error(err)
	}
	if got := n.run("wait pod --all -A --for=delete --timeout=3m"); got.status != 0 {
		n.t.Errorf("pods are left: %v", got)
	}
	_ = n.agent.Process.Signal(syscall.SIGTERM)
	_ = n.agent.Wait()
	if n.t.Failed() {
		n.t.Logf("agent:\n%s", n.log.String())
	}
}

const waitReady = "--for=condition=Ready --timeout=3m"

// All commands that ask an agent, on a real one.
func TestAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an agent and pods")
	}
	n := startNode(t)
	n.write("web", "exec sleep 1000", "    readinessProbe: {exec: {command: [test, -f, "+n.path("ready")+"]}, periodSeconds: 1, timeoutSeconds: 30}\n")
	n.write("cart", "echo open /data: no such file; exit 3", "")
	n.write("job", "exit 0", "  restartPolicy: Never\n")
	n.writeFile("manifests/bad.yaml", strings.NewReplacer("NAME", "bad").Replace(`apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: shop}
spec:
  hostNetwork: true
  containers: [{name: main, image: "shop/X:9"}]
`))
	n.writeFile("alerts.d/shop.yaml", shopRules)
	n.writeFile("manifests/broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: broken}\nspec:\n  containrs: []\n")

	t.Run("wait", n.testWait)
	t.Run("explain", n.testExplain)
	t.Run("get", n.testGet)
	t.Run("describe", n.testDescribe)
	t.Run("status and sources", n.testStatus)
	t.Run("alerts", n.testAlerts)
	t.Run("top", n.testTop)
	t.Run("restart and probe", n.testRestart)
	t.Run("replay", n.testReplay)
	t.Run("completion", n.testCompletion)
}

func (n *testNode) testWait(t *testing.T) {
	ended := make(chan result, 1)
	go func() { ended <- n.run("wait pod web-n1 later-n1 -n shop " + waitReady) }() // web is not ready, later does not exist
	n.mustPrint(1, "explain web-n1 -n shop", "readiness probe")
	n.kill()
	n.writeFile("ready", "")
	n.write("later", "exec sleep 1000", "")
	n.start()
	got := <-ended
	if got.status != 0 || !strings.Contains(got.stdout, "shop/web-n1 Ready after ") || !strings.Contains(got.stdout, "shop/later-n1 Ready after ") {
		t.Errorf("over a restart of the agent: got %v, want two pods", got)
	}
	n.must(0, "wait pod job-n1 -n shop --for=phase=Succeeded --timeout=3m")
	if out := n.must(1, "wait pod job-n1 -n shop --for=phase=Failed --timeout=1h"); !strings.Contains(out, "cannot become Failed: it has Succeeded") {
		t.Errorf("got %s", out)
	}
	if out := n.must(1, "wait pod bad-n1 -n shop --for=condition=Ready --timeout=1h"); !strings.Contains(out, "shop/bad-n1 cannot become Ready: ") {
		t.Errorf("got %s", out)
	}
	n.must(0, "wait pod -l app=later -A --for=jsonpath={.status.phase}=Running --timeout=3m")
	go func() { ended <- n.run("wait pod later-n1 -n shop --for=delete --timeout=3m") }()
	n.remove("manifests/later.yaml")
	if got := <-ended; got.status != 0 {
		t.Errorf("delete: got %v, want status 0", got)
	}
}

func (n *testNode) testExplain(*testing.T) {
	n.mustPrint(1, "explain cart-n1 -n shop", "! cart-n1 ", "exited 3", "\n> ", "| open /data: no such file")
	n.sample("explain", "explain cart-n1 -n shop")
	n.sample("explain-invalid", "explain bad-n1 -n shop")
	n.mustPrint(0, "explain web-n1 -n shop --question ready", "! web-n1 is Ready")
	n.mustPrint(1, "why bad-n1 -n shop -o jsonpath={.verdict.code}", "InvalidImageName")
	n.mustPrint(1, "explain nothing -n shop", "pod shop/nothing not found")
}

func (n *testNode) testGet(t *testing.T) {
	n.mustPrint(0, "get pods -n shop -o why", "WHY\n", "cart-n1   0/1     CrashLoopBackOff", "next start in", "ready")
	n.sample("get", "get pods -A -o why")
	n.sample("get-where", `get pods -A --where '!pod.ready'`)
	if out := n.must(0, "get pods -A --where '!pod.ready && pod.name.startsWith(\"c\")' -o name"); out != "pod/cart-n1\n" {
		t.Errorf("where: got %q", out)
	}
	n.mustPrint(0, "get pods -n shop -o jsonpath={.items[*].metadata.name}", "bad-n1 cart-n1 job-n1 web-n1")
	n.mustPrint(2, "get pods --where 'pod.nothing'", "nothing")
}

func (n *testNode) testDescribe(*testing.T) {
	n.mustPrint(0, "describe pod cart-n1 -n shop", "Name:", "Restart Count:", "Events:\n", "BackOff", "Source:", "no API server", "Back-off:\n  main",
		"Why:\n  ! cart-n1", "Last log:\n", "| open /data: no such file", "History:\n  TIME")
	n.sample("describe", "describe pod cart-n1 -n shop")
	n.mustPrint(0, "describe pod web-n1 -n shop", "Probes:\n  main readiness", "success")
	n.mustPrint(0, "describe pod web-n1 -n shop -o jsonpath={.kind}", "PodView")
	n.mustPrint(0, "describe node", "Name:", "Non-terminated Pods:", "Agent:", "Sources:", "History:\n")
}

func (n *testNode) testStatus(*testing.T) {
	n.mustPrint(0, "status", "node        n1  Ready", "4 of 110: 1 ready, 1 ended, 2 not well", "runtime process", "cluster     none",
		"sources     file error (4)", "not well    shop/", "shop/cart-n1   main exits 3")
	n.mustPrint(0, "status -o jsonpath={.metadata.name}", "n1")
	n.mustPrint(0, "sources", "file     1 error   4", "broken.yaml:5", "containrs")
	n.sample("sources", "sources")
	n.sample("wait", "wait pod web-n1 -n shop --for=condition=Ready --timeout=60s")
	n.sample("wait-invalid", "wait pod bad-n1 -n shop --for=condition=Ready --timeout=60s")
}

func (n *testNode) testTop(t *testing.T) {
	n.mustPrint(0, "status", "\nload        ")
	n.mustPrint(0, "top node", "NODE   LOAD", "\nmemory     ", "\ndata")
	if *update { // samples with numbers of all kinds take two measurements
		for _, command := range []string{"top node -o jsonpath={.load.cpu.cores}", "top pods web-n1 -n shop -o jsonpath={.items[0].load.cpu.cores}"} {
			heraldtest.Eventually(t, func() error {
				if got := n.run(command); got.stdout == "" {
					return fmt.Errorf("%s: got %v, want a number", command, got)
				}
				return nil
			})
		}
	}
	n.sample("status", "status")
	n.sample("top-node", "top node")
	out := n.must(0, "top pods -n shop --sort-by memory")
	for _, text := range []string{"NAME      CPU(cores)", "\nweb-n1 ", "\njob-n1    not running"} {
		if !strings.Contains(out, text) {
			t.Errorf("got %s, want %q", out, text)
		}
	}
	n.sample("top-pods", "top pods -A --containers")
	n.mustPrint(0, "top node --history", "SIGNAL", "30m EACH", "\nmemory ", "··")
	n.mustPrint(0, "top node --history=2h -o jsonpath={.stepMs}", "60000")
	n.mustPrint(0, "top pods -A --history", "NAMESPACE", "\nshop        web-n1")
	n.mustPrint(0, "top pods web-n1 -n shop --history=1h -o jsonpath={.kind}", "LoadHistory")
	n.mustPrint(1, "top pods web", `pods "web" not found`)
}

func (n *testNode) testRestart(t *testing.T) {
	n.mustPrint(0, "probe web-n1 -n shop --kind readiness", "main        readiness", "success")
	n.sample("probe", "probe web-n1 -n shop")
	n.sample("restart", "restart pod web-n1 -n shop -c main --reason 'new certificate'")
	out := n.must(0, "restart pod web-n1 -n shop -c main --reason 'new certificate'")
	if !strings.HasPrefix(out, "web-n1/main stopped after ") || !strings.Contains(out, "started as restart ") {
		t.Errorf("got %s", out)
	}
	n.mustPrint(0, "history pod/web-n1 -n shop", "new certificate")
	n.remove("ready")
	n.mustPrint(1, "probe web-n1 -n shop", "failure")
	n.writeFile("ready", "")
	n.mustPrint(0, "events -n shop --for pod/cart-n1", "LAST SEEN", "Warning", "BackOff", "pod/cart-n1")
	n.sample("events", "events -n shop --for pod/cart-n1")
	n.sample("history", "history pod/cart-n1 -n shop --limit 8")
	n.mustPrint(1, "restart pod nothing -n shop --reason x", "not found")
}

func (n *testNode) testCompletion(t *testing.T) {
	t.Setenv("HERALD_SERVER", n.address())
	for args, want := range map[string]string{ // | separates the word to complete
		"explain -n shop |":                  "bad-n1\ncart-n1\njob-n1\nweb-n1\n",
		"describe |":                         "pods\nnode\n",
		"describe pod -n shop |":             "bad-n1\ncart-n1\njob-n1\nweb-n1\n",
		"events -n shop --for |":             "pod/bad-n1\npod/cart-n1\npod/job-n1\npod/web-n1\n",
		"wait pods -n shop web-n1 |":         "bad-n1\ncart-n1\njob-n1\n",
		"probe web-n1 -n shop --container |": "main\n",
		"restart pod web-n1 -n shop -c |":    "main\n",
		"status --server |":                  "",
		"history -n |":                       "shop\n",
		"top |":                              "node\tDisplay the load of this node\npods\tDisplay the CPU and memory that pods use\n",
		"top pods -n shop |":                 "bad-n1\ncart-n1\njob-n1\nweb-n1\n",
		"top pods --sort-by |":               "cpu\nmemory\n",
	} {
		words, last, _ := strings.Cut(args, "|")
		output := runHerald(append(append([]string{"__complete"}, strings.Fields(words)...), last)...)
		if got, _, _ := strings.Cut(output.stdout, ":"); got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
	start := time.Now()
	t.Setenv("HERALD_SERVER", "unix:///nowhere/herald.sock")
	if got := runHerald("__complete", "explain", ""); got.status != 0 || time.Since(start) > time.Minute {
		t.Errorf("without an agent: got %v", got)
	}
}
