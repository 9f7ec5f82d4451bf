package kubeapi

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// PodsOnNode lists and watches the pods that are bound to this node, in all namespaces; a client-go Reflector runs on
// it, streamed lists included.
//
// What it shows first is never stale: "any version will do", a Reflector's first wish when the server does not stream
// lists, is raised to "the newest" here, because a lagging server would answer it with pods that are long gone, or with
// none (F12).
func (c *Client) PodsOnNode(node string) cache.ListerWatcher {
	onNode := fields.OneTermEqualSelector("spec.nodeName", node).String()
	request := func(options metav1.ListOptions) *rest.Request {
		options.FieldSelector = onNode
		if options.ResourceVersion == "0" {
			options.ResourceVersion = ""
		}
		return c.rest.Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec).MaxRetries(0)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			pods := &v1.PodList{}
			return pods, request(options).Do(ctx).Into(pods)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return request(options).Watch(ctx)
		},
	}
}
