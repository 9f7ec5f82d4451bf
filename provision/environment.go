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

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/provision/resolve"
)

// configError is why a container's environment cannot be told.
type configError struct{ cause error }

func (e *configError) Error() string { return e.cause.Error() }
func (e *configError) Unwrap() error { return e.cause }

// WaitingReason is the kubelet's word for status.waiting.reason.
func (e *configError) WaitingReason() string { return "CreateContainerConfigError" }

// environment gathers the variables of one container.
type environment struct {
	*Provisioner
	pod       *v1.Pod
	container *v1.Container
	addresses resolve.Addresses
	variables resolve.Variables
	services  resolve.Variables
}

// Environment is every variable of the container: those of envFrom, those of env, which win and may refer to what came
// before them, and those that say where services are, as far as the names are not taken. Each name occurs once. An error
// has the method WaitingReason.
func (p *Provisioner) Environment(
	ctx context.Context, pod *v1.Pod, container *v1.Container, ips []netip.Addr,
) ([]v1.EnvVar, error) {
	e := &environment{
		Provisioner: p, pod: pod, container: container,
		addresses: resolve.Addresses{Host: p.config.NodeInfo().HostIPs, Pod: ips},
	}
	for _, step := range []func(context.Context) error{e.addServices, e.addSources, e.addVariables} {
		if err := step(ctx); err != nil {
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

// addServices asks for the services at once, so that variables can refer to them. A static pod starts without them when
// the API server does not answer.
func (e *environment) addServices(ctx context.Context) error {
	if e.config.API == nil {
		return nil
	}
	var own []v1.Service
	var err error
	if links := e.pod.Spec.EnableServiceLinks; links == nil || *links {
		own, err = e.Provisioner.services.get(ctx, e.pod.Namespace, "", e.reader(e.pod))
	}
	inDefault, errDefault := e.Provisioner.services.get(ctx, metav1.NamespaceDefault, "", e.reader(e.pod))
	if err := errors.Join(err, errDefault); err != nil && podid.IsStatic(e.pod) {
		e.config.Logger.Warn("a static pod starts without variables for services", "pod", podid.FullNameOf(e.pod), "error", err)
	} else if err != nil {
		return err
	}
	for _, variable := range resolve.ServiceVariables(resolve.LinkedServices(own, inDefault)) {
		e.services.Set(variable.Name, variable.Value)
	}
	return nil
}

func (p *Provisioner) listServices(ctx context.Context, namespace, _ string) ([]v1.Service, error) {
	return p.config.API.ListServices(ctx, namespace)
}

func (e *environment) addSources(ctx context.Context) error {
	var skipped []string
	for i := range e.container.EnvFrom {
		source := &e.container.EnvFrom[i]
		data, err := e.source(ctx, source)
		if err != nil {
			return fmt.Errorf("envFrom[%d]: %w", i, err)
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			if name := source.Prefix + key; isVariable(name, data[key]) {
				e.variables.Set(name, data[key])
			} else {
				skipped = append(skipped, fmt.Sprintf("envFrom[%d] %q", i, name))
			}
		}
	}
	if len(skipped) > 0 {
		e.config.Events.Event(e.pod, v1.EventTypeWarning, "InvalidEnvironmentVariableNames", fmt.Sprintf(
			"container %s starts without what no variable can hold: %s", e.container.Name, strings.Join(skipped, ", ")))
	}
	return nil
}

// isVariable says whether an environment, which is a list of NAME=value that end with NUL, can hold it.
func isVariable(name, value string) bool {
	return name != "" && !strings.ContainsAny(name, "=\x00") && !strings.Contains(value, "\x00")
}

func (e *environment) source(ctx context.Context, source *v1.EnvFromSource) (map[string]string, error) {
	switch {
	case source.ConfigMapRef != nil:
		ref := source.ConfigMapRef
		object, err := e.configMap(ctx, e.pod, ref.Name)
		if apierrors.IsNotFound(err) && isTrue(ref.Optional) {
			return nil, nil
		}
		if err != nil {
			return nil, inObject("configMap", ref.Name, err)
		}
		return object.Data, nil
	case source.SecretRef != nil:
		ref := source.SecretRef
		object, err := e.secret(ctx, e.pod, ref.Name)
		if apierrors.IsNotFound(err) && isTrue(ref.Optional) {
			return nil, nil
		}
		if err != nil {
			return nil, inObject("secret", ref.Name, err)
		}
		return texts(object.Data), nil
	}
	return nil, errors.New("neither configMapRef nor secretRef is set")
}

func texts(data map[string][]byte) map[string]string {
	all := make(map[string]string, len(data))
	for key, value := range data {
		all[key] = string(value)
	}
	return all
}

func (e *environment) addVariables(ctx context.Context) error {
	for i := range e.container.Env {
		variable := &e.container.Env[i]
		value, isSet, err := e.valueOf(ctx, variable)
		if err == nil && isSet && !isVariable(variable.Name, value) {
			err = errors.New("no variable can hold it: a value with a NUL byte, or a name that is empty or has a =")
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

// valueOf tells too whether the variable is set: what is optional and not there leaves it as it was.
func (e *environment) valueOf(ctx context.Context, variable *v1.EnvVar) (value string, isSet bool, err error) {
	from := variable.ValueFrom
	if variable.Value != "" || from == nil {
		return resolve.Expand(variable.Value, e.lookUp), true, nil
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
		return "", false, errors.New("valueFrom.fileKeyRef: is not read here")
	}
	return "", false, errors.New("valueFrom: no source is set that is known here")
}

func (e *environment) lookUp(name string) (string, bool) {
	if value, ok := e.variables.Get(name); ok {
		return value, true
	}
	return e.services.Get(name)
}

func (e *environment) configMapKey(ctx context.Context, ref *v1.ConfigMapKeySelector) (string, bool, error) {
	object, err := e.configMap(ctx, e.pod, ref.Name)
	if apierrors.IsNotFound(err) && isTrue(ref.Optional) {
		return "", false, nil
	}
	if err != nil {
		return "", false, inObject("configMap", ref.Name, err)
	}
	value, known := object.Data[ref.Key]
	if !known && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("couldn't find key %s in ConfigMap %s/%s", ref.Key, e.pod.Namespace, ref.Name)
	}
	return value, known, nil
}

func (e *environment) secretKey(ctx context.Context, ref *v1.SecretKeySelector) (string, bool, error) {
	object, err := e.secret(ctx, e.pod, ref.Name)
	if apierrors.IsNotFound(err) && isTrue(ref.Optional) {
		return "", false, nil
	}
	if err != nil {
		return "", false, inObject("secret", ref.Name, err)
	}
	value, known := object.Data[ref.Key]
	if !known && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("couldn't find key %s in Secret %s/%s", ref.Key, e.pod.Namespace, ref.Name)
	}
	return string(value), known, nil
}
