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

// exec is PRB-23. Time that is over is the container's failure; a runtime that cannot say anything is not.
func (c *Checker) exec(ctx context.Context, probe *v1.Probe, target Target) Outcome {
	if c.runtime == nil {
		return unknown(errors.New("there is no runtime to run a command in"))
	}
	command := expand(probe.Exec.Command, target.Container.Env)
	output, code, err := c.runtime.Exec(ctx, target.ID, command)
	output = output[:min(len(output), maxOutput)]
	switch {
	case err == nil && code == 0:
		return Outcome{Result: judge.Success, Message: string(output)}
	case err == nil:
		return failed(string(output))
	case isTimeout(ctx, err):
		return Outcome{Result: judge.Failure, TimedOut: true, Message: fmt.Sprintf(
			"command timed out: %q timed out after %s", strings.Join(command, " "), judge.Timeout(probe))}
	case status.Code(err) == codes.NotFound:
		return Outcome{Result: judge.NotFound, Message: err.Error()} // BUG-24
	default:
		return unknown(err)
	}
}

// isTimeout reports whether the command had its time, by our clock or the runtime's.
func isTimeout(ctx context.Context, err error) bool {
	return errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		status.Code(err) == codes.DeadlineExceeded
}

// expand puts the values of variables in place of $(NAME). Those whose values come from elsewhere are empty here: only
// what the spec itself says is known.
func expand(command []string, variables []v1.EnvVar) []string {
	values := make(map[string]string, len(variables))
	for i := range variables {
		values[variables[i].Name] = variables[i].Value
	}
	expanded := make([]string, len(command))
	for i, word := range command {
		expanded[i] = resolve.Expand(word, func(name string) (string, bool) {
			value, known := values[name]
			return value, known
		})
	}
	return expanded
}
