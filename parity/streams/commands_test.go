package streams_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest"
)

// testCommands runs herald's logs, exec, attach and port-forward over the agent's socket, on containers of containerd, and compares them with
// kubectl's through the API server: the same arguments, output, messages and exit codes.
func testCommands(t *testing.T, n *node) {
	n.createPod("pair", "echo first; echo second >&2; read line; echo \"got $line\"; exec sleep 100000", func(pod *v1.Pod) {
		pod.Spec.Containers[0].Stdin = true
		side := pod.Spec.Containers[0]
		side.Name, side.Stdin, side.ReadinessProbe = "side", false, nil
		side.Command = []string{"/busybox", "sh", "-c", "echo beside; exec /busybox sleep 100000"}
		pod.Spec.Containers = append(pod.Spec.Containers, side)
	})
	n.createPod("ended", "exit 0", func(pod *v1.Pod) {
		pod.Spec.RestartPolicy, pod.Spec.Containers[0].ReadinessProbe = v1.RestartPolicyNever, nil
	})
	n.Await("ended", "succeeded", func(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodSucceeded })
	t.Run("same as kubectl", func(t *testing.T) { compareCommands(t, n) })
	t.Run("terminal", func(t *testing.T) { testHeraldTerminal(t, n) })
	t.Run("attach", func(t *testing.T) { testHeraldAttach(t, n) })
	t.Run("port-forward", func(t *testing.T) { testHeraldPortForward(t, n) })
}

// herald returns a command that has not been started.
func (n *node) herald(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{args[0], "--server", "unix://" + filepath.Join(n.agent.Dir(), "herald.sock"), "-n", namespace}, args[1:]...)
	command := exec.CommandContext(ctx, n.program, args...)
	command.WaitDelay = time.Minute
	return command
}

// runHerald runs herald to its end.
func (n *node) runHerald(t *testing.T, stdin io.Reader, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	command := n.herald(ctx, args...)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = stdin, &stdout, &stderr
	var exit *exec.ExitError
	if err := command.Run(); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		t.Fatalf("herald %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return result{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}

// differing is what differs between herald and kubectl, or between versions of kubectl, with what replaces it: the words before an
// error, the namespace after it, the containers that there are, the ID of a command.
var differing = map[string]*regexp.Regexp{
	"":   regexp.MustCompile(`(?mi)^(herald: |error: |error from server( \(\w+\))?: |internal error occurred: )+| in namespace "\w+"$`),
	"$1": regexp.MustCompile(`(container \S+ is not valid for pod \S+) out of: .*`),
	"ID": regexp.MustCompile(`[0-9a-f]{64}`),
}

// comparable returns the result without what differs. The order of the containers of --all-containers is any.
func (r result) comparable() result {
	for replacement, pattern := range differing {
		r.stderr = pattern.ReplaceAllString(r.stderr, replacement)
	}
	if strings.HasPrefix(r.stdout, "[pod/") {
		lines := strings.Split(r.stdout, "\n")
		slices.Sort(lines)
		r.stdout = strings.Join(lines, "\n")
	}
	return r
}

func compareCommands(t *testing.T, n *node) {
	heraldtest.Eventually(t, func() error { // the log is written after the start
		if got := n.runHerald(t, nil, "logs", "pair", "-c", "side"); got.stdout != "beside\n" {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
	for _, line := range []string{
		"exec web -c main -- sh -c exit_0", "exec web -- sh -c exit_3", "exec pod/web -q -- sh -c exit_137", "exec pair -- echo hello",
		"exec -i web -- cat", "exec web -- cat", "exec -it web -- cat", "exec -i pair -c side -- /busybox wc -c", "exec web -- seq 100000",
		"exec absent -- true", "exec ended -- true", "exec web -c absent -- true", "exec web -- /no/such/program",
		"logs pair -c main", "logs pair -c side", "logs pair", "logs pod/pair -c side --tail 0", "logs pair -c main --tail 1", "logs pair --all-containers --prefix",
		"logs pair -c main --limit-bytes 8", "logs pair -c side --since-time 2099-01-01T00:00:00Z", "logs ended", "logs -f ended",
		"logs absent", "logs pair -c absent", "logs pair -c side -p",
		"attach absent", "attach ended", "port-forward absent 8080", "port-forward ended 8080",
	} {
		t.Run(line, func(t *testing.T) {
			args := strings.Fields(strings.ReplaceAll(line, "exit_", "echo\x00out;echo\x00err>&2;exit\x00"))
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "\x00", " ")
			}
			kubectl := n.run(t, "web socket", strings.NewReader("some input"), args...)
			herald := n.runHerald(t, strings.NewReader("some input"), args...)
			if diff := cmp.Diff(kubectl.comparable(), herald.comparable(), cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("kubectl (-) and herald (+) differ:\n%s", diff)
			}
		})
	}
}

func testHeraldTerminal(t *testing.T, n *node) {
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	terminal := openTerminal(t, 24, 80)
	command := n.herald(ctx, "exec", "-it", "web", "-c", "main", "--", "sh", "-c",
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

func testHeraldAttach(t *testing.T, n *node) {
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	follow, followed := n.herald(ctx, "logs", "-f", "pair", "-c", "main"), &syncBuffer{}
	attach, output := n.herald(ctx, "attach", "-i", "pair", "-c", "main"), &syncBuffer{}
	stdin, err := attach.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	follow.Stdout, follow.Stderr, attach.Stdout, attach.Stderr = followed, followed, output, output
	for _, command := range []*exec.Cmd{follow, attach} {
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { cancel(); _ = command.Wait() }()
	}
	followed.await(t, regexp.MustCompile(`(first)`))
	_, _ = io.WriteString(stdin, "hello\n")
	output.await(t, regexp.MustCompile(`got (hello)`))
	followed.await(t, regexp.MustCompile(`got (hello)`))
}

func testHeraldPortForward(t *testing.T, n *node) {
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	command, output := n.herald(ctx, "port-forward", "--address", "127.0.0.1", "web", ":8080"), &syncBuffer{}
	command.Stdout, command.Stderr = output, output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = command.Wait() }()
	port := output.await(t, regexp.MustCompile(`Forwarding from 127\.0\.0\.1:(\d+) -> 8080\n`))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+"/file", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if size, err := io.Copy(io.Discard, response.Body); err != nil || size != 1_000_000 {
		t.Errorf("got %d bytes, %v", size, err)
	}
	output.await(t, regexp.MustCompile(`(Handling connection for )`))
}
