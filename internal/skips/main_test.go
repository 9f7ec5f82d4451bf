package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const record = `{"Action":"run","Package":"p","Test":"TestRoot"}
{"Action":"output","Package":"p","Test":"TestRoot","Output":"=== RUN   TestRoot\n"}
{"Action":"output","Package":"p","Test":"TestRoot","Output":"    root_test.go:12: needs root: uid is 1000; run as root\n"}
{"Action":"output","Package":"p","Test":"TestRoot","Output":"--- SKIP: TestRoot (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestRoot"}
{"Action":"pass","Package":"p","Test":"TestOther"}
{"Action":"skip","Package":"without/tests"}
`

// run builds and runs the command over one record.
func run(t *testing.T, content, ci string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	binary, file := filepath.Join(dir, "skips"), filepath.Join(dir, "record.json")
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

func TestSkippedTestsAreListedWithTheirReason(t *testing.T) {
	out, err := run(t, record, "")
	if err != nil || !strings.Contains(out, "  p TestRoot: needs root: uid is 1000; run as root\n") || strings.Contains(out, "without/tests") {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestWithCISkippingIsAFailure(t *testing.T) {
	if out, err := run(t, record, "true"); err == nil {
		t.Fatalf("it passed:\n%s", out)
	}
}

func TestWhenNothingWasSkippedItSaysSo(t *testing.T) {
	out, err := run(t, `{"Action":"pass","Package":"p","Test":"TestOther"}`, "true")
	if err != nil || out != "Nothing was skipped.\n" {
		t.Fatalf("%v\n%s", err, out)
	}
}
