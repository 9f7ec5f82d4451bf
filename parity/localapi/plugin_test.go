package localapi_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldnode/herald/heraldtest"
)

// The program is a plugin of kubectl if it has the name kubectl-herald.
func TestKubectl_Plugin(t *testing.T) {
	withKubectls(t, func(t *testing.T, n *node) {
		programs := t.TempDir()
		completer, err := filepath.Abs("../../packaging/kubectl_complete-herald")
		if err != nil {
			t.Fatal(err)
		}
		for name, target := range map[string]string{"kubectl-herald": n.binary, "kubectl_complete-herald": completer} {
			if err := os.Symlink(target, filepath.Join(programs, name)); err != nil {
				t.Fatal(err)
			}
		}
		kubectl := func(args ...string) (string, error) {
			cmd := exec.CommandContext(t.Context(), n.client, args...)
			cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "HERALD_SERVER=unix://"+n.path("data/herald.sock"))
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		heraldtest.Eventually(t, func() error {
			_, err := kubectl("herald", "wait", "pod", "web-n1", "--for=condition=Ready")
			return err
		})
		for args, want := range map[string]string{
			"herald get pods web-n1 -o name": "pod/web-n1",
			"herald get pods --help":         "kubectl herald get pods [NAME...]",
			"herald explain web-n1":          "web-n1",
			"plugin list":                    filepath.Join(programs, "kubectl-herald"),
			"__complete herald get pods w":   "web-n1",
			"__complete herald ge":           "get\tDisplay the pods of this node",
		} {
			if out, err := kubectl(strings.Fields(args)...); err != nil || !strings.Contains(out, want) {
				t.Errorf("kubectl %s: got %s (%v), want %q in it", args, out, err, want)
			}
		}
		// The exit status is that of the plugin.
		out, err := kubectl("herald", "get")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, "See 'kubectl herald get --help'") {
			t.Errorf("got %s (%v), want exit status 2", out, err)
		}
	})
}
