package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/internal/poddir"
	"github.com/heraldnode/herald/podid"
)

// API reads the objects that pods refer to. apierrors.IsNotFound and IsForbidden must recognize its errors. Returned objects
// must not be modified.
type API interface {
	// GetConfigMap reads the newest version of a config map.
	GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	// GetSecret reads the newest version of a secret.
	GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	// GetRuntimeClass reads the newest version of a runtime class.
	GetRuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error)
	// ListServices reads the services of a namespace.
	ListServices(ctx context.Context, namespace string) ([]v1.Service, error)
	// CreateToken issues a token of a service account.
	CreateToken(ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest) (
		*authenticationv1.TokenRequest, error)
}

// Watcher watches single objects, as a node may: those that its pods refer to.
type Watcher interface {
	// WatchConfigMap sends the changes of a config map after the version. Without a version it sends the current state first.
	WatchConfigMap(ctx context.Context, namespace, name, resourceVersion string) (watch.Interface, error)
	// WatchSecret does so for a secret.
	WatchSecret(ctx context.Context, namespace, name, resourceVersion string) (watch.Interface, error)
	// WatchRuntimeClass does so for a runtime class.
	WatchRuntimeClass(ctx context.Context, name, resourceVersion string) (watch.Interface, error)
}

// NodeInfo describes the node to its containers.
type NodeInfo struct {
	// HostIPs are the node's addresses, the primary one first.
	HostIPs []netip.Addr
	// Allocatable is what the node offers to pods. It is the limit of containers without one.
	Allocatable v1.ResourceList
}

