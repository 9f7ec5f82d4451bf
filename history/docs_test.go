package history_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/history"
)

// TestDocs_Commands runs the commands of docs/history.md on a history with compressed and plain segments.
func TestDocs_Commands(t *testing.T) {
	for _, tool := range []string{"zcat", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
	text, err := os.ReadFile("../docs/history.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```sh\n")
	script, _, found := strings.Cut(rest, "```")
	if !found || !strings.Contains(script, "cd /var/lib/herald/history\n") {
		t.Fatal("docs/history.md has no commands")
	}
	dir := filepath.Join(t.TempDir(), "history")
	log, err := history.Open(history.Config{
		Dir: dir, MaxDisk: 512 << 10, ReadLog: func(context.Context, history.LogRequest) (string, error) { return "cannot open\n", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- log.Run(ctx) }()
	n := newNode()
	n.log = log
	for i := range int32(300) {
		n.now = time.Now()
		n.set("web", status(v1.PodRunning, running(), i))
	}
	n.set("web", status(v1.PodRunning, failed(299, 3), 299))
	for record := range log.Follow(ctx, history.Query{Kinds: []history.Kind{history.KindLog}}, 0) {
		if record.Attachment.Lines != "" {
			break
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	script = "set -e\n" + strings.Replace(script, "/var/lib/herald/history", dir, 1)
	output, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for _, want := range []string{`"web","main",3]`, "299 web", "web main\ncannot open"} {
		if !strings.Contains(string(output), want) {
			t.Errorf("got %s, want %q in it", output, want)
		}
	}
}
