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

// The receiver of a method comes first.
//
//nolint:revive // context-as-argument, argument-limit: this is a method of the kubelet's
//go:linkname runProbe k8s.io/kubernetes/pkg/kubelet/prober.(*prober).runProbe
func runProbe(
	p unsafe.Pointer, ctx context.Context, kind int, spec *v1.Probe, pod *v1.Pod, status v1.PodStatus, container v1.Container,
	id kubecontainer.ContainerID,
) (probe.Result, string, error)

// Checker is the part of the kubelet's prober that asks one container once.
type Checker struct{ prober unsafe.Pointer }

// NewChecker makes one that runs commands so.
func NewChecker(runner kubecontainer.CommandRunner) *Checker {
	return &Checker{newProber(runner, nil)}
}

// Check asks once. The kubelet takes no notice of the result where there is an error.
func (c *Checker) Check(spec *v1.Probe, container *v1.Container, podIP string) (probe.Result, string, error) {
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	return runProbe(c.prober, ctx, 0, spec, &v1.Pod{}, v1.PodStatus{PodIP: podIP}, *container, kubecontainer.ContainerID{})
}

// ForgetStreak has the worker of a probe count anew. Only what runs in that worker may call it.
func ForgetStreak(m prober.Manager, uid types.UID, container string, kind ProbeKind) {
	lock := field(m, "workerLock").Addr().Interface().(*sync.RWMutex)
	lock.RLock()
	defer lock.RUnlock()
	workers := field(m, "workers")
	worker := workers.MapIndex(probeKey(workers.Type().Key(), uid, container, kind))
	if !worker.IsValid() {
		return // it was stopped while it asked
	}
	settable(worker.Elem().FieldByName("lastResult")).SetInt(int64(results.Unknown))
	settable(worker.Elem().FieldByName("resultRun")).SetInt(0)
}

// ProbeKind is the kubelet's number for a kind of probe.
type ProbeKind int64

// The kinds.
const (
	Liveness ProbeKind = iota
	Readiness
	Startup
)

// probeKey is the kubelet's name for a worker.
func probeKey(of reflect.Type, uid types.UID, container string, kind ProbeKind) reflect.Value {
	key := reflect.New(of).Elem()
	settable(key.FieldByName("podUID")).SetString(string(uid))
	settable(key.FieldByName("containerName")).SetString(container)
	settable(key.FieldByName("probeType")).SetInt(int64(kind))
	return key
}

// What is linked below is there only if somebody uses its package.
var _ = kuberuntime.HasAnyRegularContainerCreated

//nolint:revive // argument-limit: as the kubelet has it
//go:linkname setTerminationGracePeriod k8s.io/kubernetes/pkg/kubelet/kuberuntime.setTerminationGracePeriod
func setTerminationGracePeriod(
	ctx context.Context, pod *v1.Pod, container *v1.Container, name string, id kubecontainer.ContainerID, reason string,
) int64

// GracePeriod is what the kubelet gives a container that it stops for that reason, before hooks and its minimum.
func GracePeriod(pod *v1.Pod, container *v1.Container, reason string) time.Duration {
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	seconds := setTerminationGracePeriod(ctx, pod, container, container.Name, kubecontainer.ContainerID{}, reason)
	return time.Duration(seconds) * time.Second
}
