package provision

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// newRuntimeClassCache returns a cache of runtime classes, which have no namespace.
func newRuntimeClassCache(config Config, requests *background, slots chan struct{}) *objectCache[*nodev1.RuntimeClass] {
	kind := &objectKind[*nodev1.RuntimeClass]{
		resource: nodev1.Resource("runtimeclasses"), slots: slots,
		isImmutable: func(*nodev1.RuntimeClass) bool { return false }, // the handler cannot change, but the class can be replaced
	}
	if config.Watcher != nil {
		kind.watch = func(ctx context.Context, _, name, resourceVersion string) (watch.Interface, error) {
			return config.Watcher.WatchRuntimeClass(ctx, name, resourceVersion)
		}
	}
	read := func(ctx context.Context, _, name string) (*nodev1.RuntimeClass, error) {
		return config.API.GetRuntimeClass(ctx, name)
	}
	return newObjectCache(config, requests, read, kind)
}

// RuntimeHandler returns the handler of the pod's runtime class, which must be set.
func (p *Provisioner) RuntimeHandler(ctx context.Context, pod *v1.Pod) (string, error) {
	if p.config.API == nil {
		return "", errNoAPIServer
	}
	name := *pod.Spec.RuntimeClassName
	class, err := p.runtimeClasses.get(ctx, "", name, p.readerOf(pod))
	switch {
	case err == nil:
		return class.Handler, nil
	case apierrors.IsNotFound(err):
		return "", apierrors.NewNotFound(nodev1.Resource("runtimeclass"), name) // the kubelet's words
	}
	return "", fmt.Errorf("failed to lookup RuntimeClass %s: %w", name, err)
}
