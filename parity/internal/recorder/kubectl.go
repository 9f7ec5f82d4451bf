package recorder

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/heraldnode/herald/parity/internal/needs"
)

// Kubectl runs the real one and returns what it printed.
func Kubectl(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	needs.Kubectl(t)
	out, err := exec.CommandContext(t.Context(), "kubectl", append([]string{"--kubeconfig", kubeconfig}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
