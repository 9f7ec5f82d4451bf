package kubeapi

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// GetLease reads a node's lease, which has the node's name.
func (c *Client) GetLease(ctx context.Context, node string) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	if err := read(onLeases(c.rest.Get(), node).Do(ctx), lease); err != nil {
		return nil, fmt.Errorf("get lease of node %s: %w", node, err)
	}
	return lease, nil
}

// CreateLease makes a node's lease and returns it as the server keeps it.
func (c *Client) CreateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	created := &coordinationv1.Lease{}
	if err := read(onLeases(c.rest.Post()).Body(lease).Do(ctx), created); err != nil {
		return nil, fmt.Errorf("create lease of node %s: %w", lease.Name, err)
	}
	return created, nil
}

// UpdateLease replaces a node's lease, if it is still at the resource version that is given.
func (c *Client) UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	updated := &coordinationv1.Lease{}
	if err := read(onLeases(c.rest.Put(), lease.Name).Body(lease).Do(ctx), updated); err != nil {
		return nil, fmt.Errorf("update lease of node %s: %w", lease.Name, err)
	}
	return updated, nil
}

// onLeases aims at the leases of nodes, or at one of them. Their group is not the one that the client's paths begin with.
func onLeases(request *rest.Request, name ...string) *rest.Request {
	path := []string{"/apis", coordinationv1.GroupName, "v1", "namespaces", v1.NamespaceNodeLease, "leases"}
	return request.AbsPath(append(path, name...)...).MaxRetries(0)
}
