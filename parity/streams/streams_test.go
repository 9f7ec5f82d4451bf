package streams_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStreams has the tests that share a node.
func TestStreams(t *testing.T) {
	n := newNode(t)
	n.createPod("web", "mkdir /www && head -c 1000000 /dev/zero > /www/file && httpd -p 8080 -h /www && exec sleep 100000")
	for client := range clients {
		for name, test := range map[string]func(t *testing.T, n *node, client string){
			"exit codes": testExitCodes, "output": testOutput, "input": testInput, "terminal": testTerminal, "cp": testCopy,
			"port-forward": testPortForward, "attach": testAttach, "debug": testDebug, "run": testRun, "errors": testErrors,
			"deleted pod": testDeletedPod,
		} {
			t.Run(client+"/"+name, func(t *testing.T) { test(t, n, client) })
		}
	}
	t.Run("commands", func(t *testing.T) { testCommands(t, n) })
	t.Run("shutdown", func(t *testing.T) { testShutdown(t, n) }) // last: it stops the agent
}

func testExitCodes(t *testing.T, n *node, client string) {
	for _, code := range []int{0, 1, 137} {
		got := n.run(t, client, nil, "exec", "web", "-c", "main", "--", "sh", "-c", fmt.Sprintf("echo out; echo err >&2; exit %d", code))
		if got.code != code || got.stdout != "out\n" || !strings.HasPrefix(got.stderr, "err\n") {
			t.Errorf("exit code %d: got %+v", code, got)
		}
	}
}

// 10 MB arrive completely and before the status (STR-15).
func testOutput(t *testing.T, n *node, client string) {
	const lines = 1_400_000
	got := n.run(t, client, nil, "exec", "web", "-c", "main", "--", "seq", strconv.Itoa(lines))
	var want bytes.Buffer
	for i := range lines {
		_, _ = fmt.Fprintln(&want, i+1)
	}
	if got.code != 0 || got.stdout != want.String() {
		t.Errorf("got exit code %d and %d bytes, want 0 and %d: %s", got.code, len(got.stdout), want.Len(), got.stderr)
	}
}

// The command sees the end of its input, and its output follows.
func testInput(t *testing.T, n *node, client string) {
	data := randomData(5 << 20)
	got := n.run(t, client, bytes.NewReader(data), "exec", "-i", "web", "-c", "main", "--", "sha256sum")
	if want := fmt.Sprintf("%x  -\n", sha256.Sum256(data)); got.code != 0 || got.stdout != want {
		t.Errorf("got %+v, want %s", got, want)
	}
}

func randomData(size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(data)
	return data
}

func testTerminal(t *testing.T, n *node, client string) {
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	terminal := openTerminal(t, 24, 80)
	command := n.kubectl(ctx, client, "exec", "-it", "web", "-c", "main", "--", "sh", "-c",
		`until [ "$(stty size)" = "24 80" ]; do sleep 0.1; done; echo first; until [ "$(stty size)" = "50 132" ]; do sleep 0.1; done
		read line; echo "got $line"; exit 7`)
	if err := terminal.start(command); err != nil {
		t.Fatal(err)
	}
	terminal.await(t, "first")
	terminal.resize(t, 50, 132)
	_, _ = terminal.Write([]byte("hello\n"))
	terminal.await(t, "got hello")
	if _ = command.Wait(); command.ProcessState.ExitCode() != 7 {
		t.Errorf("got %s, want exit code 7:\n%s", command.ProcessState, terminal.output())
	}
}

func testCopy(t *testing.T, n *node, client string) {
	const size = 100 << 20
	dir := t.TempDir()
	data := randomData(size)
	if err := os.WriteFile(filepath.Join(dir, "data"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := n.run(t, client, nil, "cp", filepath.Join(dir, "data"), "web:/tmp/data"); got.code != 0 {
		t.Fatalf("copy to the container: %+v", got)
	}
	want := fmt.Sprintf("%x", sha256.Sum256(data))
	if got := n.run(t, client, nil, "exec", "web", "-c", "main", "--", "sha256sum", "/tmp/data"); got.stdout != want+"  /tmp/data\n" {
		t.Errorf("the container has %+v, want %s", got, want)
	}
	if got := n.run(t, client, nil, "cp", "web:/tmp/data", filepath.Join(dir, "back")); got.code != 0 {
		t.Fatalf("copy from the container: %+v", got)
	}
	if back, err := os.ReadFile(filepath.Join(dir, "back")); err != nil || !bytes.Equal(back, data) {
		t.Errorf("got %d bytes back, %v, want the same %d", len(back), err, size)
	}
}

// Many connections at the same time share a stream.
func testPortForward(t *testing.T, n *node, client string) {
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	command := n.kubectl(ctx, client, "port-forward", "--address", "127.0.0.1", "web", ":8080")
	output := &syncBuffer{}
	command.Stdout, command.Stderr = output, output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = command.Wait() }()
	port := output.await(t, regexp.MustCompile(`127\.0\.0\.1:(\d+) ->`))
	get := func() (int64, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+"/file", nil)
		if err != nil {
			return 0, err
		}
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err
		}
		defer func() { _ = response.Body.Close() }()
		return io.Copy(io.Discard, response.Body)
	}
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 5 {
				if size, err := get(); err != nil || size != 1_000_000 {
					t.Errorf("got %d bytes, %v", size, err)
				}
			}
		})
	}
	running.Wait()
}

