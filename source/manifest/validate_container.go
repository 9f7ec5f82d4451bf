package manifest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/heraldnode/herald/internal/restart"
)

const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

// eachContainer calls visit for each init container and container, in the order of their start.
func (v *validator) eachContainer(spec *field.Path, visit func(*v1.Container, *field.Path)) {
	for i := range v.spec.InitContainers {
		visit(&v.spec.InitContainers[i], spec.Child("initContainers").Index(i))
	}
	for i := range v.spec.Containers {
		visit(&v.spec.Containers[i], spec.Child("containers").Index(i))
	}
}

func (v *validator) validateContainers(spec *field.Path) {
	if len(v.spec.Containers) == 0 {
		v.required(spec.Child("containers"), "")
	}
	if len(v.spec.EphemeralContainers) > 0 {
		v.forbidden(spec.Child("ephemeralContainers"), "may only be added to a running pod")
	}
	names := make(map[string]bool)
	v.eachContainer(spec, func(container *v1.Container, at *field.Path) {
		requireUnique(v, at.Child("name"), names, container.Name)
		v.validateContainer(at, container)
	})
	for i := range v.spec.InitContainers {
		v.validateInitContainer(spec.Child("initContainers").Index(i), &v.spec.InitContainers[i])
	}
	for i := range v.spec.Containers {
		v.validateHooksAndProbes(spec.Child("containers").Index(i), &v.spec.Containers[i])
	}
	v.validateHostPorts(spec)
}

