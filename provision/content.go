package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/provision/resolve"
)

// errNoAPIServer reports that a pod refers to an object, and there is no API server to read it from.
var errNoAPIServer = errors.New("no API server is configured")

// collector collects the files of one volume.
type collector struct {
	*Provisioner
	pod   *v1.Pod
	files resolve.Files
}

// collectFiles returns the files that the volume must contain now.
func (p *Provisioner) collectFiles(ctx context.Context, pod *v1.Pod, volume *v1.Volume) (resolve.Files, error) {
	c := &collector{Provisioner: p, pod: pod, files: resolve.Files{}}
	var err error
	switch source := volume.VolumeSource; {
	case source.ConfigMap != nil:
		err = c.addConfigMap(ctx, source.ConfigMap.Name, resolve.KeySelection{
			Items: source.ConfigMap.Items, Mode: source.ConfigMap.DefaultMode, Optional: ptr.Deref(source.ConfigMap.Optional, false),
		})
	case source.Secret != nil:
		err = c.addSecret(ctx, source.Secret.SecretName, resolve.KeySelection{
			Items: source.Secret.Items, Mode: source.Secret.DefaultMode, Optional: ptr.Deref(source.Secret.Optional, false),
		})
	case source.DownwardAPI != nil:
		err = c.addDownwardAPI(source.DownwardAPI.Items, source.DownwardAPI.DefaultMode)
	case source.Projected != nil:
		err = c.addProjected(ctx, source.Projected)
	}
	return c.files, errors.Join(err, c.files.Validate())
}

func (c *collector) addConfigMap(ctx context.Context, name string, selection resolve.KeySelection) error {
	configMap, err := c.configMap(ctx, c.pod, name)
	if apierrors.IsNotFound(err) && selection.Optional {
		configMap, err = &v1.ConfigMap{}, nil
	}
	if err == nil {
		err = c.files.AddKeys(resolve.ConfigMapData(configMap), selection)
	}
	return objectError("configMap", name, err)
}

func (c *collector) addSecret(ctx context.Context, name string, selection resolve.KeySelection) error {
	secret, err := c.secret(ctx, c.pod, name)
	if apierrors.IsNotFound(err) && selection.Optional {
		secret, err = &v1.Secret{}, nil
	}
	if err == nil {
		err = c.files.AddKeys(secret.Data, selection)
	}
	return objectError("secret", name, err)
}

func (p *Provisioner) configMap(ctx context.Context, pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	if p.config.API == nil {
		return nil, errNoAPIServer
	}
	return p.configMaps.get(ctx, pod.Namespace, name, p.readerOf(pod))
}

func (p *Provisioner) secret(ctx context.Context, pod *v1.Pod, name string) (*v1.Secret, error) {
	if p.config.API == nil {
		return nil, errNoAPIServer
	}
	return p.secrets.get(ctx, pod.Namespace, name, p.readerOf(pod))
}

// objectError adds the object's identity to an error.
func objectError(kind, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return &notFoundError{kind: kind, name: name, cause: err}
	}
	return fmt.Errorf("%s %q: %w", kind, name, err)
}

// notFoundError has the kubelet's wording for an object that does not exist.
type notFoundError struct {
	kind, name string
	cause      error
}

func (e *notFoundError) Error() string {
	return fmt.Sprintf("%s %q not found", strings.ToLower(e.kind), e.name)
}
func (e *notFoundError) Unwrap() error { return e.cause }

func (c *collector) addDownwardAPI(items []v1.DownwardAPIVolumeFile, defaultMode *int32) error {
	for i := range items {
		item := &items[i]
		text, err := c.downwardAPIValue(item)
		if err == nil {
			mode := ptr.Deref(item.Mode, ptr.Deref(defaultMode, resolve.DefaultMode))
			err = c.files.Add(item.Path, resolve.File{Data: []byte(text), Mode: mode})
		}
		if err != nil {
			return fmt.Errorf("downwardAPI.items[%d]: %w", i, err)
		}
	}
	return nil
}

func (c *collector) downwardAPIValue(item *v1.DownwardAPIVolumeFile) (string, error) {
	switch {
	case item.FieldRef != nil:
		return resolve.MetadataField(c.pod, item.FieldRef)
	case item.ResourceFieldRef != nil:
		return resolve.ContainerResource(c.pod, nil, item.ResourceFieldRef, c.config.NodeInfo().Allocatable)
	}
	return "", errors.New("neither fieldRef nor resourceFieldRef is set")
}

func (c *collector) addProjected(ctx context.Context, source *v1.ProjectedVolumeSource) error {
	for i := range source.Sources {
		if err := c.addProjection(ctx, &source.Sources[i], source.DefaultMode); err != nil {
			return fmt.Errorf("projected.sources[%d]: %w", i, err)
		}
	}
	return nil
}

