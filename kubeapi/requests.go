package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// GetPod reads the pod with this name, whatever its UID.
func (c *Client) GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	request := c.rest.Get().Namespace(namespace).Resource("pods").Name(name)
	return do[v1.Pod](ctx, request, "get pod", key{namespace, name})
}

// CreatePod creates the pod and returns the stored object.
func (c *Client) CreatePod(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	request := c.rest.Post().Namespace(pod.Namespace).Resource("pods").Body(pod)
	return do[v1.Pod](ctx, request, "create pod", key{pod.Namespace, pod.Name})
}

var errUIDRequired = errors.New("a UID is required: the name may belong to another pod by now")

// DeletePod deletes the pod with this name and UID, without grace period. The UID is required, because the name may belong to
// another pod by now (F13).
func (c *Client) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	if uid == "" {
		return fmt.Errorf("delete pod %s/%s: %w", namespace, name, errUIDRequired)
	}
	var noGracePeriod int64
	options := &metav1.DeleteOptions{GracePeriodSeconds: &noGracePeriod, Preconditions: &metav1.Preconditions{UID: &uid}}
	request := c.rest.Delete().Namespace(namespace).Resource("pods").Name(name).MaxRetries(0)
	// Decode the response, a pod or a Status: a body that is neither does not come from an API server (F10).
	if _, err := request.Body(options).Do(ctx).Get(); err != nil {
		return fmt.Errorf("delete pod %s/%s with UID %s: %w", namespace, name, uid, err)
	}
	return nil
}

// PatchPodStatus applies a strategic merge patch to the pod's status subresource. It returns only the metadata: decoding the
// whole pod costs ten times as much, and the watch delivers it anyway.
func (c *Client) PatchPodStatus(
	ctx context.Context, namespace, name string, patch []byte,
) (*metav1.PartialObjectMetadata, error) {
	request := c.rest.Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("pods").Name(name).SubResource("status")
	request.SetHeader("Accept", c.metadataOnly).Body(patch)
	return do[metav1.PartialObjectMetadata](ctx, request, "patch status of pod", key{namespace, name})
}

// PodsOnNode lists and watches the pods that are bound to the node, in all namespaces. A client-go Reflector can use it,
// including streaming lists.
//
// It never returns stale pods first: a Reflector of a server without streaming lists starts with resource version 0, which a
// lagging server may answer with pods that are long gone, or none. Such requests read the newest version instead (F12).
func (c *Client) PodsOnNode(nodeName string) cache.ListerWatcher {
	selector := fields.OneTermEqualSelector("spec.nodeName", nodeName).String()
	newRequest := func(options metav1.ListOptions) *rest.Request {
		options.FieldSelector = selector
		if options.ResourceVersion == "0" {
			options.ResourceVersion = ""
		}
		return c.rest.Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec).MaxRetries(0)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			pods := &v1.PodList{}
			return pods, newRequest(options).Do(ctx).Into(pods)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return newRequest(options).Watch(ctx)
		},
	}
}

// GetNode reads the Node object.
func (c *Client) GetNode(ctx context.Context, name string) (*v1.Node, error) {
	return do[v1.Node](ctx, c.rest.Get().Resource("nodes").Name(name), "get node", key{name: name})
}

// CreateNode registers the node and returns the stored object. A node may create only its own Node object.
func (c *Client) CreateNode(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	return do[v1.Node](ctx, c.rest.Post().Resource("nodes").Body(node), "create node", key{name: node.Name})
}

// PatchNode applies a strategic merge patch to the Node object. It does not change the status.
func (c *Client) PatchNode(ctx context.Context, name string, patch []byte) (*v1.Node, error) {
	request := c.rest.Patch(types.StrategicMergePatchType).Resource("nodes").Name(name).Body(patch)
	return do[v1.Node](ctx, request, "patch node", key{name: name})
}

// PatchNodeStatus applies a strategic merge patch to the node's status subresource.
func (c *Client) PatchNodeStatus(ctx context.Context, name string, patch []byte) (*v1.Node, error) {
	request := c.rest.Patch(types.StrategicMergePatchType).Resource("nodes").Name(name).SubResource("status").Body(patch)
	return do[v1.Node](ctx, request, "patch status of node", key{name: name})
}

// GetLease reads the lease of the node.
func (c *Client) GetLease(ctx context.Context, nodeName string) (*coordinationv1.Lease, error) {
	return do[coordinationv1.Lease](ctx, onLease(c.rest.Get(), nodeName), "get lease of node", key{name: nodeName})
}

// CreateLease creates a node's lease and returns the stored object.
func (c *Client) CreateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return do[coordinationv1.Lease](ctx, onLease(c.rest.Post()).Body(lease), "create lease of node", key{name: lease.Name})
}

// UpdateLease replaces a node's lease if its resource version is current.
func (c *Client) UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	request := onLease(c.rest.Put(), lease.Name).Body(lease)
	return do[coordinationv1.Lease](ctx, request, "update lease of node", key{name: lease.Name})
}

