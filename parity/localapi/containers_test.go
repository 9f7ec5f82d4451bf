package localapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/needs"
)

// transports are those of kubectl's streams, with the value of the variables that choose them.
var transports = map[string]string{"web socket": "true", "SPDY": "false"}

// hangTimeout ends a command that hangs.
const hangTimeout = 5 * time.Minute

// result is how a kubectl ended.
type result struct {
	stdout, stderr string
	code           int
}

func (n *node) exec(t *testing.T, transport, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	command := n.streamCommand(ctx, transport, args...)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(stdin), &stdout, &stderr
	var exit *exec.ExitError
	if err := command.Run(); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return result{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}

func (n *node) streamCommand(ctx context.Context, transport string, args ...string) *exec.Cmd {
	command := n.command(ctx, args...)
	value := transports[transport]
	command.Env = append(command.Env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+value, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+value)
	return command
}

// awaitRunning waits until the pod runs.
func (n *node) awaitRunning(pod string) {
	n.t.Helper()
	heraldtest.Eventually(n.t, func() error { // the agent may not have read the manifest yet
		if out, err := n.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}"); err != nil || out != "Running" {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// The whole of logs, exec, attach, cp and port-forward on host processes.
func TestKCT4_Processes(t *testing.T) {
	withKubectls(t, func(t *testing.T, n *node) {
		n.writeManifest("shell", `{name: main, image: host, stdin: true, command: [sh, -c, "echo out; echo err >&2; while read line; do echo got $line; done"]}`)
		n.awaitRunning("shell-n1")
		testContainers(t, n, "shell-n1")
		t.Run("logs -p", func(t *testing.T) { testPreviousLog(t, n) })
		t.Run("refusals", func(t *testing.T) { testRefusals(t, n) })
	})
}

// testContainers tests a pod whose only container writes out and err, and then "got" and each line of its input. Its shell has cat and tar.
func testContainers(t *testing.T, n *node, pod string) {
	t.Run("logs", func(t *testing.T) { testLogs(t, n, pod) })
	for transport := range transports {
		t.Run(transport+"/exec", func(t *testing.T) { testExec(t, n, transport, pod) })
		t.Run(transport+"/attach", func(t *testing.T) { testAttach(t, n, transport, pod) })
		t.Run(transport+"/cp", func(t *testing.T) { testCopy(t, n, transport, pod) })
	}
}

func testLogs(t *testing.T, n *node, pod string) {
	heraldtest.Eventually(t, func() error {
		if out, err := n.kubectl("logs", pod); err != nil || !strings.HasPrefix(out, "out\nerr\n") && !strings.HasPrefix(out, "err\nout\n") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	for args, want := range map[string]string{
		"logs " + pod + " -c main --tail=1":                  `^(out|err)\n$`,
		"logs " + pod + " --timestamps --tail=1":             `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (out|err)\n$`,
		"logs " + pod + " --limit-bytes=2":                   `^(ou|er)$`,
		"logs " + pod + " --since=1h --tail=2":               `^(out\nerr|err\nout)\n$`,
		"logs " + pod + " --since-time=2100-01-01T00:00:00Z": `^$`,
	} {
		if out, err := n.kubectl(strings.Fields(args)...); err != nil || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: error %v, want %s, got:\n%s", args, err, want, out)
		}
	}
	follow := n.watch(t, "logs", "-f", pod)
	follow("(?m)^out$")
	n.exec(t, "SPDY", "followed\n", "attach", "-i", "-q", pod)
	follow("(?m)^got followed$") // it was written after kubectl began to follow
}

func testExec(t *testing.T, n *node, transport, pod string) {
	for _, code := range []int{0, 3, 137} {
		got := n.exec(t, transport, "", "exec", pod, "--", "sh", "-c", fmt.Sprintf("echo out; echo err >&2; exit %d", code))
		if got.code != code || got.stdout != "out\n" || !strings.HasPrefix(got.stderr, "err\n") {
			t.Errorf("exit code %d: got %+v", code, got)
		}
	}
	input := strings.Repeat("0123456789abcde\n", 64<<10) // 1 MiB
	if got := n.exec(t, transport, input, "exec", "-i", pod, "-c", "main", "--", "cat"); got.code != 0 || got.stdout != input {
		t.Errorf("cat: got %d of %d bytes and exit code %d: %s", len(got.stdout), len(input), got.code, got.stderr)
	}
}

// testAttach writes to the input of the container, whose log shows it.
func testAttach(t *testing.T, n *node, transport, pod string) {
	line := "attached by " + transport
	if got := n.exec(t, transport, line+"\n", "attach", "-i", "-q", pod); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	heraldtest.Eventually(t, func() error {
		if out, err := n.kubectl("logs", pod); err != nil || !strings.Contains(out, "got "+line+"\n") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func testCopy(t *testing.T, n *node, transport, pod string) {
	dir := t.TempDir() // a host process has the same files
	data := bytes.Repeat([]byte("herald\n"), 100_000)
	if err := os.WriteFile(filepath.Join(dir, "data"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join("/tmp", strings.ReplaceAll(filepath.Base(n.dir)+"-"+transport, " ", ""))
	defer n.exec(t, transport, "", "exec", pod, "--", "rm", "-f", inside)
	if got := n.exec(t, transport, "", "cp", filepath.Join(dir, "data"), pod+":"+inside); got.code != 0 {
		t.Fatalf("copy to the container: %+v", got)
	}
	if got := n.exec(t, transport, "", "cp", pod+":"+inside, filepath.Join(dir, "back")); got.code != 0 {
		t.Fatalf("copy from the container: %+v", got)
	}
	if back, err := os.ReadFile(filepath.Join(dir, "back")); err != nil || !bytes.Equal(back, data) {
		t.Errorf("got %d bytes, %v, want %d", len(back), err, len(data))
	}
}

// testForward fetches a page of the pod's port.
func (n *node) testForward(t *testing.T, transport, pod, port, want string) {
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	command := n.streamCommand(ctx, transport, "port-forward", "--address", "127.0.0.1", pod, ":"+port)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stdout, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = command.Wait()
	}()
	var local string
	for buffer, read := make([]byte, 512), ""; local == ""; {
		count, err := stdout.Read(buffer)
		read += string(buffer[:count])
		if match := regexp.MustCompile(`127\.0\.0\.1:(\d+) ->`).FindStringSubmatch(read); match != nil {
			local = match[1]
		} else if err != nil {
			t.Fatalf("%v: %s%s", err, read, stderr.String())
		}
	}
	for range 3 {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+local+"/file", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatalf("%v: %s", err, stderr.String())
		}
		content, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(content) != want {
			t.Errorf("got %q, %v, want %q", content, err, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// testPreviousLog reads the log of the instance before the current one.
func testPreviousLog(t *testing.T, n *node) {
	command := "if mkdir " + n.path("once") + " 2>/dev/null; then echo first; exit 1; fi; echo second; exec sleep 1000"
	n.writeManifest("again", `{name: main, image: host, command: [sh, -c, "`+command+`"]}`)
	heraldtest.Eventually(t, func() error {
		current, err := n.kubectl("logs", "again-n1")
		if err != nil || !strings.HasSuffix(current, "second\n") {
			return fmt.Errorf("%w: %s", err, current)
		}
		return nil
	})
	if out, err := n.kubectl("logs", "again-n1", "-p"); err != nil || !strings.HasSuffix(out, "first\n") {
		t.Errorf("got %s, %v", out, err)
	}
}

// testRefusals has what must fail, and says why.
func testRefusals(t *testing.T, n *node) {
	n.write("two", `sleep 1000"]}
  - {name: second, image: host, command: [sh, -c, "sleep 1000`)
	n.awaitRunning("two-n1")
	for args, want := range map[string]string{
		"logs absent":            `pods "absent" not found`,
		"exec absent -- ls":      `pods "absent" not found`,
		"logs web-n1 -p":         `previous terminated container "main" in pod "web-n1" not found`,
		"exec web-n1 -c x -- ls": `container x is not valid for pod web-n1|container not found in pod web-n1`,
		"get --raw /api/v1/namespaces/default/pods/two-n1/log":             `a container name must be specified for pod two-n1, choose one of: \[main second\]`,
		"get --raw /api/v1/namespaces/default/pods/two-n1/log?container=x": `container x is not valid for pod two-n1`,
		"debug web-n1 --image=host":                                        `adding ephemeral containers is not supported .* its pods come from its manifests`,
		"debug web-n1 --image=host --copy-to=copy":                         `create is not supported .* its pods come from its manifests`,
	} {
		out, err := n.kubectl(strings.Fields(args)...)
		if err == nil || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: error %v, want %s, got:\n%s", args, err, want, out)
		}
	}
	for args, want := range map[string]string{
		"auth can-i get pods --subresource=log": "yes", "auth can-i create pods --subresource=exec": "yes",
		"auth can-i create pods --subresource=portforward": "yes", "auth can-i create pods --subresource=eviction": "no",
	} {
		if out, _ := n.kubectl(strings.Fields(args)...); !strings.HasPrefix(out, want) {
			t.Errorf("%s: got %s, want %s", args, out, want)
		}
	}
}

// The same on containerd, with a port that only the pod has.
func TestKCT4_Containers(t *testing.T) {
	needs.Containers(t)
	busybox := needs.Busybox(t)
	runtime := containerd.ForTest(t)
	const image = "heraldnode.test/busybox:1"
	if err := runtime.ImportImage(t.Context(), image, busybox); err != nil {
		t.Fatal(err)
	}
	n := newUnstartedNode(t, builtKubectl(t))
	n.writeFile("config.yaml", "apiVersion: heraldnode.github.io/v1alpha1\nkind: HeraldConfiguration\ncgroupsPerQOS: false\npodLogsDir: "+
		n.path("logs")+"\n")
	n.runtime = []string{"--config", n.path("config.yaml"), "--runtime-endpoint", runtime.Endpoint()}
	script := "/busybox mkdir -p /bin /tmp /www && /busybox --install -s /bin && export PATH=/bin && echo -n page > /www/file && " +
		"httpd -p 8080 -h /www && echo out && echo err >&2 && while read line; do echo got $line; done"
	n.writeManifest("shell", fmt.Sprintf(`{name: main, image: %q, imagePullPolicy: Never, stdin: true, command: [/busybox, sh, -c, %q]}`, image, script))
	n.start()
	t.Cleanup(func() {
		n.clean()
		if err := runtime.Close(); err != nil {
			t.Error(err)
		}
	})
	n.awaitRunning("shell-n1")
	testContainers(t, n, "shell-n1")
	for transport := range transports {
		t.Run(transport+"/port-forward", func(t *testing.T) { n.testForward(t, transport, "shell-n1", "8080", "page") })
	}
}
