package node_test

import (
	"context"
	"os/exec"
	"strings"
)

// herald asks the machine's agent, and returns what it printed.
func (tr *trial) herald(args ...string) string {
	tr.t.Helper()
	out, err := tr.heraldCommand(tr.t.Context(), args...).CombinedOutput()
	if err != nil {
		tr.t.Fatalf("herald %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (tr *trial) heraldCommand(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, tr.program, append(args, "--namespace", tr.Namespace, "--server", tr.settings.socket())...)
}
