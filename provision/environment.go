package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/provision/resolve"
)

// configError reports why a container's environment cannot be resolved.
type configError struct{ cause error }

func (e *configError) Error() string { return e.cause.Error() }
func (e *configError) Unwrap() error { return e.cause }

// WaitingReason returns the kubelet's value of status.waiting.reason.
func (e *configError) WaitingReason() string { return "CreateContainerConfigError" }

// environment collects the variables of one container.
type environment struct {
	*Provisioner
	pod       *v1.Pod
	container *v1.Container
	addresses resolve.Addresses
	variables resolve.Variables
	services  resolve.Variables
}

// Environment returns all variables of the container: first those of envFrom, then those of env, which override them and may
// refer to earlier variables, then those that describe services, unless their names are taken. Each name occurs once. An
// error has the method WaitingReason.
func (p *Provisioner) Environment(
	ctx context.Context, pod *v1.Pod, container *v1.Container, ips []netip.Addr,
) ([]v1.EnvVar, error) {
	e := &environment{
		Provisioner: p, pod: pod, container: container,
		addresses: resolve.Addresses{Host: p.config.NodeInfo().HostIPs, Pod: ips},
	}
	for _, add := range []func(context.Context) error{e.addServices, e.addEnvFrom, e.addEnv} {
		if err := add(ctx); err != nil {
			return nil, &configError{err}
		}
	}
	for _, variable := range e.services.List() {
		if _, taken := e.variables.Get(variable.Name); !taken {
			e.variables.Set(variable.Name, variable.Value)
		}
	}
	return e.variables.List(), nil
}

// addServices reads the services first, so that variables can refer to them. If the API server does not respond promptly, the
// last response is used. A static pod starts without services if there has been none: it never waits for the API server.
func (e *environment) addServices(ctx context.Context) error {
	if e.config.API == nil {
		return nil
	}
	by := e.readerOf(e.pod)
	by.acceptsOlder, by.needsNone = true, podid.IsStatic(e.pod)
	var own []v1.Service
	var err error
	if linksServices(e.pod) {
		own, err = e.Provisioner.services.get(ctx, e.pod.Namespace, "", by)
	}
	inDefault, errDefault := e.Provisioner.services.get(ctx, metav1.NamespaceDefault, "", by)
	if err := errors.Join(err, errDefault); err != nil {
		if !podid.IsStatic(e.pod) {
			return err
		}
		e.config.Logger.Warn("Failed to list services, starting static pod without service variables",
			"pod", podid.FullNameOf(e.pod).Key(), "podUID", e.pod.UID, "err", err)
	}
	for _, variable := range resolve.ServiceVariables(resolve.LinkedServices(own, inDefault)) {
		e.services.Set(variable.Name, variable.Value)
	}
	return nil
}

func linksServices(pod *v1.Pod) bool { return ptr.Deref(pod.Spec.EnableServiceLinks, true) }

// prefetchServices requests the services of a static pod before its containers start, because Environment does not wait for
// them.
func (p *Provisioner) prefetchServices(pod *v1.Pod) {
	if p.config.API == nil || !podid.IsStatic(pod) {
		return
	}
	by := p.readerOf(pod)
	if linksServices(pod) {
		p.services.prefetch(pod.Namespace, "", by)
	}
	p.services.prefetch(metav1.NamespaceDefault, "", by)
}

func (e *environment) addEnvFrom(ctx context.Context) error {
	var skipped []string
	for i := range e.container.EnvFrom {
		source := &e.container.EnvFrom[i]
		data, err := e.envFromData(ctx, source)
		if err != nil {
			return fmt.Errorf("envFrom[%d]: %w", i, err)
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			if name := source.Prefix + key; isValidVariable(name, data[key]) {
				e.variables.Set(name, data[key])
			} else {
				skipped = append(skipped, fmt.Sprintf("envFrom[%d] %q", i, name))
			}
		}
	}
	if len(skipped) > 0 {
		e.config.Events.Event(e.pod, v1.EventTypeWarning, "InvalidEnvironmentVariableNames", fmt.Sprintf(
			"container %s starts without keys that are not valid variables: %s", e.container.Name, strings.Join(skipped, ", ")))
	}
	return nil
}

// isValidVariable reports whether an environment, a list of NUL-terminated NAME=value strings, can hold the variable.
func isValidVariable(name, value string) bool {
	return name != "" && !strings.ContainsAny(name, "=\x00") && !strings.Contains(value, "\x00")
}

