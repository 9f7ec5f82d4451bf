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

// fakeTB records calls to Skip and Fatal.
type fakeTB struct {
	skipped string
	failed  string
}

func (f *fakeTB) Helper()           {}
func (f *fakeTB) Skip(args ...any)  { f.skipped = fmt.Sprint(args...) }
func (f *fakeTB) Fatal(args ...any) { f.failed = fmt.Sprint(args...) }

func TestNeeds_Missing(t *testing.T) {
	cases := map[string]struct {
		need func(needs.TB)
		line []string
		root bool
	}{
		"kubectl": {
			need: needs.Kubectl,
			line: []string{"needs kubectl: ", "no kubectl in PATH", "; install kubectl"},
		},
		"prometheus": {
			need: needs.Prometheus,
			line: []string{"needs Prometheus: ", "no prometheus in PATH", "hack/install-prometheus"},
		},
		"alertmanager": {
			need: needs.Alertmanager,
			line: []string{"needs Alertmanager: ", "no prometheus-alertmanager in PATH", "hack/install-alertmanager"},
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
				var got fakeTB
				tc.need(&got)
				message, other := got.skipped, got.failed
				if ci == "true" {
					message, other = got.failed, got.skipped
				}
				if other != "" {
					t.Errorf("got both %q and %q", message, other)
				}
				if strings.Contains(message, "\n") {
					t.Errorf("got more than one line: %q", message)
				}
				for _, part := range tc.line {
					if !strings.Contains(message, part) {
						t.Errorf("got %q, want %q in it", message, part)
					}
				}
			})
		}
	}
}

func TestNeeds_Met(t *testing.T) {
	needs.Root(t)
	needs.Kubectl(t)
	needs.Containers(t)
	t.Setenv("CI", "true")
	var got fakeTB
	needs.Root(&got)
	needs.Kubectl(&got)
	needs.Containers(&got)
	if got != (fakeTB{}) {
		t.Errorf("got %+v, want no call", got)
	}
	if err := needs.CheckContainers(); err != nil {
		t.Error(err)
	}
}

func TestCheckContainers_Missing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CI", "")
	var got fakeTB
	needs.Containers(&got)
	if err := needs.CheckContainers(); err == nil || err.Error() != got.skipped {
		t.Errorf("got %v, want %q", err, got.skipped)
	}
}

// unprivileged is an environment variable that marks the process of this test binary that runs as another user.
const unprivileged = "HERALD_NEEDS_UNPRIVILEGED"

func TestNeeds_NotRoot(t *testing.T) {
	if os.Getenv(unprivileged) != "" {
		var root, containers fakeTB
		needs.Root(&root)
		needs.Containers(&containers)
		fmt.Printf("%s\n%s\n", root.skipped, containers.skipped)
		return
	}
	needs.Root(t)

	// Other users cannot read the directory of the test binary, but they can use the kernel's link to it.
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
	child.Dir = "/"
	child.Env = append(os.Environ(), unprivileged+"=yes", "CI=")
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	output, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("run as another user: %v\n%s", err, output)
	}
	for _, want := range []string{
		"needs root: the user id is 65534; run the tests as root\n",
		"needs containers: the user id is 65534; run the tests as root\n",
	} {
		if !strings.Contains(string(output), want) {
			t.Errorf("got %s, want line %q", output, want)
		}
	}
}
