package needs_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/heraldnode/herald/parity/internal/needs"
)

// outcome is a test that notes how it was ended instead of ending.
type outcome struct {
	skipped string
	failed  string
}

func (o *outcome) Helper()           {}
func (o *outcome) Skip(args ...any)  { o.skipped = fmt.Sprint(args...) }
func (o *outcome) Fatal(args ...any) { o.failed = fmt.Sprint(args...) }

func TestWhatIsMissingIsSaidInOneLineWithItsRemedy(t *testing.T) {
	cases := map[string]struct {
		need func(needs.TB)
		line []string
		root bool
	}{
		"kubectl": {
			need: needs.Kubectl,
			line: []string{"needs kubectl: ", "no kubectl in PATH", "; install kubectl"},
		},
		"containers": {
			need: needs.Containers,
			line: []string{"needs containers: ", "no containerd in PATH", "no runc in PATH", "; run hack/install-containers"},
			root: true,
		},
	}
	for name, tc := range cases {
		for _, ci := range []string{"", "true"} {
			t.Run(name+" with CI="+ci, func(t *testing.T) {
				if tc.root {
					needs.Root(t)
				}
				t.Setenv("PATH", t.TempDir())
				t.Setenv("CI", ci)
				var got outcome
				tc.need(&got)
				said, silent := got.skipped, got.failed
				if ci == "true" {
					said, silent = got.failed, got.skipped
				}
				if silent != "" {
					t.Errorf("also ended with %q", silent)
				}
				if strings.Contains(said, "\n") {
					t.Errorf("more than one line: %q", said)
				}
				for _, part := range tc.line {
					if !strings.Contains(said, part) {
						t.Errorf("%q does not say %q", said, part)
					}
				}
			})
		}
	}
}

func TestWhatIsThereLetsTheTestRun(t *testing.T) {
	needs.Root(t)
	needs.Kubectl(t)
	needs.Containers(t)
	t.Setenv("CI", "true")
	var got outcome
	needs.Root(&got)
	needs.Kubectl(&got)
	needs.Containers(&got)
	if got != (outcome{}) {
		t.Errorf("was ended: %+v", got)
	}
	if err := needs.CheckContainers(); err != nil {
		t.Error(err)
	}
}

func TestAProgramIsToldWhatATestWouldBe(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CI", "")
	var got outcome
	needs.Containers(&got)
	if err := needs.CheckContainers(); err == nil || err.Error() != got.skipped {
		t.Errorf("%v, want %q", err, got.skipped)
	}
}

// asNobody marks the run of this test's binary that another user makes.
const asNobody = "HERALD_NEEDS_AS_NOBODY"

func TestAnotherUserThanRootIsTold(t *testing.T) {
	if os.Getenv(asNobody) != "" {
		var root, containers outcome
		needs.Root(&root)
		needs.Containers(&containers)
		fmt.Printf("%s\n%s\n", root.skipped, containers.skipped)
		return
	}
	needs.Root(t)

	// The folder of the test's binary is closed to others; the kernel's link to it is not.
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
	child.Dir = "/"
	child.Env = append(os.Environ(), asNobody+"=yes", "CI=")
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	output, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("running as another user: %v\n%s", err, output)
	}
	for _, want := range []string{
		"needs root: the user id is 65534; run the tests as root\n",
		"needs containers: the user id is 65534; run the tests as root\n",
	} {
		if !strings.Contains(string(output), want) {
			t.Errorf("no line %q in\n%s", want, output)
		}
	}
}
