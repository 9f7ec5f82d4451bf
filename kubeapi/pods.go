package kubeapi

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// GetPod reads the pod of this name, whatever its UID.
func (c *Client) GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	pod := &v1.Pod{}
	if err := read(podRequest(c.rest.Get(), namespace, name).Do(ctx), pod); err != nil {
		return nil, fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	return pod, nil
}

// CreatePod creates the pod and returns it as the server keeps it: with a UID, defaults, and a status of the server's.
func (c *Client) CreatePod(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	created := &v1.Pod{}
	request := c.rest.Post().Namespace(pod.Namespace).Resource("pods").Body(pod).MaxRetries(0)
	if err := read(request.Do(ctx), created); err != nil {
		return nil, fmt.Errorf("create pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return created, nil
}

// DeletePod removes the pod with this name and this UID at once, without a grace period. An empty UID is an error: the
// name alone may by now belong to another pod (F13).
func (c *Client) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	if uid == "" {
		return fmt.Errorf("delete pod %s/%s: %w", namespace, name, errNoUID)
	}
	var now int64
	options := &metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &uid}}
	// The answer is read, be it the pod or a Status: a body that is neither is no API server's (F10).
	if _, err := podRequest(c.rest.Delete(), namespace, name).Body(options).Do(ctx).Get(); err != nil {
		return fmt.Errorf("delete pod %s/%s with UID %s: %w", namespace, name, uid, err)
	}
	return nil
}

var errNoUID = errors.New("no UID given, and a name alone may have been taken over by another pod")

// PatchPodStatus applies a strategic merge patch to the pod's status subresource. Only the metadata comes back, for the
// whole pod would cost ten times as much to read and arrives by the watch anyway.
func (c *Client) PatchPodStatus(
	ctx context.Context, namespace, name string, patch []byte,
) (*metav1.PartialObjectMetadata, error) {
	patched := &metav1.PartialObjectMetadata{}
	request := podRequest(c.rest.Patch(types.StrategicMergePatchType), namespace, name).SubResource("status")
	if err := read(request.SetHeader("Accept", c.metadataOnly).Body(patch).Do(ctx), patched); err != nil {
		return nil, fmt.Errorf("patch status of pod %s/%s: %w", namespace, name, err)
	}
	return patched, nil
}

// podRequest addresses the request to one pod. It is sent once: client-go would sleep through a 429 in the caller's
// goroutine, up to ten times (F4).
func podRequest(request *rest.Request, namespace, name string) *rest.Request {
	return request.Namespace(namespace).Resource("pods").Name(name).MaxRetries(0)
}