// validateContainer validates the fields that all kinds of containers have.
func (v *validator) validateContainer(at *field.Path, container *v1.Container) {
	v.requireValid(at.Child("name"), container.Name, validation.IsDNS1123Label)
	v.validateImage(at.Child("image"), container.Image)
	v.validatePullPolicy(at.Child("imagePullPolicy"), container.ImagePullPolicy)
	requireOneOf(v, at.Child("terminationMessagePolicy"), container.TerminationMessagePolicy,
		v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	v.validatePorts(at.Child("ports"), container.Ports)
	v.validateEnv(at, container)
	v.validateMounts(at, container)
	v.validateResources(at.Child("resources"), &container.Resources, validateContainerResource)
	v.validateResizePolicy(at.Child("resizePolicy"), container.ResizePolicy)
	v.validateRestartPolicy(at, container)
	v.validateSecurity(at.Child("securityContext"), container)
}

func (v *validator) validateImage(at *field.Path, image string) {
	switch {
	case image == "":
		v.required(at, "")
	case strings.TrimSpace(image) != image:
		v.invalid(at, image, "must not have leading or trailing whitespace")
	}
}

func (v *validator) validatePullPolicy(at *field.Path, policy v1.PullPolicy) {
	requireOneOf(v, at, policy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
}

// validateInitContainer allows hooks and probes only for sidecars: other init containers run to completion.
func (v *validator) validateInitContainer(at *field.Path, container *v1.Container) {
	if restart.IsSidecar(container) {
		v.validateHooksAndProbes(at, container)
		return
	}
	for name, set := range map[string]bool{
		"lifecycle":      container.Lifecycle != nil,
		"livenessProbe":  container.LivenessProbe != nil,
		"readinessProbe": container.ReadinessProbe != nil,
		"startupProbe":   container.StartupProbe != nil,
	} {
		if set {
			v.forbidden(at.Child(name), "may only be set for an init container with restartPolicy Always")
		}
	}
	for i, policy := range container.ResizePolicy {
		if policy.RestartPolicy == v1.RestartContainer {
			v.invalid(at.Child("resizePolicy").Index(i).Child("restartPolicy"), policy.RestartPolicy,
				"may only be set for an init container with restartPolicy Always")
		}
	}
}

func (v *validator) validateResizePolicy(at *field.Path, policies []v1.ContainerResizePolicy) {
	seen := make(map[v1.ResourceName]bool)
	for i, policy := range policies {
		at := at.Index(i)
		requireOneOf(v, at.Child("resourceName"), policy.ResourceName, v1.ResourceCPU, v1.ResourceMemory)
		requireUnique(v, at.Child("resourceName"), seen, policy.ResourceName)
		requireOneOf(v, at.Child("restartPolicy"), policy.RestartPolicy, v1.NotRequired, v1.RestartContainer)
		if v.spec.RestartPolicy == v1.RestartPolicyNever && policy.RestartPolicy != v1.NotRequired {
			v.invalid(at.Child("restartPolicy"), policy.RestartPolicy, "must be NotRequired when the pod's restartPolicy is Never")
		}
	}
}

// validateRestartPolicy validates the restart policy and rules of a container, which override the pod's policy.
func (v *validator) validateRestartPolicy(at *field.Path, container *v1.Container) {
	rules := container.RestartPolicyRules
	requireOneOfIfSet(v, at.Child("restartPolicy"), container.RestartPolicy,
		v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)
	if container.RestartPolicy == nil && len(rules) > 0 {
		v.required(at.Child("restartPolicy"), "must be set with restartPolicyRules")
	}
	at = at.Child("restartPolicyRules")
	if len(rules) > maxRestartRules {
		v.add(field.TooMany(at, len(rules), maxRestartRules))
	}
	for i, rule := range rules {
		at := at.Index(i)
		requireOneOf(v, at.Child("action"), rule.Action,
			v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers)
		if rule.ExitCodes == nil {
			v.required(at.Child("exitCodes"), "")
			continue
		}
		at = at.Child("exitCodes")
		requireOneOf(v, at.Child("operator"), rule.ExitCodes.Operator,
			v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)
		if len(rule.ExitCodes.Values) > maxExitCodes {
			v.add(field.TooMany(at.Child("values"), len(rule.ExitCodes.Values), maxExitCodes))
		}
	}
}

func (v *validator) validatePorts(at *field.Path, ports []v1.ContainerPort) {
	names := make(map[string]bool)
	for i, port := range ports {
		at := at.Index(i)
		if port.Name != "" {
			v.invalid(at.Child("name"), port.Name, validation.IsValidPortName(port.Name)...)
			requireUnique(v, at.Child("name"), names, port.Name)
		}
		if port.ContainerPort == 0 {
			v.required(at.Child("containerPort"), "")
		} else {
			v.validatePort(at.Child("containerPort"), port.ContainerPort)
		}
		if port.HostPort != 0 {
			v.validatePort(at.Child("hostPort"), port.HostPort)
		}
		if port.HostIP != "" {
			v.add(validation.IsValidIPForLegacyField(at.Child("hostIP"), port.HostIP, true, nil)...)
		}
		requireOneOf(v, at.Child("protocol"), port.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
	}
}

func (v *validator) validatePort(at *field.Path, port int32) {
	v.invalid(at, port, validation.IsValidPortNum(int(port))...)
}

// validatePortReference validates the port of a probe or hook, which may be the name of a container port.
func (v *validator) validatePortReference(at *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.String {
		v.invalid(at, port.StrVal, validation.IsValidPortName(port.StrVal)...)
		return
	}
	v.validatePort(at, port.IntVal)
}

// validateHostPorts rejects host ports that two containers use. Init containers run one after the other, so they may share
// host ports.
func (v *validator) validateHostPorts(spec *field.Path) {
	at := spec.Child("initContainers")
	for i := range v.spec.InitContainers {
		v.requireUniqueHostPorts(at.Index(i).Child("ports"), v.spec.InitContainers[i].Ports, make(map[string]bool))
	}
	at = spec.Child("containers")
	used := make(map[string]bool)
	for i, container := range v.spec.Containers {
		v.requireUniqueHostPorts(at.Index(i).Child("ports"), container.Ports, used)
		for j, port := range container.Ports {
			if v.spec.HostNetwork && port.HostPort != port.ContainerPort {
				v.invalid(at.Index(i).Child("ports").Index(j).Child("hostPort"), port.HostPort,
					"must equal containerPort when hostNetwork is true")
			}
		}
	}
}

func (v *validator) requireUniqueHostPorts(at *field.Path, ports []v1.ContainerPort, used map[string]bool) {
	for i, port := range ports {
		if port.HostPort != 0 {
			key := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
			requireUnique(v, at.Index(i).Child("hostPort"), used, key)
		}
	}
}

func (v *validator) validateMounts(container *field.Path, spec *v1.Container) {
	if len(spec.VolumeDevices) > 0 {
		v.forbidden(container.Child("volumeDevices"), "volume devices require a persistent volume claim, which a static pod cannot have")
	}
	paths := make(map[string]bool)
	for i, mount := range spec.VolumeMounts {
		at := container.Child("volumeMounts").Index(i)
		switch _, exists := v.volumes[mount.Name]; {
		case mount.Name == "":
			v.required(at.Child("name"), "")
		case !exists:
			v.add(field.NotFound(at.Child("name"), mount.Name))
		}
		if mount.MountPath == "" {
			v.required(at.Child("mountPath"), "")
		} else {
			requireUnique(v, at.Child("mountPath"), paths, mount.MountPath)
		}
		v.requireRelativePath(at.Child("subPath"), mount.SubPath)
		v.requireRelativePath(at.Child("subPathExpr"), mount.SubPathExpr)
		if mount.SubPath != "" && mount.SubPathExpr != "" {
			v.forbidden(at.Child("subPathExpr"), "may not be set together with subPath")
		}
		v.validatePropagation(at, mount, spec.SecurityContext)
	}
}

func (v *validator) validatePropagation(at *field.Path, mount v1.VolumeMount, context *v1.SecurityContext) {
	requireOneOfIfSet(v, at.Child("mountPropagation"), mount.MountPropagation,
		v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional)
	privileged := context != nil && context.Privileged != nil && *context.Privileged
	propagates := mount.MountPropagation != nil && *mount.MountPropagation != v1.MountPropagationNone
	if propagates && *mount.MountPropagation == v1.MountPropagationBidirectional && !privileged {
		v.forbidden(at.Child("mountPropagation"), "Bidirectional requires a privileged container")
	}
	if mount.RecursiveReadOnly == nil {
		return
	}
	recursive := at.Child("recursiveReadOnly")
	requireOneOf(v, recursive, *mount.RecursiveReadOnly,
		v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled)
	if *mount.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return
	}
	if !mount.ReadOnly {
		v.forbidden(recursive, "requires readOnly: true")
	}
	if propagates {
		v.forbidden(recursive, "may not be set together with mountPropagation")
	}
}

// Fields of the pod that environment variables and downward API volumes may refer to.
var (
	envFields = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
	volumeFields = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
	}
	resourceFields = []string{
		"limits.cpu", "limits.memory", "limits.ephemeral-storage",
		"requests.cpu", "requests.memory", "requests.ephemeral-storage",
	}
)

// validateEnv validates environment variables. forbidReferences rejects those from API objects.
func (v *validator) validateEnv(container *field.Path, spec *v1.Container) {
	for i, variable := range spec.Env {
		at := container.Child("env").Index(i)
		v.requireValid(at.Child("name"), variable.Name, validation.IsRelaxedEnvVarName)
		if variable.ValueFrom != nil {
			v.validateValueFrom(at.Child("valueFrom"), variable)
		}
	}
	for i, source := range spec.EnvFrom {
		at := container.Child("envFrom").Index(i)
		if source.Prefix != "" {
			v.invalid(at.Child("prefix"), source.Prefix, validation.IsRelaxedEnvVarName(source.Prefix)...)
		}
		if source.ConfigMapRef == nil && source.SecretRef == nil {
			v.required(at, "must have a source")
		}
	}
}

func (v *validator) validateValueFrom(at *field.Path, variable v1.EnvVar) {
	from := variable.ValueFrom
	sources := 0
	for _, set := range []bool{
		from.FieldRef != nil, from.ResourceFieldRef != nil, from.FileKeyRef != nil,
		from.ConfigMapKeyRef != nil, from.SecretKeyRef != nil,
	} {
		if set {
			sources++
		}
	}
	switch {
	case sources == 0:
		v.required(at, "must have one of fieldRef, resourceFieldRef and fileKeyRef")
	case sources > 1:
		v.forbidden(at, "must have only one source")
	case variable.Value != "":
		v.forbidden(at, "may not be set together with value")
	}
	if from.FieldRef != nil {
		v.validateFieldRef(at.Child("fieldRef"), from.FieldRef, envFields)
	}
	if from.ResourceFieldRef != nil {
		v.validateResourceFieldRef(at.Child("resourceFieldRef"), from.ResourceFieldRef)
	}
	if from.FileKeyRef != nil {
		v.validateFileKeyRef(at.Child("fileKeyRef"), from.FileKeyRef)
	}
}

// validateFieldRef requires one of the allowed field paths, or a single label or annotation.
func (v *validator) validateFieldRef(at *field.Path, ref *v1.ObjectFieldSelector, allowed []string) {
	requireOneOf(v, at.Child("apiVersion"), ref.APIVersion, "v1")
	path := ref.FieldPath
	if path == "spec.host" { // deprecated alias
		path = "spec.nodeName"
	}
	if whole, found := strings.CutSuffix(path, "']"); found {
		if parent, key, found := strings.Cut(whole, "['"); found && parent != "" {
			v.validateSubscript(at.Child("fieldPath"), parent, key)
			return
		}
	}
	if !slices.Contains(allowed, path) {
		requireOneOf(v, at.Child("fieldPath"), ref.FieldPath, allowed...)
	}
}

func (v *validator) validateSubscript(at *field.Path, parent, key string) {
	switch parent {
	case "metadata.labels":
		v.invalid(at, key, validation.IsQualifiedName(key)...)
	case "metadata.annotations":
		v.invalid(at, key, validation.IsQualifiedName(strings.ToLower(key))...)
	default:
		v.invalid(at, parent, "only metadata.labels and metadata.annotations support a subscript")
	}
}

func (v *validator) validateResourceFieldRef(at *field.Path, ref *v1.ResourceFieldSelector) {
	hugePages := strings.HasPrefix(ref.Resource, "limits.hugepages-") || strings.HasPrefix(ref.Resource, "requests.hugepages-")
	if !hugePages {
		requireOneOf(v, at.Child("resource"), ref.Resource, resourceFields...)
	}
	if ref.Divisor.IsZero() {
		return
	}
	units := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	if strings.HasSuffix(ref.Resource, ".cpu") {
		units = []string{"1m", "1"}
	}
	requireOneOf(v, at.Child("divisor"), ref.Divisor.String(), units...)
}

// validateFileKeyRef validates a variable from a file of an emptyDir volume.
func (v *validator) validateFileKeyRef(at *field.Path, ref *v1.FileKeySelector) {
	v.requireValid(at.Child("key"), ref.Key, validation.IsRelaxedEnvVarName)
	v.require(at.Child("path"), ref.Path)
	v.forbidBacksteps(at.Child("path"), ref.Path)
	name := at.Child("volumeName")
	switch volume, exists := v.volumes[ref.VolumeName]; {
	case ref.VolumeName == "":
		v.required(name, "")
	case !exists:
		v.add(field.NotFound(name, ref.VolumeName))
	case volume.EmptyDir == nil:
		v.invalid(name, ref.VolumeName, "must be an emptyDir volume")
	}
}
