package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/pkg/kubelet/configmap"
	"k8s.io/kubernetes/pkg/kubelet/secret"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/provision"
)

const (
	// objectsPerPod is how many objects each pod refers to: two config maps and a secret of its own.
	objectsPerPod = 3
	// toggleInterval is the time between readiness changes while objects are read.
	toggleInterval = 500 * time.Millisecond
)

// objectReader reads the objects of pods, as each sync of a pod does.
type objectReader interface {
	read(ctx context.Context, pod *v1.Pod) error
	close() error
}

// objectSide is one side of restingObjects. The kubelet has one client, and so one limit, for objects and statuses.
type objectSide struct {
	open  func(e *Environment, objects, watches *rest.Config, pods []*v1.Pod) (objectReader, error)
	start startFunc
	// sharesLimit gives objects and statuses one limit.
	sharesLimit bool
}

// objectUsage is what one side needed.
type objectUsage struct {
	// perMinute is the number of requests for objects in a minute at rest.
	perMinute float64
	// bytesPerObject is the memory that is held for each object at rest.
	bytesPerObject float64
	// readiness is how long readiness changes took to become visible meanwhile, in seconds.
	readiness []float64
}

// restingObjects measures what pods at rest cost: each is synced once in a period, which reads its objects. The first periods
// are not measured.
func restingObjects(ctx context.Context, env *Environment) ([]Result, error) {
	kubelet, err := env.measureObjects(ctx, objectSide{open: openKubeletObjects, start: startKubelet, sharesLimit: true})
	if err != nil {
		return nil, fmt.Errorf("objects of pods at rest, kubelet: %w", err)
	}
	herald, err := env.measureObjects(ctx, objectSide{open: openHeraldObjects, start: startHerald})
	if err != nil {
		return nil, fmt.Errorf("objects of pods at rest: %w", err)
	}
	pods := fmt.Sprintf("%d pods with %d ConfigMaps and Secrets each, synced every %v",
		env.Profile.RestingPods, objectsPerPod, env.Profile.RestingPeriod)
	kubeletP99, heraldP99 := quantile(kubelet.readiness, 0.99), quantile(herald.readiness, 0.99)
	return []Result{
		{
			Name:        fmt.Sprintf("objects_at_rest_%d", env.Profile.RestingPods),
			Description: pods + ": Herald's requests per minute at rest; the kubelet's watch-based managers on the same objects",
			Kubelet:     fmt.Sprintf("%.1f", kubelet.perMinute), Herald: fmt.Sprintf("%.1f", herald.perMinute),
			Value: herald.perMinute, Goal: AtMost(1),
		},
		{
			Name:        "bytes_per_object",
			Description: pods + ": memory for each object at rest, with its watch and connection: Herald's divided by the kubelet's",
			Kubelet:     formatBytes(kubelet.bytesPerObject), Herald: formatBytes(herald.bytesPerObject),
			Value: herald.bytesPerObject / kubelet.bytesPerObject, Goal: AtMost(1),
		},
		{
			Name: fmt.Sprintf("readiness_beside_objects_%d", env.Profile.RestingPods),
			Description: fmt.Sprintf("%s: time until a readiness change is visible, from the first sync on, 99th percentile (medians %s and %s)",
				pods, formatSeconds(median(kubelet.readiness)), formatSeconds(median(herald.readiness))),
			Kubelet: formatSeconds(kubeletP99), Herald: formatSeconds(heraldP99), Value: kubeletP99 / heraldP99,
		},
	}, nil
}

func formatBytes(bytes float64) string { return fmt.Sprintf("%.1f kB", bytes/1e3) }

// measureObjects measures one side on a node of its own.
func (e *Environment) measureObjects(ctx context.Context, side objectSide) (usage objectUsage, err error) {
	e.logf("%d pods at rest with %d objects each, synced every %v", e.Profile.RestingPods, objectsPerPod, e.Profile.RestingPeriod)
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	n, err := e.newNode(ctx, 0)
	if err != nil {
		return usage, err
	}
	if n.pods, err = n.createReadingPods(ctx, e.Profile.RestingPods); err != nil {
		return usage, err
	}
	const qps, burst = 50, 100
	objects, script := n.clientConfig(connection{qps: qps, burst: burst})
	statuses, _ := n.clientConfig(connection{qps: qps, burst: burst})
	if side.sharesLimit {
		objects.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
		statuses.RateLimiter = objects.RateLimiter
	}
	before := memoryInUse()
	reader, err := side.open(e, objects, objects, n.pods)
	if err != nil {
		return usage, err
	}
	defer func() { err = errors.Join(err, reader.close()) }()
	fixture, err := n.startReadiness(ctx, side.start, statuses)
	if err != nil {
		return usage, err
	}
	defer fixture.close()
	toggling, stopToggling := context.WithCancel(ctx)
	toggled := make(chan error, 1)
	go func() { toggled <- fixture.keepToggling(toggling, &usage.readiness) }()
	err = e.syncPods(ctx, reader, n.pods, script, &usage)
	stopToggling()
	usage.bytesPerObject = max(0, memoryInUse()-before) / float64(objectsPerPod*len(n.pods))
	return usage, errors.Join(err, <-toggled)
}

