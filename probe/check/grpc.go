package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/probe/judge"
)

// health is PRB-28: whatever is not SERVING is a failure, and none is an error.
func (c *Checker) health(ctx context.Context, action *v1.GRPCAction, target Target) Outcome {
	address := net.JoinHostPort(target.Address.String(), strconv.Itoa(int(action.Port)))
	line, err := c.web("", target).network.dial(ctx, "tcp", address)
	if err != nil {
		return noAnswer(err)
	}
	defer func() { _ = line.Close() }() // gRPC may not have come to use it
	conn, err := speak(line)
	if err != nil {
		return failed(fmt.Sprintf("failed to connect to %s: %v", address, err))
	}
	defer func() { _ = conn.Close() }()
	request := &healthpb.HealthCheckRequest{}
	if action.Service != nil {
		request.Service = *action.Service
	}
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, request)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return failed(fmt.Sprintf("the server at %s does not implement grpc.health.v1.Health: %v", address, err))
	case err != nil:
		return failed(fmt.Sprintf("health check of service %q at %s: %v", request.Service, address, err))
	case answer.Status != healthpb.HealthCheckResponse_SERVING:
		return failed(fmt.Sprintf("service %q answers that it is %s", request.Service, answer.Status))
	default:
		return Outcome{Result: judge.Success}
	}
}

// speak has gRPC use an open connection, and no other: what is wrong with opening one is known by its own words then, which
// gRPC's errors do not keep.
func speak(line net.Conn) (*grpc.ClientConn, error) {
	lines := make(chan net.Conn, 1)
	lines <- line
	return grpc.NewClient("passthrough:///"+line.RemoteAddr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(userAgent),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case line := <-lines:
				return line, nil
			default:
				return nil, errors.New("the connection was closed")
			}
		}),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithMaxHeaderListSize(maxHeader),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxOutput)),
	)
}