// Config configures a Provisioner.
type Config struct {
	// Root is the absolute path of the directory that contains the pods' directories. Required.
	Root string
	// FormerRoot is the directory of pods that were started with another Root. They keep their volumes there. Defaults to none.
	FormerRoot string
	// API is the API server. Defaults to none: references to it are errors.
	API API
	// NodeInfo returns the current node information. It must not block. Defaults to a zero NodeInfo.
	NodeInfo func() NodeInfo
	// Events records files that could not be updated and variables that were omitted. Defaults to event.Discard.
	Events event.Recorder
	// Watcher watches the objects that pods use for longer than CacheTTL. It should not share its limits and connections with
	// API. Defaults to none: objects are polled.
	Watcher Watcher
	// MaxWatches limits the watches. Objects beyond it are polled. Defaults to 2000.
	MaxWatches int
	// CacheTTL is how long a response of the API server is reused. A pod never gets a response that is older than its own
	// arrival. Defaults to 1m, as in the kubelet without watches.
	CacheTTL time.Duration
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers storage_operation_duration_seconds and volume_manager_total_volumes. Defaults to none.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	switch {
	case c.Root == "":
		errs = append(errs, errors.New("provision.Config: Root is required"))
	case !filepath.IsAbs(c.Root):
		errs = append(errs, fmt.Errorf("provision.Config: Root must be an absolute path, got %q", c.Root))
	}
	if c.CacheTTL < 0 || c.MaxWatches < 0 {
		errs = append(errs, errors.New("provision.Config: CacheTTL and MaxWatches must not be negative"))
	}
	c.CacheTTL = cmp.Or(c.CacheTTL, time.Minute)
	c.MaxWatches = cmp.Or(c.MaxWatches, 2000)
	if c.NodeInfo == nil {
		c.NodeInfo = func() NodeInfo { return NodeInfo{} }
	}
	if c.Events == nil {
		c.Events = event.Discard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(errs...)
}

// Provisioner mounts the volumes of pods and resolves the environment of their containers. It is safe for concurrent use,
// but calls of Mount and Unmount for the same pod must not overlap.
type Provisioner struct {
	config         Config
	dirs           poddir.Roots
	configMaps     *objectCache[*v1.ConfigMap]
	secrets        *objectCache[*v1.Secret]
	services       *objectCache[[]v1.Service]
	runtimeClasses *objectCache[*nodev1.RuntimeClass]
	requests       *background
	metrics        *metrics

	mu   sync.Mutex // guards pods and their fields
	pods map[podid.UID]*podState
}

// podState is kept while a pod is on the node.
type podState struct {
	// firstSeen is when the pod was first seen. Objects that were read earlier may be older than what the pod's author wrote
	// before creating the pod.
	firstSeen time.Time
	tokens    map[tokenKey]token
	// renewals are the renewals under way. The channel is closed at the end.
	renewals map[tokenKey]chan struct{}
	volumes  map[string]volumeState // by name, since their first Mount
}

// New returns a Provisioner. It has no side effects beyond registering metrics.
func New(config Config) (*Provisioner, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Provisioner{
		config: config, dirs: poddir.Roots{Root: config.Root, Former: config.FormerRoot},
		requests: newBackground(), pods: map[podid.UID]*podState{},
	}
	if p.metrics, err = newMetrics(config.Metrics, p); err != nil {
		return nil, err
	}
	if config.API != nil {
		p.createCaches()
	}
	return p, nil
}

func (p *Provisioner) createCaches() {
	slots := make(chan struct{}, p.config.MaxWatches)
	configMaps := &objectKind[*v1.ConfigMap]{
		resource: v1.Resource("configmaps"), slots: slots,
		isImmutable: func(c *v1.ConfigMap) bool { return ptr.Deref(c.Immutable, false) },
	}
	secrets := &objectKind[*v1.Secret]{
		resource: v1.Resource("secrets"), slots: slots,
		isImmutable: func(s *v1.Secret) bool { return ptr.Deref(s.Immutable, false) },
	}
	if watcher := p.config.Watcher; watcher != nil {
		configMaps.watch, secrets.watch = watcher.WatchConfigMap, watcher.WatchSecret
	}
	api := p.config.API
	p.configMaps = newObjectCache(p.config, p.requests, retryForbidden(api.GetConfigMap), configMaps)
	p.secrets = newObjectCache(p.config, p.requests, retryForbidden(api.GetSecret), secrets)
	listServices := func(ctx context.Context, namespace, _ string) ([]v1.Service, error) {
		return api.ListServices(ctx, namespace)
	}
	p.services = newObjectCache(p.config, p.requests, listServices, nil)
	p.runtimeClasses = newRuntimeClassCache(p.config, p.requests, slots)
}

// Close cancels the requests that are still under way and waits for them. No other method may be called any more.
func (p *Provisioner) Close() { p.requests.close() }

// readerOf returns the cache reader of a pod.
func (p *Provisioner) readerOf(pod *v1.Pod) reader {
	p.mu.Lock()
	defer p.mu.Unlock()
	return reader{pod: podid.UID(pod.UID), notBefore: p.stateLocked(podid.UID(pod.UID)).firstSeen}
}

func (p *Provisioner) stateLocked(uid podid.UID) *podState {
	state := p.pods[uid]
	if state == nil {
		state = &podState{
			firstSeen: time.Now(), tokens: map[tokenKey]token{}, renewals: map[tokenKey]chan struct{}{}, volumes: map[string]volumeState{},
		}
		p.pods[uid] = state
	}
	return state
}

func (p *Provisioner) forgetPod(uid podid.UID) {
	if p.config.API != nil {
		p.configMaps.removeReader(uid)
		p.secrets.removeReader(uid)
		p.services.removeReader(uid)
		p.runtimeClasses.removeReader(uid)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, uid)
}

// volumesDir is the directory of a pod's volumes. The pod's directory may contain other entries too.
const volumesDir = "volumes"

// Pods lists the pods for which Unmount has something to remove.
func (p *Provisioner) Pods() ([]podid.UID, error) {
	var uids []podid.UID
	for _, root := range p.dirs.All() {
		found, err := podsWithVolumes(root)
		if err != nil {
			return nil, fmt.Errorf("list pods with volumes: %w", err)
		}
		uids = append(uids, found...)
	}
	return uids, nil
}

func podsWithVolumes(root string) ([]podid.UID, error) {
	dirs, err := os.ReadDir(root)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var uids []podid.UID
	for _, dir := range dirs {
		entries, err := os.ReadDir(filepath.Join(root, dir.Name()))
		if err != nil || !dir.IsDir() {
			continue // not a pod's, or removed meanwhile
		}
		hasVolumes := slices.ContainsFunc(entries, func(entry os.DirEntry) bool { return entry.Name() == volumesDir })
		if hasVolumes || len(entries) == 0 {
			uids = append(uids, podid.UID(dir.Name()))
		}
	}
	return uids, nil
}

// Path returns the host path of a pod's volume.
func (p *Provisioner) Path(pod *v1.Pod, volumeName string) (string, error) {
	for i := range pod.Spec.Volumes {
		if volume := &pod.Spec.Volumes[i]; volume.Name == volumeName {
			if volume.HostPath != nil {
				return volume.HostPath.Path, nil
			}
			return p.volumeDir(pod, volume)
		}
	}
	return "", fmt.Errorf("pod %s has no volume %q", podid.FullNameOf(pod).Key(), volumeName)
}

// volumeDir returns the directory of a volume. It rejects names that would lead elsewhere.
func (p *Provisioner) volumeDir(pod *v1.Pod, volume *v1.Volume) (string, error) {
	plugin, err := pluginName(volume)
	if err != nil {
		return "", err
	}
	for field, name := range map[string]string{"metadata.uid": string(pod.UID), "name": volume.Name} {
		if !isFileName(name) {
			return "", fmt.Errorf("%s: %q is not a valid directory name", field, name)
		}
	}
	return filepath.Join(p.dirs.Of(podid.UID(pod.UID)), volumesDir, "kubernetes.io~"+plugin, volume.Name), nil
}

func isFileName(name string) bool {
	return name != "" && !strings.HasPrefix(name, ".") && !strings.ContainsAny(name, "/\x00") && len(name) <= 255
}

// pluginName returns the kubelet's name of the volume's plugin.
func pluginName(volume *v1.Volume) (string, error) {
	switch source := volume.VolumeSource; {
	case source.EmptyDir != nil:
		return "empty-dir", nil
	case source.HostPath != nil:
		return "host-path", nil
	case source.ConfigMap != nil:
		return "configmap", nil
	case source.Secret != nil:
		return "secret", nil
	case source.DownwardAPI != nil:
		return "downward-api", nil
	case source.Projected != nil:
		return "projected", nil
	}
	const supported = "emptyDir, hostPath, configMap, secret, downwardAPI, projected"
	source := reflect.ValueOf(volume.VolumeSource)
	for i := range source.NumField() {
		if name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ","); !source.Field(i).IsNil() {
			return "", fmt.Errorf("%s: volumes that need a driver are not supported; use %s", name, supported)
		}
	}
	return "", errors.New("the volume has no source; use one of " + supported)
}
