// Package podsapi serves the kubelet's Pods API: gRPC on a local socket, with which programs on the node list, get and watch its pods
// without the API server (KEP-4188, service v1alpha1.Pods).
//
// It differs from the kubelet where that loses or repeats changes: a watch never sends an older version after a newer one, nor one twice,
// announces changes of a spec, and gives a slow client the newest version of each pod instead of ending. A pod is DELETED when it is no
// longer listed.
package podsapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// Socket is the path of the socket below the directory that the kubelet calls its root directory (PGA-1).
const Socket = "pods-api/pods-api.sock"

// Agent provides the pods. *agent.Agent implements it. The server does not modify them.
type Agent interface {
	// LocalPods returns the pods with their local status.
	LocalPods() []*v1.Pod
	// LocalPodByUID returns the pod with this UID, or whose mirror pod has it, if LocalPods has the pod.
	LocalPodByUID(uid types.UID) (*v1.Pod, bool)
	// ChangedPods yields, from the call on, the UIDs of pods that LocalPods returns differently. It keeps no more than one entry per
	// pod for a slow reader.
	ChangedPods(ctx context.Context) iter.Seq[[]types.UID]
}

// Config configures a Server. Agent and Listen are required.
type Config struct {
	Agent Agent
	// Listen opens the socket. Run calls it again after a failure.
	Listen func(ctx context.Context) (net.Listener, error)
	// Ready reports whether all pods of the node are known. Until then requests fail, because an incomplete list would look like a
	// complete one (PGA-7). Defaults to always.
	Ready func() bool
	// QPS and Burst limit ListPods and GetPod, for all clients together. They default to 100 and 10, as for the kubelet (PGA-8).
	QPS   float64
	Burst int
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
}

// Server serves the Pods API. Call Run once.
type Server struct {
	v1alpha1.UnimplementedPodsServer

	config Config
	limit  *rate.Limiter
}

// New returns a Server.
func New(config Config) (*Server, error) {
	switch {
	case config.Agent == nil || config.Listen == nil:
		return nil, errors.New("podsapi.Config: Agent and Listen are required")
	case config.QPS < 0 || config.Burst < 0:
		return nil, errors.New("podsapi.Config: QPS and Burst must not be negative")
	}
	if config.Ready == nil {
		config.Ready = func() bool { return true }
	}
	config.QPS, config.Burst = cmp.Or(config.QPS, 100), cmp.Or(config.Burst, 10)
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	return &Server{config: config, limit: rate.NewLimiter(rate.Limit(config.QPS), config.Burst)}, nil
}

const (
	minRetry, maxRetry = time.Second, time.Minute
	// maxStreams bounds the concurrent requests of a connection.
	maxStreams = 100
)

// Run serves until ctx ends. A socket that cannot be opened is tried again: the pods do not depend on it.
func (s *Server) Run(ctx context.Context) error {
	for delay := minRetry; ; delay = min(2*delay, maxRetry) {
		listener, err := s.config.Listen(ctx)
		if err == nil {
			return s.serve(ctx, listener)
		}
		if ctx.Err() == nil && delay == minRetry { // once
			s.config.Logger.Error("Failed to listen for the Pods API, will retry", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
	}
}

func (s *Server) serve(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(s.limitRate), grpc.MaxConcurrentStreams(maxStreams))
	v1alpha1.RegisterPodsServer(server, s)
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		server.Stop() // ends watches, and waits for their handlers
	})
	s.config.Logger.Info("Serving the Pods API", "address", listener.Addr().String())
	err := server.Serve(listener)
	if !stop() {
		<-stopped
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the Pods API: %w", err)
	}
	return nil
}

// limitRate rejects requests beyond the limit. Watches do not count (PGA-8).
func (s *Server) limitRate(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !s.limit.Allow() {
		return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	return handler(ctx, request)
}

func (s *Server) checkReady() error {
	if !s.config.Ready() {
		return status.Error(codes.FailedPrecondition, "the pods of this node are not known yet: not all sources of pods were read")
	}
	return nil
}

// listPods returns the pods by UID (PGA-2).
func (s *Server) listPods() []*v1.Pod {
	pods := s.config.Agent.LocalPods()
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return pods
}

// ListPods implements v1alpha1.PodsServer.
func (s *Server) ListPods(context.Context, *v1alpha1.ListPodsRequest) (*v1alpha1.ListPodsResponse, error) {
	if err := s.checkReady(); err != nil {
		return nil, err
	}
	response := &v1alpha1.ListPodsResponse{}
	for _, pod := range s.listPods() {
		data, err := marshal(pod)
		if err != nil {
			return nil, err
		}
		response.Pods = append(response.Pods, data)
	}
	return response, nil
}

// GetPod implements v1alpha1.PodsServer. It finds a static pod by the UID of its mirror pod too, which is the one that the API server
// shows (PGA-3).
func (s *Server) GetPod(_ context.Context, request *v1alpha1.GetPodRequest) (*v1alpha1.GetPodResponse, error) {
	if err := s.checkReady(); err != nil {
		return nil, err
	}
	pod, found := s.config.Agent.LocalPodByUID(types.UID(request.GetPodUID()))
	if !found {
		return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", request.GetPodUID())
	}
	data, err := marshal(pod)
	if err != nil {
		return nil, err
	}
	return &v1alpha1.GetPodResponse{Pod: data}, nil
}

func marshal(pod *v1.Pod) ([]byte, error) {
	data, err := pod.Marshal()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "marshal pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
	return data, nil
}
