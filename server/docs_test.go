package server_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/expression"
)

const docs = "../docs/queries.md"

// blocks returns the code blocks of docs/queries.md in a language.
func blocks(t *testing.T, language string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	current, isInside := "", false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			current, isInside = strings.TrimPrefix(line, "```"), !isInside
		case isInside && current == language:
			lines = append(lines, line)
		}
	}
	return lines
}

// TestDocs_Queries runs every command of docs/queries.md.
func TestDocs_Queries(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skipf("needs curl: %v", err)
	}
	n := newNode(t)
	pod := newRunningPod("cart-n1", false)
	pod.Namespace, pod.Labels = "shop", map[string]string{"app": "cart"}
	pod.Spec.Containers = []v1.Container{{Name: "web", Image: "example.test/web"}}
	pod.Status.ContainerStatuses[0].Name, pod.Status.ContainerStatuses[0].RestartCount = "web", 14
	n.set(pod)
	socket := n.serveOn(t, "unix://"+filepath.Join(t.TempDir(), "herald.sock")).String()
	commands := blocks(t, "sh")
	if len(commands) < 15 {
		t.Fatalf("got %d commands in %s", len(commands), docs)
	}
	for _, command := range commands {
		t.Run(command, func(t *testing.T) {
			command := exec.CommandContext(t.Context(), "sh", "-c", "exec "+strings.ReplaceAll(command, "/run/herald/herald.sock", socket))
			if strings.Contains(command.String(), "curl -sN") {
				checkStream(t, command)
				return
			}
			output, err := command.CombinedOutput()
			if err != nil || !strings.HasPrefix(string(output), "{") || strings.Contains(string(output), `"kind":"Status"`) {
				t.Errorf("got %v: %s", err, output)
			}
			if strings.Contains(command.String(), "/pods") && !strings.Contains(string(output), "cart-n1") {
				t.Errorf("the pod is missing in %s", output)
			}
		})
	}
}

// checkStream requires that a watch sends its state.
func checkStream(t *testing.T, command *exec.Cmd) {
	t.Helper()
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = command.Process.Kill(); _ = command.Wait() }()
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "SYNCED") {
			return
		}
	}
	t.Error("the stream ended without SYNCED")
}

// TestDocs_Expressions compiles every expression of docs/queries.md, and checks that it lists every field.
func TestDocs_Expressions(t *testing.T) {
	environment, err := expression.NewEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	expressions := blocks(t, "")
	if len(expressions) < 8 {
		t.Fatalf("got %d expressions in %s", len(expressions), docs)
	}
	for _, text := range expressions {
		if _, err := environment.Compile(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	for variable, fields := range expression.Fields() {
		if !strings.Contains(string(text), "`"+strings.Join(fields, " ")+"`") {
			t.Errorf("%s does not list the fields of %s: %s", docs, variable, strings.Join(fields, " "))
		}
	}
}