func testAttach(t *testing.T, n *node, client string) {
	name := "attached-" + clients[client]
	n.createPod(name, `read line; echo "got $line"; exec sleep 100000`, func(pod *v1.Pod) { pod.Spec.Containers[0].Stdin = true })
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	command := n.kubectl(ctx, client, "attach", "-i", name)
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output := &syncBuffer{}
	command.Stdout, command.Stderr = output, output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = command.Wait() }()
	_, _ = io.WriteString(stdin, "hello\n")
	output.await(t, regexp.MustCompile(`got (hello)`))
}

func testDebug(t *testing.T, n *node, client string) {
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	terminal := openTerminal(t, 24, 80)
	command := n.kubectl(ctx, client, "debug", "-it", "web", "--image", shellImage, "--image-pull-policy", "Never", "--target", "main",
		"-c", "debugger-"+clients[client], "--", "/busybox", "sh", "-c", install+`read line; echo "got $line by $(ps | grep -c '[s]leep 100000')"`)
	if err := terminal.start(command); err != nil {
		t.Fatal(err)
	}
	heldInput := time.AfterFunc(0, func() { terminal.repeat(ctx, "hello\n", "got hello") })
	defer heldInput.Stop()
	terminal.await(t, "got hello by 1")
	_ = command.Wait()
}

func testRun(t *testing.T, n *node, client string) {
	name := "run-" + clients[client]
	overrides := fmt.Sprintf(`{"spec":{"nodeName":%q}}`, nodeName)
	got := n.run(t, client, strings.NewReader("hello\n"), "run", name, "-i", "--rm", "--restart=Never", "--image", shellImage,
		"--image-pull-policy", "Never", "--overrides", overrides, "--command", "--",
		"/busybox", "sh", "-c", install+`read line; echo "got $line"; exit 5`)
	if got.code != 5 || !strings.Contains(got.stdout, "got hello") {
		t.Errorf("got %+v", got)
	}
	n.AwaitDeleted(name)
}

func testErrors(t *testing.T, n *node, client string) {
	got := n.run(t, client, nil, "exec", "web", "-c", "other", "--", "true")
	if got.code == 0 || !strings.Contains(got.stderr, "container other is not valid for pod web") {
		t.Errorf("unknown container: got %+v", got)
	}
	if got = n.run(t, client, nil, "exec", "web", "-c", "main", "--", "/no/such/program"); got.code == 0 || !strings.Contains(got.stderr, "no such file") {
		t.Errorf("unknown program: got %+v", got)
	}
}

// A stream ends with its pod (STR-17).
func testDeletedPod(t *testing.T, n *node, client string) {
	name := "deleted-" + clients[client]
	n.createPod(name, "exec sleep 100000")
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	command := n.kubectl(ctx, client, "exec", name, "--", "sh", "-c", "echo begun; exec sleep 100000")
	output := &syncBuffer{}
	command.Stdout, command.Stderr = output, output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	output.await(t, regexp.MustCompile(`(begun)`))
	if err := n.Admin.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err == nil || ctx.Err() != nil {
		t.Errorf("got %v, want a failure: %s", err, output)
	}
}

// A command that the agent's end cuts off does not look like one that succeeded (STR-14, SRV-9).
func testShutdown(t *testing.T, n *node) {
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	outputs := map[string]*syncBuffer{}
	var running sync.WaitGroup
	for client := range clients {
		command := n.kubectl(ctx, client, "exec", "web", "-c", "main", "--", "sh", "-c", "echo begun; exec sleep 100000")
		output := &syncBuffer{}
		command.Stdout, command.Stderr, outputs[client] = output, output, output
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		output.await(t, regexp.MustCompile(`(begun)`))
		running.Go(func() {
			if err := command.Wait(); err == nil || ctx.Err() != nil || !strings.Contains(output.String(), "the node agent is shutting down") {
				t.Errorf("%s: got %v, want a failure and the reason: %s", client, err, output)
			}
		})
	}
	if err := n.agent.Stop(); err != nil {
		t.Error(err)
	}
	running.Wait()
}
