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
	spec := field.NewPath("spec")
	errs := g.unsupportedPodSpec(spec, &pod.Spec)
	for i := range pod.Spec.Volumes {
		errs = append(errs, unsupportedVolume(spec.Child("volumes").Index(i), &pod.Spec.Volumes[i])...)
	}
	for i := range pod.Spec.InitContainers {
		errs = append(errs, unsupportedContainer(spec.Child("initContainers").Index(i), &pod.Spec.InitContainers[i])...)
	}
	for i := range pod.Spec.Containers {
		errs = append(errs, unsupportedContainer(spec.Child("containers").Index(i), &pod.Spec.Containers[i])...)
	}
	for i := range pod.Spec.EphemeralContainers {
		container := (*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		errs = append(errs, unsupportedContainer(spec.Child("ephemeralContainers").Index(i), container)...)
	}
	return errs.ToAggregate()
}

func (g *Generator) unsupportedPodSpec(path *field.Path, spec *v1.PodSpec) field.ErrorList {
	var errs fieldErrors
	errs.forbid(spec.HostUsers != nil && !*spec.HostUsers, path.Child("hostUsers"), "user namespaces are not supported")
	errs.forbid(len(spec.ResourceClaims) > 0, path.Child("resourceClaims"), "device allocation is not supported")
	errs.forbid(spec.Resources != nil, path.Child("resources"), "resources are only supported on containers")
	errs.forbid(spec.OS != nil && spec.OS.Name != v1.Linux, path.Child("os", "name"), "only linux is supported")
	if class := spec.RuntimeClassName; class != nil {
		_, known := g.RuntimeHandlers[*class]
		errs.forbid(!known, path.Child("runtimeClassName"), fmt.Sprintf("no handler is configured for %q", *class))
	}
	security := spec.SecurityContext
	if security == nil {
		return errs.list
	}
	path = path.Child("securityContext")
	errs.forbid(security.WindowsOptions != nil, path.Child("windowsOptions"), "only linux is supported")
	for i, sysctl := range security.Sysctls {
		errs.forbid(!g.allowsSysctl(sysctl.Name), path.Child("sysctls").Index(i),
			fmt.Sprintf("%s may affect other pods and is not in the allowed unsafe sysctls", sysctl.Name))
		namespace := sysctlNamespace(sysctl.Name)
		errs.forbid(namespace == netNamespace && spec.HostNetwork || namespace == ipcNamespace && spec.HostIPC,
			path.Child("sysctls").Index(i), fmt.Sprintf("%s not allowed with host %s enabled", sysctl.Name, namespace))
	}
	return errs.list
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
	case name == "kernel.sem", strings.HasPrefix(name, "kernel.shm"), strings.HasPrefix(name, "kernel.msg"), strings.HasPrefix(name, "fs.mqueue."):
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

func unsupportedVolume(path *field.Path, volume *v1.Volume) field.ErrorList {
	var errs fieldErrors
	source := reflect.ValueOf(volume.VolumeSource)
	for i := range source.NumField() {
		name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
		errs.forbid(!source.Field(i).IsNil() && !slices.Contains(volumeSources, name), path.Child(name),
			"volumes that need a driver are not supported; use "+strings.Join(volumeSources, ", "))
	}
	if emptyDir := volume.EmptyDir; emptyDir != nil {
		errs.forbid(strings.HasPrefix(string(emptyDir.Medium), string(v1.StorageMediumHugePages)), path.Child("emptyDir", "medium"),
			"huge pages are not supported")
	}
	return errs.list
}

func unsupportedContainer(path *field.Path, container *v1.Container) field.ErrorList {
	var errs fieldErrors
	errs.forbid(len(container.VolumeDevices) > 0, path.Child("volumeDevices"), "block devices are not supported")
	errs.forbid(len(container.Resources.Claims) > 0, path.Child("resources", "claims"), "device allocation is not supported")
	for name := range container.Resources.Limits {
		supported := name == v1.ResourceCPU || name == v1.ResourceMemory
		errs.forbid(!supported, path.Child("resources", "limits").Key(string(name)), "only cpu and memory limits are supported")
	}
	if security := container.SecurityContext; security != nil {
		errs.forbid(security.WindowsOptions != nil, path.Child("securityContext", "windowsOptions"), "only linux is supported")
	}
	if lifecycle := container.Lifecycle; lifecycle != nil {
		for name, handler := range map[string]*v1.LifecycleHandler{"postStart": lifecycle.PostStart, "preStop": lifecycle.PreStop} {
			errs.forbid(handler != nil && handler.TCPSocket != nil, path.Child("lifecycle", name, "tcpSocket"),
				"hooks must use exec, httpGet or sleep")
		}
	}
	return errs.list
}

type fieldErrors struct{ list field.ErrorList }

func (e *fieldErrors) forbid(condition bool, path *field.Path, reason string) {
	if condition {
		e.list = append(e.list, field.Forbidden(path, reason))
	}
}
