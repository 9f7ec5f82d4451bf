package cri

import (
	"context"
	"fmt"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// largestAnswer holds a list of some 10 000 containers with their labels and annotations.
	largestAnswer = 64 << 20
	// pullTimeout ends a pull that the runtime's own watch over its progress does not end.
	pullTimeout = time.Hour
)

// link prepares the connection to one socket. It is made by the first call, and made again after it broke: a call in
// between fails at once, the next attempt comes 0.1 to 3 s later.
func (r *Runtime) link(endpoint string) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largestAnswer)),
		grpc.WithChainUnaryInterceptor(r.watchCall),
		grpc.WithContextDialer(r.config.dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	made, err := grpc.NewClient(endpoint, options...)
	if err != nil {
		return nil, fmt.Errorf("cri: %s: %w", endpoint, err)
	}
	r.links = append(r.links, made)
	return made, nil
}

// watchCall gives each call a deadline (F22) and counts it.
//
//nolint:revive // gRPC's signature
func (r *Runtime) watchCall(
	ctx context.Context, method string, request, reply any, link *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	bounded := ctx
	if patience := patienceFor(request, r.config.RequestTimeout); patience > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	begun := time.Now()
	err := invoke(bounded, method, request, reply, link, options...)
	if grpcstatus.Code(err) == codes.DeadlineExceeded {
		awaitDeadline(ctx)
	}
	r.metrics.countCall(operationType(path.Base(method)), time.Since(begun), err)
	if err != nil && ctx.Err() != nil { // gRPC's own errors do not say whose deadline it was
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

// awaitDeadline lets the caller's clock catch up: the server has the same deadline and may see it first, but callers ask
// their context whether it was theirs.
func awaitDeadline(ctx context.Context) {
	if deadline, limited := ctx.Deadline(); limited && time.Until(deadline) < time.Second {
		<-ctx.Done()
	}
}

// patienceFor is how long an answer may take; 0 is for a command without a limit, which ends with its context.
func patienceFor(request any, usual time.Duration) time.Duration {
	switch request := request.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		return 2 * usual
	case *runtimeapi.StopContainerRequest:
		return time.Duration(request.Timeout)*time.Second + usual
	case *runtimeapi.ExecSyncRequest:
		if request.Timeout == 0 {
			return 0
		}
		return time.Duration(request.Timeout)*time.Second + usual
	case *runtimeapi.PullImageRequest:
		return pullTimeout
	default:
		return usual
	}
}
