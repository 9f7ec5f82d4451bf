package check

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/probe/judge"
)

// connect is PRB-27: who accepts a connection is well.
func (w *web) connect(ctx context.Context, action *v1.TCPSocketAction, target Target) Outcome {
	port, err := portOf(action.Port, target.Container)
	if err != nil {
		return unknown(err)
	}
	conn, err := w.network.dial(ctx, "tcp", net.JoinHostPort(hostOf(action.Host, target), strconv.Itoa(int(port))))
	if err != nil {
		return noAnswer(err)
	}
	_ = conn.Close() // it was opened: that is all that was asked
	return Outcome{Result: judge.Success}
}

// noAnswer is the target's failure, unless it was never asked.
func noAnswer(err error) Outcome {
	var refused *refusedError
	switch {
	case errors.As(err, &refused):
		return unknown(refused)
	case isExhausted(err):
		return unknown(err)
	default:
		return failed(err.Error())
	}
}

// isExhausted reports whether it is the node that has nothing left to ask with: descriptors, memory, ports. No container
// is restarted for that (F28).
func isExhausted(err error) bool {
	for _, lack := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}
