package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/heraldnode/herald/provision/resolve"
)

// errNoServer is that a pod refers to the API server, and there is none.
var errNoServer = errors.New("there is no API server to read it from")

// collection gathers the files of one volume.
type collection struct {
	*Provisioner
	pod   *v1.Pod
	files resolve.Files
}

// collect is what the volume's folder should hold now.
func (p *Provisioner) collect(ctx context.Context, pod *v1.Pod, volume *v1.Volume) (resolve.Files, error) {
	c := &collection{Provisioner: p, pod: pod, files: resolve.Files{}}
	var err error
	switch source := volume.VolumeSource; {
	case source.ConfigMap != nil:
		err = c.addConfigMap(ctx, source.ConfigMap.Name, resolve.KeySelection{
			Items: source.ConfigMap.Items, Mode: source.ConfigMap.DefaultMode, Optional: isTrue(source.ConfigMap.Optional),
		})
	case source.Secret != nil:
		err = c.addSecret(ctx, source.Secret.SecretName, resolve.KeySelection{
			Items: source.Secret.Items, Mode: source.Secret.DefaultMode, Optional: isTrue(source.Secret.Optional),
		})
	case source.DownwardAPI != nil:
		err = c.addDownwardAPI(source.DownwardAPI.Items, source.DownwardAPI.DefaultMode)
	case source.Projected != nil:
		err = c.addProjected(ctx, source.Projected)
	}
	return c.files, errors.Join(err, c.files.Check())
}

func isTrue(flag *bool) bool { return flag != nil && *flag }

func (c *collection) addConfigMap(ctx context.Context, name string, choice resolve.KeySelection) error {
	object, err := c.configMap(ctx, c.pod, name)
	if apierrors.IsNotFound(err) && choice.Optional {
		object, err = &v1.ConfigMap{}, nil
	}
	if err == nil {
		err = c.files.AddKeys(resolve.ConfigMapData(object), choice)
	}
	return inObject("configMap", name, err)
}

func (c *collection) addSecret(ctx context.Context, name string, choice resolve.KeySelection) error {
	object, err := c.secret(ctx, c.pod, name)
	if apierrors.IsNotFound(err) && choice.Optional {
		object, err = &v1.Secret{}, nil
	}
	if err == nil {
		err = c.files.AddKeys(object.Data, choice)
	}
	return inObject("secret", name, err)
}

func inObject(kind, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return &notFoundError{kind: kind, name: name, cause: err}
	}
	return fmt.Errorf("%s %q: %w", kind, name, err)
}

// notFoundError says in the kubelet's words that the API server does not have an object.
type notFoundError struct {
	kind, name string
	cause      error
}

func (e *notFoundError) Error() string {
	return fmt.Sprintf("%s %q not found", strings.ToLower(e.kind), e.name)
}
func (e *notFoundError) Unwrap() error { return e.cause }

func (p *Provisioner) configMap(ctx context.Context, pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	if p.config.API == nil {
		return nil, errNoServer
	}
	return p.configMaps.get(ctx, pod.Namespace, name, p.reader(pod))
}

func (p *Provisioner) secret(ctx context.Context, pod *v1.Pod, name string) (*v1.Secret, error) {
	if p.config.API == nil {
		return nil, errNoServer
	}
	return p.secrets.get(ctx, pod.Namespace, name, p.reader(pod))
}

func (c *collection) addDownwardAPI(items []v1.DownwardAPIVolumeFile, mode *int32) error {
	for i := range items {
		item := &items[i]
		text, err := c.downward(item)
		if err == nil {
			mode := resolve.ModeOr(item.Mode, resolve.ModeOr(mode, resolve.DefaultMode))
			err = c.files.Add(item.Path, resolve.File{Data: []byte(text), Mode: mode})
		}
		if err != nil {
			return fmt.Errorf("downwardAPI.items[%d]: %w", i, err)
		}
	}
	return nil
}

func (c *collection) downward(item *v1.DownwardAPIVolumeFile) (string, error) {
	switch {
	case item.FieldRef != nil:
		return resolve.MetadataField(c.pod, item.FieldRef)
	case item.ResourceFieldRef != nil:
		return resolve.ContainerResource(c.pod, nil, item.ResourceFieldRef, c.config.NodeInfo().Allocatable)
	}
	return "", errors.New("neither fieldRef nor resourceFieldRef is set")
}

func (c *collection) addProjected(ctx context.Context, source *v1.ProjectedVolumeSource) error {
	for i := range source.Sources {
		if err := c.addProjection(ctx, &source.Sources[i], source.DefaultMode); err != nil {
			return fmt.Errorf("projected.sources[%d]: %w", i, err)
		}
	}
	return nil
}

func (c *collection) addProjection(ctx context.Context, source *v1.VolumeProjection, mode *int32) error {
	switch {
	case source.ConfigMap != nil:
		return c.addConfigMap(ctx, source.ConfigMap.Name,
			resolve.KeySelection{Items: source.ConfigMap.Items, Mode: mode, Optional: isTrue(source.ConfigMap.Optional)})
	case source.Secret != nil:
		return c.addSecret(ctx, source.Secret.Name,
			resolve.KeySelection{Items: source.Secret.Items, Mode: mode, Optional: isTrue(source.Secret.Optional)})
	case source.DownwardAPI != nil:
		return c.addDownwardAPI(source.DownwardAPI.Items, mode)
	case source.ServiceAccountToken != nil:
		return c.addToken(ctx, source.ServiceAccountToken, resolve.ModeOr(mode, resolve.DefaultMode))
	case source.ClusterTrustBundle != nil:
		return errors.New("clusterTrustBundle: is not given out here")
	case source.PodCertificate != nil:
		return errors.New("podCertificate: is not given out here")
	}
	return errors.New("no source is set that is known here")
}

// addToken lets only the pod's user read the token, or its group, if the spec says which they are.
func (c *collection) addToken(ctx context.Context, source *v1.ServiceAccountTokenProjection, mode int32) error {
	if c.config.API == nil {
		return fmt.Errorf("serviceAccountToken: %w", errNoServer)
	}
	text, err := c.tokenOf(ctx, c.pod, source)
	if err != nil {
		return err
	}
	owner := resolve.FSUser(c.pod)
	if owner != nil || resolve.FSGroup(c.pod) != nil {
		mode = 0o600
	}
	if err := c.files.Add(source.Path, resolve.File{Data: text, Mode: mode, Owner: owner}); err != nil {
		return fmt.Errorf("serviceAccountToken: %w", err)
	}
	return nil
}
