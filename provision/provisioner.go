package provision

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// Provisioner makes the volumes of the node's pods and resolves the environment of their containers. Any goroutine may
// call it, but the calls of Mount and Unmount for one pod must not overlap.
type Provisioner struct {
	config     Config
	configMaps *shelf[*v1.ConfigMap]
	secrets    *shelf[*v1.Secret]
	services   *shelf[[]v1.Service]
	metrics    *metrics

	mu   sync.Mutex // guards pods and what is in them
	pods map[podid.UID]*memory
}

// memory is what is known of a pod as long as it is on the node.
type memory struct {
	// since is when the pod was first heard of. What was read before may be older than what its author wrote before it.
	since  time.Time
	tokens map[tokenKey]token
}

// New makes a Provisioner. Nothing is touched before the first call.
func New(config Config) (*Provisioner, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	metrics, err := newMetrics(config.Metrics)
	if err != nil {
		return nil, err
	}
	p := &Provisioner{config: config, metrics: metrics, pods: map[podid.UID]*memory{}}
	if config.API != nil {
		p.configMaps = newShelf(config, patient(config.API.GetConfigMap))
		p.configMaps.lasting = func(c *v1.ConfigMap) bool { return c.Immutable != nil && *c.Immutable }
		p.secrets = newShelf(config, patient(config.API.GetSecret))
		p.secrets.lasting = func(s *v1.Secret) bool { return s.Immutable != nil && *s.Immutable }
		p.services = newShelf(config, p.listServices)
	}
	return p, nil
}

// reader is for whom something is read from the API server.
func (p *Provisioner) reader(pod *v1.Pod) reader {
	p.mu.Lock()
	defer p.mu.Unlock()
	return reader{pod: podid.UID(pod.UID), since: p.memoryLocked(podid.UID(pod.UID)).since}
}

func (p *Provisioner) memoryLocked(uid podid.UID) *memory {
	known := p.pods[uid]
	if known == nil {
		known = &memory{since: time.Now(), tokens: map[tokenKey]token{}}
		p.pods[uid] = known
	}
	return known
}

func (p *Provisioner) forget(uid podid.UID) {
	if p.config.API != nil {
		p.configMaps.forget(uid)
		p.secrets.forget(uid)
		p.services.forget(uid)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, uid)
}

// volumesName is the folder of a pod's volumes in the pod's folder. Others may have something beside it.
const volumesName = "volumes"

// Pods lists the pods of which Unmount would find something to remove.
func (p *Provisioner) Pods() ([]podid.UID, error) {
	folders, err := os.ReadDir(p.config.Root)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("list the pods that have volumes: %w", err)
	}
	var uids []podid.UID
	for _, folder := range folders {
		inside, err := os.ReadDir(filepath.Join(p.config.Root, folder.Name()))
		if err != nil || !folder.IsDir() {
			continue // no pod's, or gone meanwhile
		}
		hasVolumes := slices.ContainsFunc(inside, func(entry os.DirEntry) bool { return entry.Name() == volumesName })
		if hasVolumes || len(inside) == 0 {
			uids = append(uids, podid.UID(folder.Name()))
		}
	}
	return uids, nil
}

// Path is the host's folder or file behind a volume of the pod.
func (p *Provisioner) Path(pod *v1.Pod, volume string) (string, error) {
	for i := range pod.Spec.Volumes {
		if its := &pod.Spec.Volumes[i]; its.Name == volume {
			if its.HostPath != nil {
				return its.HostPath.Path, nil
			}
			return p.folder(pod, its)
		}
	}
	return "", fmt.Errorf("pod %s/%s has no volume %q", pod.Namespace, pod.Name, volume)
}

// folder is where the volume's files are. Names that would lead elsewhere are refused.
func (p *Provisioner) folder(pod *v1.Pod, volume *v1.Volume) (string, error) {
	plugin, err := pluginOf(volume)
	if err != nil {
		return "", err
	}
	for what, name := range map[string]string{"metadata.uid": string(pod.UID), "name": volume.Name} {
		if !isName(name) {
			return "", fmt.Errorf("%s: %q cannot be the name of a folder", what, name)
		}
	}
	return filepath.Join(p.config.Root, string(pod.UID), volumesName, "kubernetes.io~"+plugin, volume.Name), nil
}

func isName(name string) bool {
	return name != "" && !strings.HasPrefix(name, ".") && !strings.ContainsAny(name, "/\x00") && len(name) <= 255
}

// pluginOf is the kubelet's name for the kind of volume.
func pluginOf(volume *v1.Volume) (string, error) {
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
	return "", fmt.Errorf("only emptyDir, hostPath, configMap, secret, downwardAPI and projected volumes are mounted here")
}

// metrics are the kubelet's series about volumes.
type metrics struct{ duration *prometheus.HistogramVec }

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "storage_operation_duration_seconds", Help: "Time that it took to make a volume or to bring it up to date.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"volume_plugin", "operation_name", "status", "migrated"})}
	if registry == nil {
		return m, nil
	}
	if err := registry.Register(m.duration); err != nil {
		return nil, fmt.Errorf("provision.Config.Metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) mounted(plugin string, begun time.Time, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.duration.WithLabelValues("kubernetes.io/"+plugin, "volume_mount", status, "false").Observe(time.Since(begun).Seconds())
}