// onLease sets the path to the node leases, or to one of them. Their API group differs from the client's.
func onLease(request *rest.Request, name ...string) *rest.Request {
	path := []string{"/apis", coordinationv1.GroupName, "v1", "namespaces", v1.NamespaceNodeLease, "leases"}
	return request.AbsPath(append(path, name...)...)
}

// GetConfigMap reads a config map. A node may read those that its pods refer to.
func (c *Client) GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	request := c.rest.Get().Namespace(namespace).Resource("configmaps").Name(name)
	return do[v1.ConfigMap](ctx, request, "get config map", key{namespace, name})
}

// GetSecret reads a secret. A node may read those that its pods refer to.
func (c *Client) GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	request := c.rest.Get().Namespace(namespace).Resource("secrets").Name(name)
	return do[v1.Secret](ctx, request, "get secret", key{namespace, name})
}

// WatchConfigMap sends the changes of a config map after the version, or its state and then the changes if there is no
// version. A node may watch those that its pods refer to.
func (c *Client) WatchConfigMap(ctx context.Context, namespace, name, resourceVersion string) (watch.Interface, error) {
	return c.watchObject(ctx, c.rest.Get().Namespace(namespace).Resource("configmaps"), key{namespace, name}, resourceVersion)
}

// WatchSecret sends the changes of a secret like WatchConfigMap.
func (c *Client) WatchSecret(ctx context.Context, namespace, name, resourceVersion string) (watch.Interface, error) {
	return c.watchObject(ctx, c.rest.Get().Namespace(namespace).Resource("secrets"), key{namespace, name}, resourceVersion)
}

// GetRuntimeClass reads a runtime class.
func (c *Client) GetRuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	return do[nodev1.RuntimeClass](ctx, onRuntimeClass(c.rest.Get(), name), "get runtime class", key{name: name})
}

// WatchRuntimeClass sends the changes of a runtime class like WatchConfigMap.
func (c *Client) WatchRuntimeClass(ctx context.Context, name, resourceVersion string) (watch.Interface, error) {
	return c.watchObject(ctx, onRuntimeClass(c.rest.Get()), key{name: name}, resourceVersion)
}

// onRuntimeClass sets the path to the runtime classes, or to one of them. Their API group differs from the client's.
func onRuntimeClass(request *rest.Request, name ...string) *rest.Request {
	return request.AbsPath(append([]string{"/apis", nodev1.GroupName, "v1", "runtimeclasses"}, name...)...)
}

// minWatchTimeout is the least duration of a watch of one object. The server ends it within twice that time.
const minWatchTimeout = time.Hour

// watchObject watches one object of the request's resource. The Node authorizer recognizes it by the field selector.
func (c *Client) watchObject(ctx context.Context, request *rest.Request, object key, resourceVersion string) (watch.Interface, error) {
	timeout := int64((minWatchTimeout + rand.N(minWatchTimeout)).Seconds()) //nolint:gosec // spreads load, not security-relevant
	options := &metav1.ListOptions{
		Watch: true, ResourceVersion: resourceVersion, TimeoutSeconds: &timeout,
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, object.name).String(),
	}
	stream, err := request.VersionedParams(options, metav1.ParameterCodec).MaxRetries(0).Watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch %s %s: %w", path.Base(request.URL().Path), object, err)
	}
	return stream, nil
}

// ListServices lists the services of a namespace, whose addresses are part of a container's environment.
func (c *Client) ListServices(ctx context.Context, namespace string) ([]v1.Service, error) {
	services := &v1.ServiceList{}
	// Version 0 allows a cached response: no container depends on a service created a moment ago.
	options := &metav1.ListOptions{ResourceVersion: "0"}
	request := c.rest.Get().Namespace(namespace).Resource("services").VersionedParams(options, metav1.ParameterCodec)
	if err := request.MaxRetries(0).Do(ctx).Into(services); err != nil {
		return nil, fmt.Errorf("list services in namespace %s: %w", namespace, err)
	}
	return services.Items, nil
}

// CreateToken requests a token of a service account. A node may do so for the service accounts of its pods, if the request is
// bound to the pod.
func (c *Client) CreateToken(
	ctx context.Context, namespace, account string, tokenRequest *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	issued := &authenticationv1.TokenRequest{}
	request := c.rest.Post().Namespace(namespace).Resource("serviceaccounts").Name(account).SubResource("token")
	if err := request.Body(tokenRequest).MaxRetries(0).Do(ctx).Into(issued); err != nil {
		return nil, fmt.Errorf("create token of service account %s/%s: %w", namespace, account, err)
	}
	return issued, nil
}

// CreateEvent creates an event and returns the stored object.
func (c *Client) CreateEvent(ctx context.Context, event *v1.Event) (*v1.Event, error) {
	request := c.rest.Post().Namespace(event.Namespace).Resource("events").Body(event)
	return do[v1.Event](ctx, request, "create event", key{event.Namespace, event.Name})
}

// PatchEvent applies a strategic merge patch to an event that occurred again.
func (c *Client) PatchEvent(ctx context.Context, namespace, name string, patch []byte) (*v1.Event, error) {
	request := c.rest.Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("events").Name(name).Body(patch)
	return do[v1.Event](ctx, request, "patch event", key{namespace, name})
}
