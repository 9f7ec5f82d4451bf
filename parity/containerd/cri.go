package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// awaitReady returns when the runtime and its network are ready.
func (c *Containerd) awaitReady(ctx context.Context) error {
	return c.retry(ctx, func(connection *grpc.ClientConn) error {
		status, err := cri.NewRuntimeServiceClient(connection).Status(ctx, &cri.StatusRequest{})
		if err != nil {
			return err
		}
		for _, condition := range status.GetStatus().GetConditions() {
			isRequired := condition.Type == cri.RuntimeReady || condition.Type == cri.NetworkReady
			if isRequired && !condition.Status {
				return fmt.Errorf("%s is false: %s: %s", condition.Type, condition.Reason, condition.Message)
			}
		}
		return nil
	})
}

// awaitImage returns when the CRI has noticed an image that was not imported through it.
func (c *Containerd) awaitImage(ctx context.Context, name string) error {
	return c.retry(ctx, func(connection *grpc.ClientConn) error {
		request := &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}}
		status, err := cri.NewImageServiceClient(connection).ImageStatus(ctx, request)
		if err == nil && status.Image == nil {
			err = fmt.Errorf("the CRI does not list image %s", name)
		}
		return err
	})
}

// retry calls try until it succeeds. It gives up when ctx ends or containerd exits.
func (c *Containerd) retry(ctx context.Context, try func(*grpc.ClientConn) error) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	var lastErr error
	for {
		err := c.withConnection(try)
		if err == nil {
			return nil
		}
		if lastErr == nil || ctx.Err() == nil { // an error caused by ctx hides the reason
			lastErr = err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), lastErr)
		case <-c.process.exited:
			return fmt.Errorf("containerd exited: %w", lastErr)
		}
	}
}

// removePods stops and removes every pod sandbox with its containers, if containerd runs.
func (c *Containerd) removePods() error {
	if c.process == nil {
		return nil
	}
	if err := c.Continue(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	return c.withConnection(func(connection *grpc.ClientConn) error {
		runtime := cri.NewRuntimeServiceClient(connection)
		list, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		if err != nil {
			return fmt.Errorf("containerd: list pods: %w", err)
		}
		var errs []error
		for _, sandbox := range list.Items {
			if err := removePod(ctx, runtime, sandbox.Id); err != nil {
				errs = append(errs, fmt.Errorf("containerd: remove pod %s: %w", sandbox.Metadata.Name, err))
			}
		}
		return errors.Join(errs...)
	})
}

func removePod(ctx context.Context, runtime cri.RuntimeServiceClient, id string) error {
	if _, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return err
	}
	_, err := runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

func (c *Containerd) withConnection(do func(*grpc.ClientConn) error) error {
	connection, err := grpc.NewClient(c.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	return do(connection)
}
