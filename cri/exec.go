package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/observed"
)

// execOverhead is how long a runtime may take to begin a command and to answer, beside the time that the command has.
const execOverhead = 10 * time.Second

// Exec runs a command in a running container and returns what it wrote, standard output first. A command that ran has no
// error, whatever its exit code. ctx's deadline is the command's: the runtime counts that time from the command's beginning
// and kills it then. A busy node that is slow to begin it must not fail a probe (PRB-23), so that Exec may return
// execOverhead later. It returns at once when ctx is cancelled.
func (r *Runtime) Exec(ctx context.Context, id observed.ContainerID, command []string) ([]byte, int, error) {
	longer, cancel := beyondDeadline(ctx, execOverhead)
	defer cancel()
	output, code, err := r.execSync(longer, timeoutOf(ctx), id.ID, command)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return output, code, err
}

func (r *Runtime) execSync(ctx context.Context, timeout int64, id string, command []string) ([]byte, int, error) {
	answer, err := r.pods.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: timeout})
	if err != nil {
		return nil, 0, fmt.Errorf("cri: running %q in container %s: %w", command, id, err)
	}
	return append(answer.Stdout, answer.Stderr...), int(answer.ExitCode), nil
}

// timeoutOf is how many seconds are left until ctx's deadline, at least one; 0: it has none.
func timeoutOf(ctx context.Context) int64 {
	deadline, limited := ctx.Deadline()
	if !limited {
		return 0
	}
	return max(1, wholeSeconds(time.Until(deadline)))
}

// beyondDeadline is a context that ends when ctx is cancelled, but later than its deadline.
func beyondDeadline(ctx context.Context, extra time.Duration) (context.Context, context.CancelFunc) {
	deadline, limited := ctx.Deadline()
	if !limited {
		return context.WithCancel(ctx)
	}
	longer, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(extra))
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel()
		}
	})
	return longer, func() {
		stop()
		cancel()
	}
}
