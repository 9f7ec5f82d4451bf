package cri

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime runs pods in one container runtime. Anybody may call its methods at any time, also at the same time; what must
// be in order for one pod, its caller keeps in order. Each call honours its context at once (BUG-27).
type Runtime struct {
	config  Config
	metrics *metrics
	pods    runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	links   []*grpc.ClientConn
	pulls   *pulls
	backoff *pullBackoff

	rotating chan struct{} // whoever rotates logs holds its one place

	mu       sync.Mutex // guards what follows: what the runtime told about itself, asked until it has answered once
	name     string     // "" until then
	driver   string     // of cgroups; "" until then
	noEvents bool       // it does not know GetContainerEvents
}

// New makes a Runtime. Nothing is called until somebody asks for something; a runtime that is not there yet is no error.
func New(config Config) (*Runtime, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	metrics, err := newMetrics(config.Metrics)
	if err != nil {
		return nil, err
	}
	r := &Runtime{
		config: config, metrics: metrics, pulls: newPulls(config.MaxParallelPulls),
		backoff: &pullBackoff{failed: map[backoffKey]pullFailure{}}, rotating: make(chan struct{}, 1),
	}
	pods, err := r.link(config.Endpoint)
	if err != nil {
		return nil, err
	}
	images := pods
	if config.ImageEndpoint != config.Endpoint {
		if images, err = r.link(config.ImageEndpoint); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	r.pods = runtimeapi.NewRuntimeServiceClient(pods)
	r.images = runtimeapi.NewImageServiceClient(images)
	return r, nil
}

// Close ends the connections. Calls that are under way fail.
func (r *Runtime) Close() error {
	var failed []error
	for _, link := range r.links {
		failed = append(failed, link.Close())
	}
	return errors.Join(failed...)
}

// runtimeName is what container IDs begin with. The runtime is asked until it has answered once.
func (r *Runtime) runtimeName(ctx context.Context) (string, error) {
	r.mu.Lock()
	name := r.name
	r.mu.Unlock()
	if name != "" {
		return name, nil
	}
	answer, err := r.pods.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return "", fmt.Errorf("cri: asking the runtime for its name: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.name = answer.RuntimeName
	return r.name, nil
}
