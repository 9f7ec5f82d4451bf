package check

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"

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
	var exhausted atomic.Bool // gRPC's own errors have only the words of what went wrong
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(userAgent),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := c.web("", target).network.dial(ctx, "tcp", address)
			exhausted.Store(isExhausted(err))
			return conn, err
		}),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithMaxHeaderListSize(maxHeader),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxOutput)),
	)
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
	case err != nil && exhausted.Load():
		return unknown(err)
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
