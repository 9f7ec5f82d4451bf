package kubelet

import (
	"context"
	"reflect"
	"sync"
	"time"
	"unsafe" // for linkname

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/probe"
)

//go:linkname newProber k8s.io/kubernetes/pkg/kubelet/prober.newProber
func newProber(runner kubecontainer.CommandRunner, recorder record.EventRecorderLogger) unsafe.Pointer

//nolint:revive // context-as-argument, argument-limit: a method of the kubelet, so the receiver comes first
//go:linkname runProbe k8s.io/kubernetes/pkg/kubelet/prober.(*prober).runProbe
func runProbe(
	p unsafe.Pointer, ctx context.Context, kind int, spec *v1.Probe, pod *v1.Pod, status v1.PodStatus, container v1.Container,
	id kubecontainer.ContainerID,
) (probe.Result, string, error)

// Prober is the part of the kubelet's prober that runs a single probe.
type Prober struct{ prober unsafe.Pointer }

// NewProber returns a Prober that runs exec probes with runner.
func NewProber(runner kubecontainer.CommandRunner) *Prober {
	return &Prober{newProber(runner, nil)}
}

// Probe runs one probe. The kubelet ignores the result if there is an error.
func (p *Prober) Probe(spec *v1.Probe, container *v1.Container, podIP string) (probe.Result, string, error) {
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	return runProbe(p.prober, ctx, 0, spec, &v1.Pod{}, v1.PodStatus{PodIP: podIP}, *container, kubecontainer.ContainerID{})
}

// ResetResultRun resets the worker's count of equal results. Only code that runs in that worker may call it.
func ResetResultRun(m prober.Manager, uid types.UID, container string, kind ProbeKind) {
	lock := field(m, "workerLock").Addr().Interface().(*sync.RWMutex)
	lock.RLock()
	defer lock.RUnlock()
	workers := field(m, "workers")
	worker := workers.MapIndex(probeKey(workers.Type().Key(), uid, container, kind))
	if !worker.IsValid() {
		return // stopped while the probe was running
	}
	writable(worker.Elem().FieldByName("lastResult")).SetInt(int64(results.Unknown))
	writable(worker.Elem().FieldByName("resultRun")).SetInt(0)
}

// ProbeKind is the kubelet's number for a kind of probe.
type ProbeKind int64

// The kinds of probes.
const (
	Liveness ProbeKind = iota
	Readiness
	Startup
)

// probeKey returns the kubelet's map key for a worker.
func probeKey(of reflect.Type, uid types.UID, container string, kind ProbeKind) reflect.Value {
	key := reflect.New(of).Elem()
	writable(key.FieldByName("podUID")).SetString(string(uid))
	writable(key.FieldByName("containerName")).SetString(container)
	writable(key.FieldByName("probeType")).SetInt(int64(kind))
	return key
}

// The linker keeps the function below only if its package is used.
var _ = kuberuntime.HasAnyRegularContainerCreated

//nolint:revive // argument-limit: the kubelet's signature
//go:linkname setTerminationGracePeriod k8s.io/kubernetes/pkg/kubelet/kuberuntime.setTerminationGracePeriod
func setTerminationGracePeriod(
	ctx context.Context, pod *v1.Pod, container *v1.Container, name string, id kubecontainer.ContainerID, reason string,
) int64

// GracePeriod returns how long the kubelet gives a container that it stops for reason, before hooks and its minimum.
func GracePeriod(pod *v1.Pod, container *v1.Container, reason string) time.Duration {
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	seconds := setTerminationGracePeriod(ctx, pod, container, container.Name, kubecontainer.ContainerID{}, reason)
	return time.Duration(seconds) * time.Second
}
