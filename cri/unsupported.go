package cri

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Unsupported names each field of the pod that no Config could make this package honour, and says why; nil when there is
// none. Nothing that a pod asks for is left out in silence.
func Unsupported(pod *v1.Pod) error {
	permissive := Config{AllowedUnsafeSysctls: []string{"*"}}
	if class := pod.Spec.RuntimeClassName; class != nil {
		permissive.RuntimeHandlers = map[string]string{*class: ""}
	}
	return permissive.unsupported(pod)
}

// Unsupported is the package's function, with what this Runtime's Config does not allow.
func (r *Runtime) Unsupported(pod *v1.Pod) error { return r.config.unsupported(pod) }

func (c *Config) unsupported(pod *v1.Pod) error {
	spec := field.NewPath("spec")
	refused := c.unsupportedPod(spec, &pod.Spec)
	for i := range pod.Spec.Volumes {
		refused = append(refused, unsupportedVolume(spec.Child("volumes").Index(i), &pod.Spec.Volumes[i])...)
	}
	for i := range pod.Spec.InitContainers {
		refused = append(refused, unsupportedContainer(spec.Child("initContainers").Index(i), &pod.Spec.InitContainers[i])...)
	}
	for i := range pod.Spec.Containers {
		refused = append(refused, unsupportedContainer(spec.Child("containers").Index(i), &pod.Spec.Containers[i])...)
	}
	for i := range pod.Spec.EphemeralContainers {
		container := (*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		refused = append(refused, unsupportedContainer(spec.Child("ephemeralContainers").Index(i), container)...)
	}
	return refused.ToAggregate()
}

func (c *Config) unsupportedPod(at *field.Path, spec *v1.PodSpec) field.ErrorList {
	var refused refusals
	refused.when(spec.HostUsers != nil && !*spec.HostUsers, at.Child("hostUsers"), "user namespaces are not made here")
	refused.when(len(spec.ResourceClaims) > 0, at.Child("resourceClaims"), "devices are not allocated here")
	refused.when(spec.Resources != nil, at.Child("resources"), "limits are set on containers only")
	refused.when(spec.OS != nil && spec.OS.Name != v1.Linux, at.Child("os", "name"), "only linux is known here")
	if class := spec.RuntimeClassName; class != nil {
		_, known := c.RuntimeHandlers[*class]
		refused.when(!known, at.Child("runtimeClassName"), fmt.Sprintf("no handler is configured for %q", *class))
	}
	security := spec.SecurityContext
	if security == nil {
		return refused.list
	}
	at = at.Child("securityContext")
	refused.when(security.WindowsOptions != nil, at.Child("windowsOptions"), "only linux is known here")
	for i, sysctl := range security.Sysctls {
		refused.when(!c.allowsSysctl(sysctl.Name), at.Child("sysctls").Index(i),
			fmt.Sprintf("%s is not safe for other pods, and not allowed by configuration", sysctl.Name))
	}
	return refused.list
}

// safeSysctls change nothing outside of the pod's own namespaces.
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem",
	"net.ipv4.tcp_wmem",
}

func (c *Config) allowsSysctl(name string) bool {
	name = strings.ReplaceAll(name, "/", ".")
	return slices.Contains(safeSysctls, name) || slices.ContainsFunc(c.AllowedUnsafeSysctls, func(allowed string) bool {
		prefix, open := strings.CutSuffix(allowed, "*")
		return name == allowed || open && strings.HasPrefix(name, prefix)
	})
}

// volumeSources are those that become a folder on the node without a driver.
var volumeSources = []string{"hostPath", "emptyDir", "secret", "configMap", "downwardAPI", "projected"}

func unsupportedVolume(at *field.Path, volume *v1.Volume) field.ErrorList {
	var refused refusals
	source := reflect.ValueOf(volume.VolumeSource)
	for i := range source.NumField() {
		name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
		refused.when(!source.Field(i).IsNil() && !slices.Contains(volumeSources, name), at.Child(name),
			"volumes that need a driver are not mounted here; use "+strings.Join(volumeSources, ", "))
	}
	if empty := volume.EmptyDir; empty != nil {
		refused.when(strings.HasPrefix(string(empty.Medium), string(v1.StorageMediumHugePages)), at.Child("emptyDir", "medium"),
			"huge pages are not handed out here")
	}
	return refused.list
}

func unsupportedContainer(at *field.Path, container *v1.Container) field.ErrorList {
	var refused refusals
	refused.when(len(container.VolumeDevices) > 0, at.Child("volumeDevices"), "block devices are not handed out here")
	refused.when(len(container.Resources.Claims) > 0, at.Child("resources", "claims"), "devices are not allocated here")
	for name := range container.Resources.Limits {
		limited := name == v1.ResourceCPU || name == v1.ResourceMemory
		refused.when(!limited, at.Child("resources", "limits").Key(string(name)), "only cpu and memory are limited here")
	}
	if security := container.SecurityContext; security != nil {
		refused.when(security.WindowsOptions != nil, at.Child("securityContext", "windowsOptions"), "only linux is known here")
	}
	if lifecycle := container.Lifecycle; lifecycle != nil {
		for name, hook := range map[string]*v1.LifecycleHandler{"postStart": lifecycle.PostStart, "preStop": lifecycle.PreStop} {
			refused.when(hook != nil && hook.TCPSocket != nil, at.Child("lifecycle", name, "tcpSocket"),
				"hooks are exec, httpGet or sleep")
		}
	}
	return refused.list
}

type refusals struct{ list field.ErrorList }

func (r *refusals) when(refuse bool, at *field.Path, why string) {
	if refuse {
		r.list = append(r.list, field.Forbidden(at, why))
	}
}
