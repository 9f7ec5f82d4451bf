package criconfig

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Unsupported returns an error that lists the fields of the pod that are not honoured under any settings, each with the
// reason, or nil. No field is ignored silently.
func Unsupported(pod *v1.Pod) error {
	permissive := Generator{AllowedUnsafeSysctls: []string{"*"}}
	if class := pod.Spec.RuntimeClassName; class != nil {
		permissive.RuntimeHandlers = map[string]string{*class: ""}
	}
	return permissive.Unsupported(pod)
}

// Unsupported is like the function Unsupported, and also lists the fields that the node's settings do not allow.
func (g *Generator) Unsupported(pod *v1.Pod) error {
	errs := g.unsupported(pod)
	return append(errs.rejected, errs.waiting...).ToAggregate()
}

// Rejected lists the fields for which no node of this kind ever runs the pod, and for which the kubelet rejects it at admission
// too. A pod with any other unsupported field stays Pending as on a kubelet: what it needs may come, and a controller
// would replace a failed pod without end.
func (g *Generator) Rejected(pod *v1.Pod) error {
	errs := g.unsupported(pod)
	return errs.rejected.ToAggregate()
}

func (g *Generator) unsupported(pod *v1.Pod) *fieldErrors {
	spec, errs := field.NewPath("spec"), &fieldErrors{}
	g.checkPodSpec(errs, spec, &pod.Spec)
	for i := range pod.Spec.Volumes {
		errs.checkVolume(spec.Child("volumes").Index(i), &pod.Spec.Volumes[i])
	}
	for i := range pod.Spec.InitContainers {
		errs.checkContainer(spec.Child("initContainers").Index(i), &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		errs.checkContainer(spec.Child("containers").Index(i), &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		container := (*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		errs.checkContainer(spec.Child("ephemeralContainers").Index(i), container)
	}
	return errs
}

func (g *Generator) checkPodSpec(errs *fieldErrors, path *field.Path, spec *v1.PodSpec) {
	errs.wait(spec.HostUsers != nil && !*spec.HostUsers, path.Child("hostUsers"),
		"user namespaces are not supported; remove the field")
	errs.wait(len(spec.ResourceClaims) > 0, path.Child("resourceClaims"), "device allocation is not supported; use another node")
	errs.wait(spec.Resources != nil, path.Child("resources"), "resources are only supported on containers; set them there")
	errs.reject(spec.OS != nil && spec.OS.Name != v1.Linux, path.Child("os", "name"), "only linux is supported")
	if class := spec.RuntimeClassName; class != nil {
		_, known := g.RuntimeHandlers[*class]
		errs.wait(!known, path.Child("runtimeClassName"),
			fmt.Sprintf("no handler is configured for %q; remove the field or use another node", *class))
	}
	security := spec.SecurityContext
	if security == nil {
		return
	}
	path = path.Child("securityContext")
	errs.reject(security.WindowsOptions != nil, path.Child("windowsOptions"), "only linux is supported")
	for i, sysctl := range security.Sysctls {
		errs.reject(!g.allowsSysctl(sysctl.Name), path.Child("sysctls").Index(i),
			fmt.Sprintf("%s may affect other pods and is not in the allowed unsafe sysctls", sysctl.Name))
		namespace := sysctlNamespace(sysctl.Name)
		errs.reject(namespace == netNamespace && spec.HostNetwork || namespace == ipcNamespace && spec.HostIPC,
			path.Child("sysctls").Index(i), fmt.Sprintf("%s not allowed with host %s enabled", sysctl.Name, namespace))
	}
}

// safeSysctls are confined to the pod's own namespaces.
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem",
	"net.ipv4.tcp_wmem",
}

func (g *Generator) allowsSysctl(name string) bool {
	name = normalizeSysctl(name)
	return slices.Contains(safeSysctls, name) || slices.ContainsFunc(g.AllowedUnsafeSysctls, func(allowed string) bool {
		prefix, isPattern := strings.CutSuffix(allowed, "*")
		return name == allowed || isPattern && strings.HasPrefix(name, prefix)
	})
}

// The namespaces of sysctls, in the kubelet's words.
const (
	netNamespace = "Net"
	ipcNamespace = "IPC"
)

// sysctlNamespace returns the namespace that the sysctl belongs to, or "" if it is unknown.
func sysctlNamespace(name string) string {
	name = normalizeSysctl(name)
	switch {
	case strings.HasPrefix(name, "net."):
		return netNamespace
	case name == "kernel.sem", strings.HasPrefix(name, "kernel.shm"), strings.HasPrefix(name, "kernel.msg"),
		strings.HasPrefix(name, "fs.mqueue."):
		return ipcNamespace
	default:
		return ""
	}
}

// normalizeSysctl returns the form that is separated by dots. The first separator decides which form a name has.
func normalizeSysctl(name string) string {
	if first := strings.IndexAny(name, "./"); first < 0 || name[first] == '.' {
		return name
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(name)
}

// volumeSources are the volumes that become a directory on the node without a driver.
var volumeSources = []string{"hostPath", "emptyDir", "secret", "configMap", "downwardAPI", "projected"}

func (e *fieldErrors) checkVolume(path *field.Path, volume *v1.Volume) {
	source := reflect.ValueOf(volume.VolumeSource)
	for i := range source.NumField() {
		name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
		e.wait(!source.Field(i).IsNil() && !slices.Contains(volumeSources, name), path.Child(name),
			"volumes that need a driver are not supported; use "+strings.Join(volumeSources, ", "))
	}
	if emptyDir := volume.EmptyDir; emptyDir != nil {
		e.wait(strings.HasPrefix(string(emptyDir.Medium), string(v1.StorageMediumHugePages)), path.Child("emptyDir", "medium"),
			"huge pages are not supported")
	}
}

// limits lists the resources whose limits are accepted. Nothing enforces one of ephemeral-storage.
var limits = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}

func (e *fieldErrors) checkContainer(path *field.Path, container *v1.Container) {
	e.wait(len(container.VolumeDevices) > 0, path.Child("volumeDevices"), "block devices are not supported")
	e.wait(len(container.Resources.Claims) > 0, path.Child("resources", "claims"), "device allocation is not supported; use another node")
	for name := range container.Resources.Limits {
		const reason = "only cpu, memory and ephemeral-storage limits are supported"
		limit, isHugePages := path.Child("resources", "limits").Key(string(name)), strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
		e.reject(isHugePages, limit, reason) // the kubelet: OutOfhugepages
		e.wait(!isHugePages && !slices.Contains(limits, name), limit, reason)
	}
	if security := container.SecurityContext; security != nil {
		e.reject(security.WindowsOptions != nil, path.Child("securityContext", "windowsOptions"), "only linux is supported")
	}
	if lifecycle := container.Lifecycle; lifecycle != nil {
		for name, handler := range map[string]*v1.LifecycleHandler{"postStart": lifecycle.PostStart, "preStop": lifecycle.PreStop} {
			e.wait(handler != nil && handler.TCPSocket != nil, path.Child("lifecycle", name, "tcpSocket"),
				"hooks must use exec, httpGet or sleep")
		}
	}
}

// fieldErrors collects the unsupported fields of a pod: those for which it is rejected, and those for which it waits.
type fieldErrors struct{ rejected, waiting field.ErrorList }

func (e *fieldErrors) reject(condition bool, path *field.Path, reason string) {
	if condition {
		e.rejected = append(e.rejected, field.Forbidden(path, reason))
	}
}

func (e *fieldErrors) wait(condition bool, path *field.Path, reason string) {
	if condition {
		e.waiting = append(e.waiting, field.Forbidden(path, reason))
	}
}