// syncPods syncs all pods in some periods, until their objects are watched, and counts the requests of the last one.
func (e *Environment) syncPods(
	ctx context.Context, reader objectReader, pods []*v1.Pod, script *fault.Injector, usage *objectUsage,
) error {
	const cycles = 4 // in the second one Herald still uses what it read in the first
	period := e.Profile.RestingPeriod
	sent := 0
	for cycle := range cycles {
		if cycle == cycles-1 {
			sent = len(script.Requests())
		}
		start := time.Now()
		for i, pod := range pods {
			time.Sleep(time.Until(start.Add(period * time.Duration(i) / time.Duration(len(pods)))))
			// The kubelet's managers wait a second at most: the first sync of a pod may fail, and is repeated later.
			if err := reader.read(ctx, pod); err != nil && cycle == cycles-1 {
				return err
			}
		}
		time.Sleep(time.Until(start.Add(period)))
	}
	usage.perMinute = float64(len(script.Requests())-sent) / period.Minutes()
	return nil
}

// memoryInUse returns the memory of objects and of goroutines.
func memoryInUse() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc + stats.StackInuse)
}

// startReadiness starts a status manager for the node's first pod.
func (n *node) startReadiness(ctx context.Context, start startFunc, config *rest.Config) (*readinessFixture, error) {
	events, pods, err := n.watch(ctx)
	if err != nil {
		return nil, err
	}
	manager, err := start(ctx, config, pods)
	if err != nil {
		return nil, err
	}
	fixture := &readinessFixture{manager: manager, events: events, target: pods[0], ready: true}
	manager.setStatus(pods[0], runningStatus())
	if !fixture.waitForReadiness() {
		return nil, errors.New("pod did not become ready")
	}
	return fixture, nil
}

// keepToggling toggles the readiness until ctx is done.
func (f *readinessFixture) keepToggling(ctx context.Context, took *[]float64) error {
	for {
		duration, err := f.toggleReadiness(1)
		if err != nil {
			return err
		}
		*took = append(*took, duration...)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(toggleInterval):
		}
	}
}

// createReadingPods creates pods and the objects that they refer to.
func (n *node) createReadingPods(ctx context.Context, count int) ([]*v1.Pod, error) {
	errs := make([]error, count)
	var group sync.WaitGroup
	slots := make(chan struct{}, maxConcurrentCreates)
	for i := range count {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = n.createObjects(ctx, fmt.Sprintf("%s-%d", n.name, i))
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("create objects of pods: %w", err)
	}
	return n.createPods(ctx, count, readingPod)
}

func (n *node) createObjects(ctx context.Context, pod string) error {
	core := n.client.CoreV1()
	for _, name := range []string{pod + "-a", pod + "-b"} {
		configMap := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"config": "value"}}
		if _, err := core.ConfigMaps(metav1.NamespaceDefault).Create(ctx, configMap, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	object := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: pod}, Data: map[string][]byte{"key": []byte("value")}}
	_, err := core.Secrets(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{})
	return err
}

// readingPod returns a pod with the volumes that createObjects has created the objects of.
func readingPod(name string, uid types.UID) *v1.Pod {
	p := threeContainerPod(name, uid)
	for _, suffix := range []string{"a", "b"} {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: suffix, VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: name + "-" + suffix},
		}}})
	}
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "key", VolumeSource: v1.VolumeSource{
		Secret: &v1.SecretVolumeSource{SecretName: name},
	}})
	return p
}

// kubeletObjects are the kubelet's managers, which watch every object from the arrival of its first pod on.
type kubeletObjects struct {
	configMaps configmap.Manager
	secrets    secret.Manager
	pods       []*v1.Pod
}

// kubeletResync is the kubelet's syncFrequency, from which it derives when an unused watch ends.
const kubeletResync = time.Minute

func openKubeletObjects(_ *Environment, objects, _ *rest.Config, pods []*v1.Pod) (objectReader, error) {
	client, err := kubernetes.NewForConfig(objects)
	if err != nil {
		return nil, err
	}
	k := &kubeletObjects{
		configMaps: configmap.NewWatchingConfigMapManager(client, kubeletResync),
		secrets:    secret.NewWatchingSecretManager(client, kubeletResync), pods: pods,
	}
	for _, pod := range pods {
		k.configMaps.RegisterPod(pod)
		k.secrets.RegisterPod(pod)
	}
	return k, nil
}

func (k *kubeletObjects) read(_ context.Context, pod *v1.Pod) error {
	var errs []error
	for _, volume := range pod.Spec.Volumes {
		var err error
		if volume.ConfigMap != nil {
			_, err = k.configMaps.GetConfigMap(pod.Namespace, volume.ConfigMap.Name)
		} else {
			_, err = k.secrets.GetSecret(pod.Namespace, volume.Secret.SecretName)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (k *kubeletObjects) close() error {
	for _, pod := range k.pods {
		k.configMaps.UnregisterPod(pod)
		k.secrets.UnregisterPod(pod)
	}
	return nil
}

// heraldObjects is Herald's provisioner, which also writes the files.
type heraldObjects struct {
	*provision.Provisioner
	dir string
}

func openHeraldObjects(e *Environment, objects, watches *rest.Config, _ []*v1.Pod) (objectReader, error) {
	api, err := kubeapi.New(objects)
	if err != nil {
		return nil, err
	}
	watcher, err := kubeapi.New(watches)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "herald-bench-")
	if err != nil {
		return nil, err
	}
	provisioner, err := provision.New(provision.Config{
		Root: dir, API: api, Watcher: watcher, CacheTTL: e.Profile.RestingPeriod,
	})
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return &heraldObjects{provisioner, dir}, nil
}

func (h *heraldObjects) read(ctx context.Context, pod *v1.Pod) error { return h.Mount(ctx, pod) }

// close unmounts everything before the directory is removed.
func (h *heraldObjects) close() error {
	uids, err := h.Pods()
	for _, uid := range uids {
		err = errors.Join(err, h.Unmount(context.Background(), uid))
	}
	h.Close()
	return errors.Join(err, os.RemoveAll(h.dir))
}