func (e *environment) envFromData(ctx context.Context, source *v1.EnvFromSource) (map[string]string, error) {
	switch {
	case source.ConfigMapRef != nil:
		ref := source.ConfigMapRef
		configMap, err := e.configMap(ctx, e.pod, ref.Name)
		if apierrors.IsNotFound(err) && ptr.Deref(ref.Optional, false) {
			return nil, nil
		}
		if err != nil {
			return nil, objectError("configMap", ref.Name, err)
		}
		return configMap.Data, nil
	case source.SecretRef != nil:
		ref := source.SecretRef
		secret, err := e.secret(ctx, e.pod, ref.Name)
		if apierrors.IsNotFound(err) && ptr.Deref(ref.Optional, false) {
			return nil, nil
		}
		if err != nil {
			return nil, objectError("secret", ref.Name, err)
		}
		return toStrings(secret.Data), nil
	}
	return nil, errors.New("neither configMapRef nor secretRef is set")
}

func toStrings(data map[string][]byte) map[string]string {
	texts := make(map[string]string, len(data))
	for key, value := range data {
		texts[key] = string(value)
	}
	return texts
}

func (e *environment) addEnv(ctx context.Context) error {
	for i := range e.container.Env {
		variable := &e.container.Env[i]
		value, isSet, err := e.resolveValue(ctx, variable)
		if err == nil && isSet && !isValidVariable(variable.Name, value) {
			err = errors.New("not a valid variable: the value contains a NUL byte, or the name is empty or contains =")
		}
		if err != nil {
			return fmt.Errorf("env %q: %w", variable.Name, err)
		}
		if isSet {
			e.variables.Set(variable.Name, value)
		}
	}
	return nil
}

// resolveValue returns the variable's value. isSet is false if an optional source does not exist: the variable is unchanged.
func (e *environment) resolveValue(ctx context.Context, variable *v1.EnvVar) (value string, isSet bool, err error) {
	from := variable.ValueFrom
	if variable.Value != "" || from == nil {
		return resolve.Expand(variable.Value, e.lookup), true, nil
	}
	switch {
	case from.FieldRef != nil:
		value, err = resolve.PodField(e.pod, from.FieldRef, e.addresses)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = resolve.ContainerResource(e.pod, e.container, from.ResourceFieldRef, e.config.NodeInfo().Allocatable)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		return e.configMapKey(ctx, from.ConfigMapKeyRef)
	case from.SecretKeyRef != nil:
		return e.secretKey(ctx, from.SecretKeyRef)
	case from.FileKeyRef != nil:
		return "", false, errors.New("valueFrom.fileKeyRef: is not supported")
	}
	return "", false, errors.New("valueFrom: no supported source is set")
}

func (e *environment) lookup(name string) (string, bool) {
	if value, ok := e.variables.Get(name); ok {
		return value, true
	}
	return e.services.Get(name)
}

func (e *environment) configMapKey(ctx context.Context, ref *v1.ConfigMapKeySelector) (string, bool, error) {
	configMap, err := e.configMap(ctx, e.pod, ref.Name)
	if apierrors.IsNotFound(err) && ptr.Deref(ref.Optional, false) {
		return "", false, nil
	}
	if err != nil {
		return "", false, objectError("configMap", ref.Name, err)
	}
	value, found := configMap.Data[ref.Key]
	if !found && !ptr.Deref(ref.Optional, false) {
		return "", false, fmt.Errorf("couldn't find key %s in ConfigMap %s/%s", ref.Key, e.pod.Namespace, ref.Name)
	}
	return value, found, nil
}

func (e *environment) secretKey(ctx context.Context, ref *v1.SecretKeySelector) (string, bool, error) {
	secret, err := e.secret(ctx, e.pod, ref.Name)
	if apierrors.IsNotFound(err) && ptr.Deref(ref.Optional, false) {
		return "", false, nil
	}
	if err != nil {
		return "", false, objectError("secret", ref.Name, err)
	}
	value, found := secret.Data[ref.Key]
	if !found && !ptr.Deref(ref.Optional, false) {
		return "", false, fmt.Errorf("couldn't find key %s in Secret %s/%s", ref.Key, e.pod.Namespace, ref.Name)
	}
	return string(value), found, nil
}
