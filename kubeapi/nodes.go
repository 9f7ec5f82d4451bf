package kubeapi

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// GetNode reads the Node object of this name.
func (c *Client) GetNode(ctx context.Context, name string) (*v1.Node, error) {
	node := &v1.Node{}
	if err := read(c.rest.Get().Resource("nodes").Name(name).MaxRetries(0).Do(ctx), node); err != nil {
		return nil, fmt.Errorf("get node %s: %w", name, err)
	}
	return node, nil
}
