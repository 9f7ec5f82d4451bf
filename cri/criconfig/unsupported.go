package criconfig

import (
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/heraldnode/herald/admission"
)

// Unsupported returns an error that lists the fields of the pod that are not honoured under any settings, each with the
// reason, or nil. No field is ignored silently: a pod with such a field stays Pending, because a controller would replace a
// failed pod without end. What the kubelet rejects too is included; package admission rejects it. So are hooks that always fail:
// they do not keep a pod from starting.
func Unsupported(pod *v1.Pod) error {
	permissive := Generator{AllowedUnsafeSysctls: []string{"*"}}
	errs := permissive.unsupported(pod)
	forEachContainer(pod, errs.checkHooks)
	return field.ErrorList(*errs).ToAggregate()
}

// Unsupported returns an error that lists the fields for which the pod stays Pending on this node, or nil. That includes the fields that
// the node's settings do not allow.
func (g *Generator) Unsupported(pod *v1.Pod) error {
	return field.ErrorList(*g.unsupported(pod)).ToAggregate()
}

func (g *Generator) unsupported(pod *v1.Pod) *fieldErrors {
	spec, errs := field.NewPath("spec"), &fieldErrors{}
	if rejection := admission.CheckSpec(pod, g.AllowedUnsafeSysctls); rejection != nil {
		errs.forbid(true, field.NewPath(rejection.Field), rejection.Message+"; "+rejection.Remedy)
	}
	errs.checkPodSpec(spec, &pod.Spec)
	for i := range pod.Spec.Volumes {
		errs.checkVolume(spec.Child("volumes").Index(i), &pod.Spec.Volumes[i])
	}
	forEachContainer(pod, errs.checkContainer)
	return errs
}

// forEachContainer calls visit for each container of the pod, with its path.
func forEachContainer(pod *v1.Pod, visit func(*field.Path, *v1.Container)) {
	spec := field.NewPath("spec")
	for i := range pod.Spec.InitContainers {
		visit(spec.Child("initContainers").Index(i), &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		visit(spec.Child("containers").Index(i), &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		visit(spec.Child("ephemeralContainers").Index(i), (*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

func (e *fieldErrors) checkPodSpec(path *field.Path, spec *v1.PodSpec) {
	e.forbid(spec.HostUsers != nil && !*spec.HostUsers, path.Child("hostUsers"),
		"user namespaces are not supported; remove the field")
	e.forbid(len(spec.ResourceClaims) > 0, path.Child("resourceClaims"), "device allocation is not supported; use another node")
}

// volumeSources are the volumes that become a directory on the node without a driver.
var volumeSources = []string{"hostPath", "emptyDir", "secret", "configMap", "downwardAPI", "projected"}

func (e *fieldErrors) checkVolume(path *field.Path, volume *v1.Volume) {
	source := reflect.ValueOf(volume.VolumeSource)
	for i := range source.NumField() {
		name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
		e.forbid(!source.Field(i).IsNil() && !slices.Contains(volumeSources, name), path.Child(name),
			"volumes that need a driver are not supported; use "+strings.Join(volumeSources, ", "))
	}
	if projected := volume.Projected; projected != nil {
		for i, source := range projected.Sources {
			at := path.Child("projected", "sources").Index(i)
			e.forbid(source.ClusterTrustBundle != nil, at.Child("clusterTrustBundle"), "is not supported; use a configMap")
			e.forbid(source.PodCertificate != nil, at.Child("podCertificate"), "is not supported; use a secret")
		}
	}
	if emptyDir := volume.EmptyDir; emptyDir != nil {
		e.forbid(strings.HasPrefix(string(emptyDir.Medium), string(v1.StorageMediumHugePages)), path.Child("emptyDir", "medium"),
			"huge pages are not supported; use Memory")
	}
}

func (e *fieldErrors) checkContainer(path *field.Path, container *v1.Container) {
	e.forbid(len(container.VolumeDevices) > 0, path.Child("volumeDevices"), "block devices are not supported; use volumeMounts")
	e.forbid(len(container.Resources.Claims) > 0, path.Child("resources", "claims"), "device allocation is not supported; use another node")
	for i, variable := range container.Env {
		e.forbid(variable.ValueFrom != nil && variable.ValueFrom.FileKeyRef != nil,
			path.Child("env").Index(i).Child("valueFrom", "fileKeyRef"), "is not supported; use a configMap or secret")
	}
}

// checkHooks lists hooks that fail whenever they run. The API server accepts them.
func (e *fieldErrors) checkHooks(path *field.Path, container *v1.Container) {
	if lifecycle := container.Lifecycle; lifecycle != nil {
		for name, handler := range map[string]*v1.LifecycleHandler{"postStart": lifecycle.PostStart, "preStop": lifecycle.PreStop} {
			e.forbid(handler != nil && handler.TCPSocket != nil, path.Child("lifecycle", name, "tcpSocket"),
				"hooks must use exec, httpGet or sleep")
		}
	}
}

// fieldErrors collects the unsupported fields of a pod.
type fieldErrors field.ErrorList

func (e *fieldErrors) forbid(condition bool, path *field.Path, reason string) {
	if condition {
		*e = append(*e, field.Forbidden(path, reason))
	}
}
