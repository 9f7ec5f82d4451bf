package cri

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// NodeFeatures returns what the Node reports about the runtime: its handlers and its features, as of the last call of Ready. It
// does not block. handlers is nil until the runtime has responded, and empty if it reports none, as containerd before 2.0.
// features is nil if the runtime reports none.
func (r *Runtime) NodeFeatures() (handlers []v1.NodeRuntimeHandler, features *v1.NodeFeatures) {
	status := r.status.Load()
	if status == nil {
		return nil, nil
	}
	handlers = []v1.NodeRuntimeHandler{}
	for _, handler := range status.GetRuntimeHandlers() {
		handlers = append(handlers, v1.NodeRuntimeHandler{
			Name: handler.GetName(),
			Features: &v1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: new(handler.GetFeatures().GetRecursiveReadOnlyMounts()),
				UserNamespaces:          new(handler.GetFeatures().GetUserNamespaces()),
			},
		})
	}
	if reported := status.GetFeatures(); reported != nil {
		features = &v1.NodeFeatures{SupplementalGroupsPolicy: new(reported.GetSupplementalGroupsPolicy())}
	}
	return handlers, features
}

// RecursiveReadOnly reports whether the runtime's default handler supports recursive read-only mounts, as of the last call of
// Ready. It does not block.
func (r *Runtime) RecursiveReadOnly() bool { return supportsRecursiveReadOnly(r.status.Load(), "") }

// supportsRecursiveReadOnly reports whether the handler supports recursive read-only mounts. containerd before 2.0 reports
// nothing, which means no.
func (r *Runtime) supportsRecursiveReadOnly(ctx context.Context, handler string) (bool, error) {
	status, err := r.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return false, fmt.Errorf("get runtime features: %w", err)
	}
	return supportsRecursiveReadOnly(status, handler), nil
}

// runtimeHandler returns the handler of the pod's runtime class; "" is the runtime's default.
func (r *Runtime) runtimeHandler(ctx context.Context, pod *v1.Pod) (string, error) {
	class := ptr.Deref(pod.Spec.RuntimeClassName, "")
	switch {
	case class == "":
		return "", nil
	case r.config.RuntimeClasses != nil:
		return r.config.RuntimeClasses.RuntimeHandler(ctx, pod)
	}
	status, err := r.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return "", fmt.Errorf("get handlers of the runtime: %w", err)
	}
	var names []string
	for _, handler := range status.GetRuntimeHandlers() {
		if handler.GetName() != "" { // the default
			names = append(names, handler.GetName())
		}
	}
	if slices.Contains(names, class) {
		return class, nil
	}
	reason := "without an API server it must be one of the runtime's handlers: " + strings.Join(names, ", ")
	if len(names) == 0 {
		reason = "without an API server it must be one of the runtime's handlers, and the runtime reports none; remove the field"
	}
	return "", field.Invalid(field.NewPath("spec", "runtimeClassName"), class, reason)
}

func supportsRecursiveReadOnly(status *runtimeapi.StatusResponse, handlerName string) bool {
	for _, handler := range status.GetRuntimeHandlers() {
		if handler.GetName() == handlerName {
			return handler.GetFeatures().GetRecursiveReadOnlyMounts()
		}
	}
	return false
}
