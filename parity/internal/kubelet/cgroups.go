package kubelet

import (
	"context"
	"math"
	"reflect"
	"time"
	"unsafe" // for linkname

	systemddbus "github.com/coreos/go-systemd/v22/dbus"
	_ "github.com/opencontainers/cgroups/systemd" // for linkname
	"go.opentelemetry.io/otel/trace/noop"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criapitest "k8s.io/cri-api/pkg/apis/testing"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
)

//nolint:revive // context-as-argument: a method, so the receiver comes first
//go:linkname generateLinuxContainerResources k8s.io/kubernetes/pkg/kubelet/kuberuntime.(*kubeGenericRuntimeManager).generateLinuxContainerResources
func generateLinuxContainerResources(
	m unsafe.Pointer, ctx context.Context, pod *v1.Pod, container *v1.Container, enforceMemoryQoS bool,
) *runtimeapi.LinuxContainerResources

//nolint:revive // context-as-argument: a method, so the receiver comes first
//go:linkname applySandboxResources k8s.io/kubernetes/pkg/kubelet/kuberuntime.(*kubeGenericRuntimeManager).applySandboxResources
func applySandboxResources(m unsafe.Pointer, ctx context.Context, pod *v1.Pod, config *runtimeapi.PodSandboxConfig) error

//go:linkname isCgroup2UnifiedMode k8s.io/kubernetes/pkg/kubelet/kuberuntime.isCgroup2UnifiedMode
var isCgroup2UnifiedMode func() bool

//go:linkname getCPUWeight k8s.io/kubernetes/pkg/kubelet/cm.getCPUWeight
func getCPUWeight(shares *uint64) uint64

//go:linkname getCgroupConfigInternal k8s.io/kubernetes/pkg/kubelet/cm.getCgroupConfigInternal
func getCgroupConfigInternal(list v1.ResourceList, compressibleOnly bool) *cm.ResourceConfig

//go:linkname addCPUQuota github.com/opencontainers/cgroups/systemd.addCPUQuota
func addCPUQuota(connection unsafe.Pointer, properties *[]systemddbus.Property, quota *int64, period uint64)

// SystemdCPUQuota returns the quota that the kubelet's cgroup library writes with the systemd driver, per period of 100 ms, and
// the value of CPUQuotaPerSecUSec.
func SystemdCPUQuota(quota int64) (rounded int64, perSecond uint64) {
	var properties []systemddbus.Property
	addCPUQuota(nil, &properties, &quota, 0) // with a period, it would ask systemd for its version
	if len(properties) == 0 {
		return quota, math.MaxUint64
	}
	return quota, properties[0].Value.Value().(uint64)
}

// CPUWeight returns the kubelet's weight for its own cgroups of version 2.
func CPUWeight(shares uint64) uint64 { return getCPUWeight(&shares) }

// NodeCgroup returns the values of the cgroup of all pods.
func NodeCgroup(available v1.ResourceList) *cm.ResourceConfig {
	return getCgroupConfigInternal(available, false)
}

// PodCgroup returns the values of a pod's cgroup.
func PodCgroup(pod *v1.Pod) *cm.ResourceConfig {
	return cm.ResourceConfigForPod(pod, true, cm.QuotaPeriod, false, kubeletconfig.NoneMemoryReservationPolicy)
}

// PodCgroupParent returns the cgroup_parent that the kubelet sends. Only cgroup names depend on the driver.
func PodCgroupParent(root, driver string, class v1.PodQOSClass, pod *v1.Pod) string {
	manager := cm.NewCgroupV1Manager(klog.Logger{}, &cm.CgroupSubsystems{}, driver)
	name := cm.NewCgroupName(cm.ParseCgroupfsToCgroupName(root), "kubepods")
	switch class {
	case v1.PodQOSBurstable:
		name = cm.NewCgroupName(name, "burstable")
	case v1.PodQOSBestEffort:
		name = cm.NewCgroupName(name, "besteffort")
	}
	return manager.Name(cm.NewCgroupName(name, cm.GetPodCgroupNameSuffix(pod.UID)))
}

