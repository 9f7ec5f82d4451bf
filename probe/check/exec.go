package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/probe/judge"
	"github.com/heraldnode/herald/provision/resolve"
)

// checkExec is PRB-23. A timeout is a failure of the container. An error of the runtime is not.
func (c *Checker) checkExec(ctx context.Context, probe *v1.Probe, target Target) Outcome {
	if c.runtime == nil {
		return newError(errors.New("no runtime to run commands"))
	}
	command := expandCommand(probe.Exec.Command, target.Container.Env)
	output, exitCode, err := c.runtime.Exec(ctx, target.ID, command)
	output = output[:min(len(output), maxOutput)]
	switch {
	case err == nil && exitCode == 0:
		return Outcome{Result: judge.Success, Message: string(output)}
	case err == nil:
		return newFailure(string(output))
	case isTimeout(ctx, err):
		return Outcome{Result: judge.Failure, TimedOut: true, Message: fmt.Sprintf(
			"command timed out: %q timed out after %s", strings.Join(command, " "), judge.Timeout(probe))}
	case status.Code(err) == codes.NotFound:
		return Outcome{Result: judge.NotFound, Message: err.Error()} // BUG-24
	default:
		return newError(err)
	}
}

// isTimeout reports whether the command timed out, by our clock or by the runtime's.
func isTimeout(ctx context.Context, err error) bool {
	return errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		status.Code(err) == codes.DeadlineExceeded
}

// expandCommand replaces $(NAME) by the value of the variable. Variables with valueFrom are empty: only the spec is known
// here.
func expandCommand(command []string, variables []v1.EnvVar) []string {
	values := make(map[string]string, len(variables))
	for i := range variables {
		values[variables[i].Name] = variables[i].Value
	}
	expanded := make([]string, len(command))
	for i, word := range command {
		expanded[i] = resolve.Expand(word, func(name string) (string, bool) {
			value, ok := values[name]
			return value, ok
		})
	}
	return expanded
}
