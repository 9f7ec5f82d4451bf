package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const testOutput = `{"Action":"run","Package":"p","Test":"TestRoot"}
{"Action":"output","Package":"p","Test":"TestRoot","Output":"=== RUN   TestRoot\n"}
{"Action":"output","Package":"p","Test":"TestRoot","Output":"    root_test.go:12: needs root: uid is 1000; run as root\n"}
{"Action":"output","Package":"p","Test":"TestRoot","Output":"--- SKIP: TestRoot (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestRoot"}
{"Action":"pass","Package":"p","Test":"TestOther"}
{"Action":"skip","Package":"without/tests"}
`

// runSkips builds and runs the command on a file with the content.
func runSkips(t *testing.T, content, ci string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	binary, file := filepath.Join(dir, "skips"), filepath.Join(dir, "output.json")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, file)
	cmd.Env = append(os.Environ(), "CI="+ci)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestSkips_ListsReasons(t *testing.T) {
	out, err := runSkips(t, testOutput, "")
	if err != nil || !strings.Contains(out, "  p TestRoot: needs root: uid is 1000; run as root\n") || strings.Contains(out, "without/tests") {
		t.Fatalf("got error %v, output\n%s\nwant TestRoot only", err, out)
	}
}

func TestSkips_FailsInCI(t *testing.T) {
	if out, err := runSkips(t, testOutput, "true"); err == nil {
		t.Fatalf("got no error, want one:\n%s", out)
	}
}

func TestSkips_NoneSkipped(t *testing.T) {
	out, err := runSkips(t, `{"Action":"pass","Package":"p","Test":"TestOther"}`, "true")
	if err != nil || out != "No tests were skipped.\n" {
		t.Fatalf("got error %v, output %q; want none, %q", err, out, "No tests were skipped.\n")
	}
}
