package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/observed"
)

// execOverhead is how long a runtime may take to start a command and to respond, in addition to the command's own timeout.
const execOverhead = 10 * time.Second

// maxExecResponse limits the output of a command. Runtimes return up to 16 MiB of each stream, and many commands can run at
// once. A larger response is not read, and its exit code is unknown.
const maxExecResponse = 4 << 20

// Exec runs a command in a running container and returns its output, stdout first, and its exit code. A command that ran
// returns no error, whatever its exit code. The deadline of ctx is the command's timeout: the runtime counts it from the start
// of the command and then kills it. A busy node that starts the command late must not fail a probe (PRB-23), so Exec may
// return up to execOverhead after the deadline. It returns at once when ctx is cancelled.
func (r *Runtime) Exec(ctx context.Context, id observed.ContainerID, command []string) ([]byte, int, error) {
	callCtx, cancel := extendDeadline(ctx, execOverhead)
	defer cancel()
	output, exitCode, err := r.execSync(callCtx, timeoutSeconds(ctx), id.ID, command)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return output, exitCode, err
}

func (r *Runtime) execSync(ctx context.Context, timeout int64, id string, command []string) ([]byte, int, error) {
	request := &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: timeout}
	response, err := r.runtime.ExecSync(ctx, request, grpc.MaxCallRecvMsgSize(maxExecResponse))
	if grpcstatus.Code(err) == codes.ResourceExhausted {
		err = fmt.Errorf("the output must not exceed %d MiB: %w", maxExecResponse>>20, err)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("cri: exec %q in container %s: %w", command, id, err)
	}
	return append(response.Stdout, response.Stderr...), int(response.ExitCode), nil
}

// timeoutSeconds returns the seconds until the deadline of ctx, at least 1, or 0 without a deadline.
func timeoutSeconds(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(1, ceilSeconds(time.Until(deadline)))
}

// ceilSeconds rounds up: the CRI's whole seconds must not shorten a timeout.
func ceilSeconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

// extendDeadline returns a context that ends when ctx is cancelled, but extra later than its deadline.
func extendDeadline(ctx context.Context, extra time.Duration) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	extended, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(extra))
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel()
		}
	})
	return extended, func() {
		stop()
		cancel()
	}
}
