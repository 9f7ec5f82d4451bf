package cri

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/observed"
)

// Exec runs a command in a running container and returns what it wrote, standard output first. A command that ran has no
// error, whatever its exit code. It lasts no longer than ctx; ctx's deadline is also given to the runtime, which kills
// the command then.
func (r *Runtime) Exec(ctx context.Context, id observed.ContainerID, command []string) ([]byte, int, error) {
	request := &runtimeapi.ExecSyncRequest{ContainerId: id.ID, Cmd: command}
	if deadline, limited := ctx.Deadline(); limited {
		request.Timeout = max(1, wholeSeconds(time.Until(deadline)))
	}
	answer, err := r.pods.ExecSync(ctx, request)
	if err != nil {
		return nil, 0, fmt.Errorf("cri: running %q in container %s: %w", command, id.ID, err)
	}
	return append(answer.Stdout, answer.Stderr...), int(answer.ExitCode), nil
}
