package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const skippedTest = `{"Action":"run","Package":"p","Test":"TestRoot"}
{"Action":"output","Package":"p","Test":"TestRoot","Output":"=== RUN   TestRoot\n"}
{"Action":"output","Package":"p","Test":"TestRoot","Output":"    root_test.go:12: needs root: uid is 1000; run as root\n"}
{"Action":"output","Package":"p","Test":"TestRoot","Output":"--- SKIP: TestRoot (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestRoot"}
{"Action":"pass","Package":"p","Test":"TestOther"}
{"Action":"skip","Package":"without/tests"}
`

const failedTest = `{"Action":"output","Package":"p","Test":"TestKills/2","Output":"    kill_test.go:7: job-40: got 2 ends, want 1\n"}
{"Action":"output","Package":"p","Test":"TestKills/2","Output":"    harness.go:9: log of the agent:\n"}
{"Action":"output","Package":"p","Test":"TestKills/2","Output":"        time=22:15 level=ERROR msg=\"Failed to sync pod\"\n"}
not JSON
{"Action":"fail","Package":"p","Test":"TestKills/2"}
{"Action":"output","Package":"p","Test":"TestKills","Output":"--- FAIL: TestKills (3.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestKills"}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"fail","Package":"p"}
{"Action":"output","Package":"q","Output":"panic: test timed out after 20m0s\n"}
{"Action":"fail","Package":"q"}
{"Action":"fail","Package":"does/not/build"}
`

const passedSecondTime = `{"Action":"output","Package":"p","Test":"TestPods/web","Output":"    pods_test.go:7: not ready\n"}
{"Action":"fail","Package":"p","Test":"TestPods/web"}
{"Action":"fail","Package":"p","Test":"TestPods"}
{"Action":"fail","Package":"p"}
{"Action":"output","Package":"p","Test":"TestPods/web","Output":"    pods_test.go:8: not running\n"}
{"Action":"fail","Package":"p","Test":"TestPods/web"}
{"Action":"fail","Package":"p","Test":"TestPods"}
{"Action":"fail","Package":"p"}
{"Action":"pass","Package":"p","Test":"TestPods/web"}
{"Action":"pass","Package":"p","Test":"TestPods"}
{"Action":"pass","Package":"p"}
`

func TestReport(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "testreport")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const skipped = "SKIPPED p TestRoot: needs root: uid is 1000; run as root\nFailed tests: 0, flaky tests: 0, skipped tests: 1"
	for name, test := range map[string]struct {
		content, ci, want string
		fails             bool
	}{
		"passed":        {content: `{"Action":"pass","Package":"p","Test":"TestOther"}`, ci: "true", want: "Failed tests: 0, flaky tests: 0, skipped tests: 0.\n"},
		"skipped":       {content: skippedTest, want: skipped + ".\n"},
		"skipped in CI": {content: skippedTest, ci: "true", want: skipped + "; none may be skipped with CI=true.\n", fails: true},
		"failed": {content: failedTest, fails: true, want: `FAILED p TestKills/2
    kill_test.go:7: job-40: got 2 ends, want 1
    harness.go:9: log of the agent:
FAILED q
    panic: test timed out after 20m0s
FAILED does/not/build
Failed tests: 3, flaky tests: 0, skipped tests: 0.
`},
		"flaky": {content: passedSecondTime, ci: "true", want: `FLAKY p TestPods/web
    pods_test.go:7: not ready
    pods_test.go:8: not running
Failed tests: 0, flaky tests: 1, skipped tests: 0.
`},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "output.json")
			if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), binary, file)
			cmd.Env = append(os.Environ(), "CI="+test.ci)
			out, err := cmd.CombinedOutput()
			if (err != nil) != test.fails {
				t.Errorf("got error %v, want one: %v", err, test.fails)
			}
			if diff := cmp.Diff(test.want, string(out)); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}