func (c *collector) addProjection(ctx context.Context, source *v1.VolumeProjection, defaultMode *int32) error {
	switch {
	case source.ConfigMap != nil:
		return c.addConfigMap(ctx, source.ConfigMap.Name, resolve.KeySelection{
			Items: source.ConfigMap.Items, Mode: defaultMode, Optional: ptr.Deref(source.ConfigMap.Optional, false),
		})
	case source.Secret != nil:
		return c.addSecret(ctx, source.Secret.Name, resolve.KeySelection{
			Items: source.Secret.Items, Mode: defaultMode, Optional: ptr.Deref(source.Secret.Optional, false),
		})
	case source.DownwardAPI != nil:
		return c.addDownwardAPI(source.DownwardAPI.Items, defaultMode)
	case source.ServiceAccountToken != nil:
		return c.addToken(ctx, source.ServiceAccountToken, ptr.Deref(defaultMode, resolve.DefaultMode))
	case source.ClusterTrustBundle != nil:
		return errors.New("clusterTrustBundle: is not supported")
	case source.PodCertificate != nil:
		return errors.New("podCertificate: is not supported")
	}
	return errors.New("no supported source is set")
}

// addToken restricts the token to the pod's user or group, if the spec defines them.
func (c *collector) addToken(ctx context.Context, projection *v1.ServiceAccountTokenProjection, mode int32) error {
	if c.config.API == nil {
		return fmt.Errorf("serviceAccountToken: %w", errNoAPIServer)
	}
	text, err := c.serviceAccountToken(ctx, c.pod, projection)
	if err != nil {
		return err
	}
	owner := resolve.FSUser(c.pod)
	if owner != nil || resolve.FSGroup(c.pod) != nil {
		mode = 0o600
	}
	if err := c.files.Add(projection.Path, resolve.File{Data: text, Mode: mode, Owner: owner}); err != nil {
		return fmt.Errorf("serviceAccountToken: %w", err)
	}
	return nil
}

// maxTokenAge is the age at which a token is renewed, however long it is valid.
const maxTokenAge = 24 * time.Hour

// tokenKey distinguishes the tokens of a pod.
type tokenKey struct {
	account, audience string
	seconds           int64
}

// token is an issued token. Its times are by the node's clock, which may differ from the server's.
type token struct {
	text             string
	renewAt, expires time.Time
}

// serviceAccountToken returns a token that is bound to the pod and has at least a fifth of its lifetime left. A token that
// cannot be renewed is used until it expires.
func (p *Provisioner) serviceAccountToken(
	ctx context.Context, pod *v1.Pod, projection *v1.ServiceAccountTokenProjection,
) ([]byte, error) {
	key := tokenKey{
		account:  cmp.Or(pod.Spec.ServiceAccountName, "default"),
		audience: projection.Audience, seconds: ptr.Deref(projection.ExpirationSeconds, 3600),
	}
	cached := p.cachedToken(pod, key)
	if time.Now().Before(cached.renewAt) {
		return []byte(cached.text), nil
	}
	if time.Now().Before(cached.expires) {
		p.renewToken(ctx, pod, key)
		return []byte(p.cachedToken(pod, key).text), nil
	}
	issued, err := p.issueToken(ctx, pod, key)
	if err != nil {
		return nil, fmt.Errorf("serviceAccountToken of %q: %w", key.account, err)
	}
	return []byte(issued.text), nil
}

// renewToken renews a token that is still valid. It does not wait long: the renewal continues in the background.
func (p *Provisioner) renewToken(ctx context.Context, pod *v1.Pod, key tokenKey) {
	p.mu.Lock()
	state := p.stateLocked(podid.UID(pod.UID))
	done, isRunning := state.renewals[key]
	if !isRunning {
		done = make(chan struct{})
		state.renewals[key] = done
	}
	p.mu.Unlock()
	if isRunning {
		return
	}
	p.requests.start(func(ctx context.Context) {
		if _, err := p.issueToken(ctx, pod, key); err != nil {
			p.config.Logger.Warn("Failed to renew token, using the old one",
				"pod", podid.FullNameOf(pod).Key(), "podUID", pod.UID, "serviceAccount", key.account, "err", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(state.renewals, key)
		close(done)
	})
	select {
	case <-done:
	case <-time.After(promptResponse):
	case <-ctx.Done():
	}
}

func (p *Provisioner) cachedToken(pod *v1.Pod, key tokenKey) token {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stateLocked(podid.UID(pod.UID)).tokens[key]
}

func (p *Provisioner) issueToken(ctx context.Context, pod *v1.Pod, key tokenKey) (token, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &key.seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		},
	}}
	if key.audience != "" {
		request.Spec.Audiences = []string{key.audience}
	}
	requested := time.Now()
	granted, err := retryForbidden(func(ctx context.Context, namespace, account string) (*authenticationv1.TokenRequest, error) {
		return p.config.API.CreateToken(ctx, namespace, account, request)
	})(ctx, pod.Namespace, key.account)
	if err != nil {
		return token{}, err
	}
	// The server may grant another lifetime.
	lifetime := time.Duration(ptr.Deref(granted.Spec.ExpirationSeconds, key.seconds)) * time.Second
	issued := token{
		text: granted.Status.Token, renewAt: requested.Add(min(lifetime/5*4, maxTokenAge)), expires: requested.Add(lifetime),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if state := p.pods[podid.UID(pod.UID)]; state != nil { // not removed meanwhile
		state.tokens[key] = issued
	}
	return issued, nil
}
