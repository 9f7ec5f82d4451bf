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
	return c.eventually(ctx, func(connection *grpc.ClientConn) error {
		status, err := cri.NewRuntimeServiceClient(connection).Status(ctx, &cri.StatusRequest{})
		if err != nil {
			return err
		}
		for _, condition := range status.GetStatus().GetConditions() {
			matters := condition.Type == cri.RuntimeReady || condition.Type == cri.NetworkReady
			if matters && !condition.Status {
				return fmt.Errorf("%s is false: %s: %s", condition.Type, condition.Reason, condition.Message)
			}
		}
		return nil
	})
}

// awaitImage returns when the CRI has noticed an image that was imported behind its back.
func (c *Containerd) awaitImage(ctx context.Context, name string) error {
	return c.eventually(ctx, func(connection *grpc.ClientConn) error {
		request := &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}}
		status, err := cri.NewImageServiceClient(connection).ImageStatus(ctx, request)
		if err == nil && status.Image == nil {
			err = fmt.Errorf("the CRI does not list image %s", name)
		}
		return err
	})
}

// eventually tries until it succeeds. It gives up when ctx ends or containerd does.
func (c *Containerd) eventually(ctx context.Context, try func(*grpc.ClientConn) error) error {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	var last error
	for {
		err := c.connected(try)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // the end of ctx is not the reason
			last = err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), last)
		case <-c.process.done:
			return fmt.Errorf("it has ended: %w", last)
		}
	}
}

// removePods stops and removes every pod sandbox with its containers, in order, where containerd runs.
func (c *Containerd) removePods() error {
	if c.process == nil {
		return nil
	}
	if err := c.Continue(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c.connected(func(connection *grpc.ClientConn) error {
		runtime := cri.NewRuntimeServiceClient(connection)
		list, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		if err != nil {
			return fmt.Errorf("containerd: listing pods to remove: %w", err)
		}
		var failed []error
		for _, sandbox := range list.Items {
			if err := removePod(ctx, runtime, sandbox.Id); err != nil {
				failed = append(failed, fmt.Errorf("containerd: removing pod %s: %w", sandbox.Metadata.Name, err))
			}
		}
		return errors.Join(failed...)
	})
}

func removePod(ctx context.Context, runtime cri.RuntimeServiceClient, id string) error {
	if _, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return err
	}
	_, err := runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

func (c *Containerd) connected(do func(*grpc.ClientConn) error) error {
	connection, err := grpc.NewClient(c.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	return do(connection)
}
