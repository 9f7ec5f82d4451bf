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

// checkGRPC is PRB-28: anything but SERVING is a failure, and nothing is an error.
func (d dialer) checkGRPC(ctx context.Context, action *v1.GRPCAction, target Target) Outcome {
	address := net.JoinHostPort(target.Address.String(), strconv.Itoa(int(action.Port)))
	conn, err := d.dial(ctx, "tcp", address)
	if err != nil {
		return newDialOutcome(err)
	}
	defer func() { _ = conn.Close() }() // the gRPC client may not have used it
	client, err := newGRPCClient(conn)
	if err != nil {
		return newFailure(fmt.Sprintf("failed to connect to %s: %v", address, err))
	}
	defer func() { _ = client.Close() }()
	request := &healthpb.HealthCheckRequest{}
	if action.Service != nil {
		request.Service = *action.Service
	}
	response, err := healthpb.NewHealthClient(client).Check(ctx, request)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return newFailure(fmt.Sprintf("the server at %s does not implement grpc.health.v1.Health: %v", address, err))
	case err != nil:
		return newFailure(fmt.Sprintf("health check of service %q at %s: %v", request.Service, address, err))
	case response.Status != healthpb.HealthCheckResponse_SERVING:
		return newFailure(fmt.Sprintf("service %q is %s", request.Service, response.Status))
	default:
		return Outcome{Result: judge.Success}
	}
}

// newGRPCClient returns a client over an open connection. It never opens another one: gRPC's errors do not preserve why a
// connection failed.
func newGRPCClient(conn net.Conn) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+conn.RemoteAddr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(userAgent),
		grpc.WithContextDialer(dialOnce(conn)),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithMaxHeaderListSize(maxHeader),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxOutput)),
	)
}

// dialOnce returns a dial function that yields the open connection the first time and fails afterwards.
func dialOnce(conn net.Conn) func(context.Context, string) (net.Conn, error) {
	conns := make(chan net.Conn, 1)
	conns <- conn
	return func(context.Context, string) (net.Conn, error) {
		select {
		case conn := <-conns:
			return conn, nil
		default:
			return nil, errors.New("the server closed the connection or requires another one")
		}
	}
}
