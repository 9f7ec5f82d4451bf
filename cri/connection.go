package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/internal/permission"
	"github.com/heraldnode/herald/plan"
)

// maxResponseSize fits a list of about 10 000 containers with their labels and annotations.
const maxResponseSize = 64 << 20

// connect prepares the connection to a socket. The first call establishes it. After a failure, calls fail at once and gRPC
// reconnects 0.1 to 3 s later.
func (r *Runtime) connect(endpoint string) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponseSize)),
		grpc.WithChainUnaryInterceptor(r.interceptCall),
		grpc.WithContextDialer(r.dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	connection, err := grpc.NewClient(endpoint, options...)
	if err != nil {
		return nil, fmt.Errorf("cri: connect to %s: %w", endpoint, err)
	}
	r.connections = append(r.connections, connection)
	return connection, nil
}

// dial connects to a socket. The runtime behind it may be another version, which implements other calls.
func (r *Runtime) dial(ctx context.Context, address string) (net.Conn, error) {
	connection, err := r.config.dial(ctx, address)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unsupported = calls{connection: r.unsupported.connection + 1}
	}
	return connection, err
}

// dialSocket connects to a runtime's socket. It only accepts a listener that is root or the agent's own user: the runtime
// receives secrets, and its reports about containers are trusted.
func dialSocket(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(address, "unix://"))
	if err != nil {
		return nil, err
	}
	if err := permission.New("control the containers").CheckPeer(conn.(*net.UnixConn)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// interceptCall gives each call a deadline (F22) and counts it.
//
//nolint:revive // gRPC's signature
func (r *Runtime) interceptCall(
	ctx context.Context, method string, request, reply any, connection *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	bounded := ctx
	if timeout := callTimeout(request, r.config.RequestTimeout); timeout > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	started := time.Now()
	err := invoke(bounded, method, request, reply, connection, options...)
	if grpcstatus.Code(err) == codes.DeadlineExceeded {
		awaitDeadline(ctx)
	}
	r.metrics.observeCall(operationType(path.Base(method)), time.Since(started), err)
	if err != nil && ctx.Err() != nil { // gRPC's errors do not tell the caller's deadline from this one
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

// withoutInterrupt returns a context for a call that creates or starts something. An interrupted caller waits for such a call
// once it is sent, for at most the request timeout: containerd kills the half-started task of a cancelled StartContainer,
// which would be reported as a StartError. Any other end of ctx ends the call at once.
func withoutInterrupt(ctx context.Context) (context.Context, context.CancelFunc) {
	call, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, plan.ErrInterrupted) {
			cancel(cause)
		}
	})
	if ctx.Err() != nil { // not sent yet
		cancel(ctx.Err())
	}
	return call, func() { stop(); cancel(nil) }
}

// awaitDeadline waits until ctx ends if its deadline is due. The server has the same deadline and may notice it first, but
// callers check ctx to learn whether the deadline was theirs.
func awaitDeadline(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < time.Second {
		<-ctx.Done()
	}
}

// callTimeout returns how long a response may take. 0 is no limit: a command without a timeout ends with its context. So does a
// pull, which the runtime cancels when it makes no progress.
func callTimeout(request any, requestTimeout time.Duration) time.Duration {
	switch request := request.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		return 2 * requestTimeout
	case *runtimeapi.StopContainerRequest:
		return time.Duration(request.Timeout)*time.Second + requestTimeout
	case *runtimeapi.ExecSyncRequest:
		if request.Timeout == 0 {
			return 0
		}
		return time.Duration(request.Timeout)*time.Second + requestTimeout
	case *runtimeapi.PullImageRequest:
		return 0
	default:
		return requestTimeout
	}
}
