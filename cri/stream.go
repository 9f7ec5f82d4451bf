package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StreamExec asks the runtime for a URL that runs a command in a container when a client connects to it. Runtimes keep a URL for a
// minute and serve it once.
func (r *Runtime) StreamExec(ctx context.Context, request *runtimeapi.ExecRequest) (string, error) {
	response, err := r.runtime.Exec(ctx, request)
	if err != nil {
		return "", fmt.Errorf("cri: exec in container %s: %w", request.GetContainerId(), err)
	}
	return response.GetUrl(), nil
}

// StreamAttach asks the runtime for a URL that connects a client with the main process of a container.
func (r *Runtime) StreamAttach(ctx context.Context, request *runtimeapi.AttachRequest) (string, error) {
	response, err := r.runtime.Attach(ctx, request)
	if err != nil {
		return "", fmt.Errorf("cri: attach to container %s: %w", request.GetContainerId(), err)
	}
	return response.GetUrl(), nil
}

// StreamPortForward asks the runtime for a URL that connects a client with ports of a sandbox.
func (r *Runtime) StreamPortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (string, error) {
	response, err := r.runtime.PortForward(ctx, request)
	if err != nil {
		return "", fmt.Errorf("cri: forward ports of sandbox %s: %w", request.GetPodSandboxId(), err)
	}
	return response.GetUrl(), nil
}