// QOSCgroups returns the values of the cgroups of the QoS classes.
func QOSCgroups(pods []*v1.Pod) (burstable, bestEffort *cm.ResourceConfig, err error) {
	recorder := &cgroupRecorder{}
	manager, err := cm.NewQOSContainerManager(&cm.CgroupSubsystems{}, cm.CgroupName{"kubepods"}, cm.NodeConfig{CgroupsPerQOS: true}, recorder)
	if err != nil {
		return nil, nil, err
	}
	setField(manager, "activePods", cm.ActivePodsFunc(func() []*v1.Pod { return pods }))
	setField(manager, "qosContainersInfo", cm.QOSContainersInfo{
		Guaranteed: cm.CgroupName{"guaranteed"}, Burstable: cm.CgroupName{"burstable"}, BestEffort: cm.CgroupName{"besteffort"},
	})
	err = manager.UpdateCgroups(klog.Logger{})
	return recorder.updated["burstable"], recorder.updated["besteffort"], err
}

// cgroupRecorder records updates instead of writing them.
type cgroupRecorder struct {
	cm.CgroupManager
	updated map[string]*cm.ResourceConfig
}

func (r *cgroupRecorder) Update(_ klog.Logger, config *cm.CgroupConfig) error {
	if r.updated == nil {
		r.updated = map[string]*cm.ResourceConfig{}
	}
	r.updated[config.Name[0]] = config.ResourceParameters
	return nil
}

// Host is the machine that ContainerResources assumes. Sizes of huge pages are those of the real machine.
type Host struct {
	V2, SwapController, SingleProcessOOMKill bool
	MemoryCapacity                           uint64
}

// RuntimeManager is the part of the kubelet that writes CRI resources. It is not safe for concurrent use.
type RuntimeManager struct {
	manager kuberuntime.KubeGenericRuntime
}

// NewRuntimeManager returns a RuntimeManager that keeps its files in dir.
func NewRuntimeManager(dir string) (*RuntimeManager, error) {
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	manager, _, err := kuberuntime.NewKubeGenericRuntimeManager(
		ctx, nil, nil, nil, nil, dir, dir, nil, nil, 110, nil, nil, nil, nil, true, nil, 0, 0,
		string(kubeletconfig.NeverVerify), nil, "", "", nil, true, metav1.Duration{Duration: 100 * time.Millisecond},
		criapitest.NewFakeRuntimeService(), criapitest.NewFakeImageService(), cm.NewStubContainerManager(), nil, nil, false, "",
		nil, 0, kubeletconfig.NoneMemoryReservationPolicy, nil, noop.NewTracerProvider(), nil, nil, nil)
	return &RuntimeManager{manager}, err
}

func (m *RuntimeManager) setHost(host Host) {
	isCgroup2UnifiedMode = func() bool { return host.V2 }
	setField(m.manager, "getSwapControllerAvailable", func() bool { return host.SwapController })
	setField(m.manager, "singleProcessOOMKill", &host.SingleProcessOOMKill)
	machine := field(m.manager, "machineInfo")
	if machine.IsNil() {
		machine.Set(reflect.New(machine.Type().Elem()))
	}
	machine.Elem().FieldByName("MemoryCapacity").SetUint(host.MemoryCapacity)
}

// ContainerResources returns the resources in a container's configuration.
func (m *RuntimeManager) ContainerResources(host Host, pod *v1.Pod, container *v1.Container) *runtimeapi.LinuxContainerResources {
	m.setHost(host)
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	return generateLinuxContainerResources(reflect.ValueOf(m.manager).UnsafePointer(), ctx, pod, container, false)
}

// SandboxResources returns the resources and the overhead in a sandbox's configuration.
func (m *RuntimeManager) SandboxResources(host Host, pod *v1.Pod) (resources, overhead *runtimeapi.LinuxContainerResources, err error) {
	m.setHost(host)
	config := &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{}}
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	err = applySandboxResources(reflect.ValueOf(m.manager).UnsafePointer(), ctx, pod, config)
	return config.Linux.Resources, config.Linux.Overhead, err
}
