package kubeapi

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// CreateNode registers a node and returns it as the server keeps it. A node may create only itself.
func (c *Client) CreateNode(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	created := &v1.Node{}
	if err := read(c.rest.Post().Resource("nodes").Body(node).MaxRetries(0).Do(ctx), created); err != nil {
		return nil, fmt.Errorf("create node %s: %w", node.Name, err)
	}
	return created, nil
}

// PatchNode applies a strategic merge patch to the node itself: its labels and the like. The status stays as it is.
func (c *Client) PatchNode(ctx context.Context, name string, patch []byte) (*v1.Node, error) {
	patched := &v1.Node{}
	request := c.rest.Patch(types.StrategicMergePatchType).Resource("nodes").Name(name).MaxRetries(0)
	if err := read(request.Body(patch).Do(ctx), patched); err != nil {
		return nil, fmt.Errorf("patch node %s: %w", name, err)
	}
	return patched, nil
}

// PatchNodeStatus applies a strategic merge patch to the node's status subresource.
func (c *Client) PatchNodeStatus(ctx context.Context, name string, patch []byte) (*v1.Node, error) {
	patched := &v1.Node{}
	request := c.rest.Patch(types.StrategicMergePatchType).Resource("nodes").Name(name).SubResource("status").MaxRetries(0)
	if err := read(request.Body(patch).Do(ctx), patched); err != nil {
		return nil, fmt.Errorf("patch status of node %s: %w", name, err)
	}
	return patched, nil
}
