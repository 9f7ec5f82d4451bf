package kubeapi

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// GetConfigMap reads a config map. A node may read those that its pods refer to.
func (c *Client) GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	found := &v1.ConfigMap{}
	return found, c.get(ctx, "configmaps", namespace, name, found)
}

// GetSecret reads a secret. A node may read those that its pods refer to.
func (c *Client) GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	found := &v1.Secret{}
	return found, c.get(ctx, "secrets", namespace, name, found)
}

func (c *Client) get(ctx context.Context, resource, namespace, name string, into object) error {
	request := c.rest.Get().Namespace(namespace).Resource(resource).Name(name).MaxRetries(0)
	if err := read(request.Do(ctx), into); err != nil {
		return fmt.Errorf("get %s %s/%s: %w", resource, namespace, name, err)
	}
	return nil
}

// ListServices reads the services of a namespace: their addresses are part of a container's environment.
func (c *Client) ListServices(ctx context.Context, namespace string) ([]v1.Service, error) {
	found := &v1.ServiceList{}
	request := c.rest.Get().Namespace(namespace).Resource("services").MaxRetries(0)
	// Any version will do: a service that was made this second is not what a container waits for.
	options := &metav1.ListOptions{ResourceVersion: "0"}
	if err := request.VersionedParams(options, metav1.ParameterCodec).Do(ctx).Into(found); err != nil {
		return nil, fmt.Errorf("list services in %s: %w", namespace, err)
	}
	return found.Items, nil
}

// CreateToken asks for a token of a service account. A node may do so for those of its pods, if the request is bound to
// the pod.
func (c *Client) CreateToken(
	ctx context.Context, namespace, account string, wanted *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	issued := &authenticationv1.TokenRequest{}
	request := c.rest.Post().Namespace(namespace).Resource("serviceaccounts").Name(account).SubResource("token").MaxRetries(0)
	if err := request.Body(wanted).Do(ctx).Into(issued); err != nil {
		return nil, fmt.Errorf("create a token of service account %s/%s: %w", namespace, account, err)
	}
	return issued, nil
}

// CreateEvent tells the cluster of an event and returns it as the server keeps it.
func (c *Client) CreateEvent(ctx context.Context, event *v1.Event) (*v1.Event, error) {
	created := &v1.Event{}
	request := c.rest.Post().Namespace(event.Namespace).Resource("events").Body(event).MaxRetries(0)
	if err := read(request.Do(ctx), created); err != nil {
		return nil, fmt.Errorf("create event %s/%s: %w", event.Namespace, event.Name, err)
	}
	return created, nil
}

// PatchEvent applies a strategic merge patch to an event that happened again.
func (c *Client) PatchEvent(ctx context.Context, namespace, name string, patch []byte) (*v1.Event, error) {
	patched := &v1.Event{}
	request := c.rest.Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("events").Name(name).MaxRetries(0)
	if err := read(request.Body(patch).Do(ctx), patched); err != nil {
		return nil, fmt.Errorf("patch event %s/%s: %w", namespace, name, err)
	}
	return patched, nil
}
