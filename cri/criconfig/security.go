package criconfig

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Paths under /proc and /sys that a container must not read or must not write.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// ImageUser is the user that an image runs as unless the spec overrides it: a UID, a name, or neither, which is root.
type ImageUser struct {
	UID  *int64
	Name string
}

// sandboxSecurityContext returns the security context of the sandbox. The pause process does nothing, so it always runs
// with the runtime's default seccomp profile.
func sandboxSecurityContext(pod *v1.Pod) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	security := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaceOptions(pod, ""),
		Privileged:       hasPrivilegedContainer(pod),
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	spec := pod.Spec.SecurityContext
	if spec == nil {
		return security, nil
	}
	security.RunAsUser = int64Value(spec.RunAsUser)
	if spec.RunAsUser != nil { // the CRI forbids a group without a user
		security.RunAsGroup = int64Value(spec.RunAsGroup)
	}
	security.SelinuxOptions = selinuxOption(spec.SELinuxOptions)
	security.SupplementalGroups = supplementalGroups(spec)
	policy, err := supplementalGroupsPolicy(spec)
	security.SupplementalGroupsPolicy = policy
	return security, err
}

// containerSecurityContext returns the security context of a container. The container's settings override the pod's.
func (g *Generator) containerSecurityContext(pod *v1.Pod, container *v1.Container, user ImageUser) (
	*runtimeapi.LinuxContainerSecurityContext, error,
) {
	spec := effectiveSecurityContext(pod, container)
	if err := verifyRunAsNonRoot(spec, user); err != nil {
		return nil, err
	}
	security := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:   capability(spec.Capabilities),
		Privileged:     isTrue(spec.Privileged),
		SelinuxOptions: selinuxOption(spec.SELinuxOptions),
		RunAsUser:      int64Value(spec.RunAsUser),
		RunAsGroup:     int64Value(spec.RunAsGroup),
		ReadonlyRootfs: isTrue(spec.ReadOnlyRootFilesystem),
		NoNewPrivs:     spec.AllowPrivilegeEscalation != nil && !*spec.AllowPrivilegeEscalation,
	}
	if spec.RunAsUser == nil {
		security.RunAsUser, security.RunAsUsername = int64Value(user.UID), user.Name
	}
	if spec.ProcMount == nil || *spec.ProcMount == v1.DefaultProcMount {
		security.MaskedPaths, security.ReadonlyPaths = slices.Concat(maskedPaths, g.ThermalThrottlePaths), readonlyPaths
	}
	var errs [3]error
	security.Seccomp, errs[0] = g.seccompProfile(spec.SeccompProfile)
	//nolint:staticcheck // deprecated, but containerd 1.6 reads nothing else
	security.Apparmor, security.ApparmorProfile, errs[1] = appArmorProfile(spec.AppArmorProfile)
	if podSpec := pod.Spec.SecurityContext; podSpec != nil {
		security.SupplementalGroups = supplementalGroups(podSpec)
		security.SupplementalGroupsPolicy, errs[2] = supplementalGroupsPolicy(podSpec)
	}
	return security, errors.Join(errs[:]...)
}

// effectiveSecurityContext fills the container's unset fields from its pod.
func effectiveSecurityContext(pod *v1.Pod, container *v1.Container) *v1.SecurityContext {
	effective := &v1.SecurityContext{}
	if container.SecurityContext != nil {
		*effective = *container.SecurityContext
	}
	if effective.AppArmorProfile == nil {
		effective.AppArmorProfile = appArmorAnnotation(pod, container.Name)
	}
	podSpec := pod.Spec.SecurityContext
	if podSpec == nil {
		return effective
	}
	inherit(&effective.RunAsUser, podSpec.RunAsUser)
	inherit(&effective.RunAsGroup, podSpec.RunAsGroup)
	inherit(&effective.RunAsNonRoot, podSpec.RunAsNonRoot)
	inherit(&effective.SELinuxOptions, podSpec.SELinuxOptions)
	inherit(&effective.SeccompProfile, podSpec.SeccompProfile)
	inherit(&effective.AppArmorProfile, podSpec.AppArmorProfile)
	return effective
}

func inherit[T any](field **T, podValue *T) {
	if *field == nil {
		*field = podValue
	}
}

// NeedsImageUser reports whether the container runs as the user of its image. As in the kubelet, that user is passed to the runtime,
// without the group that the image names: the group is the user's in the image's /etc/passwd, or 0. A runtime that is passed no
// user would add the groups of root.
func NeedsImageUser(pod *v1.Pod, container *v1.Container) bool {
	return effectiveSecurityContext(pod, container).RunAsUser == nil
}

func verifyRunAsNonRoot(spec *v1.SecurityContext, user ImageUser) error {
	switch {
	case !isTrue(spec.RunAsNonRoot):
		return nil
	case spec.RunAsUser != nil && *spec.RunAsUser == 0:
		return errors.New("container's runAsUser breaks non-root policy: securityContext.runAsUser is 0 and runAsNonRoot true")
	case spec.RunAsUser != nil:
		return nil
	case user.Name != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root; "+
			"set securityContext.runAsUser", user.Name)
	case user.UID == nil || *user.UID == 0:
		return errors.New("container has runAsNonRoot and image will run as root; set securityContext.runAsUser")
	default:
		return nil
	}
}

func (g *Generator) seccompProfile(spec *v1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	profileType := v1.SeccompProfileTypeUnconfined
	switch {
	case spec != nil:
		profileType = spec.Type
	case g.SeccompDefault:
		profileType = v1.SeccompProfileTypeRuntimeDefault
	}
	switch profileType {
	case v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case v1.SeccompProfileTypeLocalhost:
		if spec.LocalhostProfile == nil || !filepath.IsLocal(*spec.LocalhostProfile) {
			return nil, fmt.Errorf("securityContext.seccompProfile.localhostProfile: must be a file below %s", g.SeccompDir)
		}
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: filepath.Join(g.SeccompDir, *spec.LocalhostProfile),
		}, nil
	default:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	}
}

// appArmorProfile returns the profile in the current form and in the one that containerd 1.6 reads.
func appArmorProfile(spec *v1.AppArmorProfile) (*runtimeapi.SecurityProfile, string, error) {
	if spec == nil {
		return nil, "", nil
	}
	switch spec.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			v1.DeprecatedAppArmorBetaProfileRuntimeDefault, nil
	case v1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
			v1.DeprecatedAppArmorBetaProfileNameUnconfined, nil
	case v1.AppArmorProfileTypeLocalhost:
		if spec.LocalhostProfile == nil || *spec.LocalhostProfile == "" {
			return nil, "", errors.New("securityContext.appArmorProfile.localhostProfile: required for type Localhost")
		}
		return &runtimeapi.SecurityProfile{
			ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *spec.LocalhostProfile,
		}, v1.DeprecatedAppArmorBetaProfileNamePrefix + *spec.LocalhostProfile, nil
	default:
		return nil, "", fmt.Errorf("securityContext.appArmorProfile.type: unknown type %q", spec.Type)
	}
}

// appArmorAnnotation returns the profile from the annotation that preceded the field. Static pods may still carry it.
func appArmorAnnotation(pod *v1.Pod, container string) *v1.AppArmorProfile {
	value := pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+container]
	switch value {
	case "":
		return nil
	case v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	default:
		name := strings.TrimPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix)
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
}

// supplementalGroups returns the additional groups of the pod's processes. fsGroup, which owns the volumes' files, is one.
func supplementalGroups(spec *v1.PodSecurityContext) []int64 {
	var groups []int64
	if spec.FSGroup != nil {
		groups = append(groups, *spec.FSGroup)
	}
	return append(groups, spec.SupplementalGroups...)
}

func supplementalGroupsPolicy(spec *v1.PodSecurityContext) (runtimeapi.SupplementalGroupsPolicy, error) {
	if spec.SupplementalGroupsPolicy == nil {
		return runtimeapi.SupplementalGroupsPolicy_Merge, nil
	}
	policy, known := runtimeapi.SupplementalGroupsPolicy_value[string(*spec.SupplementalGroupsPolicy)]
	if !known {
		return 0, fmt.Errorf("spec.securityContext.supplementalGroupsPolicy: %q must be Merge or Strict",
			*spec.SupplementalGroupsPolicy)
	}
	return runtimeapi.SupplementalGroupsPolicy(policy), nil
}

func selinuxOption(spec *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if spec == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: spec.User, Role: spec.Role, Type: spec.Type, Level: spec.Level}
}

func capability(spec *v1.Capabilities) *runtimeapi.Capability {
	if spec == nil {
		return nil
	}
	return &runtimeapi.Capability{AddCapabilities: capabilityNames(spec.Add), DropCapabilities: capabilityNames(spec.Drop)}
}

func capabilityNames(capabilities []v1.Capability) []string {
	var names []string
	for _, capability := range capabilities {
		names = append(names, string(capability))
	}
	return names
}

func hasPrivilegedContainer(pod *v1.Pod) bool {
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if security := containers[i].SecurityContext; security != nil && isTrue(security.Privileged) {
				return true
			}
		}
	}
	return false
}

// namespaceOptions returns the namespaces of a container. By default it shares network and IPC with its pod and has its own
// processes. targetID is the container whose processes an ephemeral container sees, or "".
func namespaceOptions(pod *v1.Pod, targetID string) *runtimeapi.NamespaceOption {
	options := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD,
		Ipc:     runtimeapi.NamespaceMode_POD,
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
	}
	if pod.Spec.HostNetwork {
		options.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		options.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		options.Pid = runtimeapi.NamespaceMode_NODE
	case isTrue(pod.Spec.ShareProcessNamespace):
		options.Pid = runtimeapi.NamespaceMode_POD
	case targetID != "":
		options.Pid = runtimeapi.NamespaceMode_TARGET
		options.TargetId = targetID
	}
	return options
}

func int64Value(value *int64) *runtimeapi.Int64Value {
	if value == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *value}
}

func isTrue(value *bool) bool { return value != nil && *value }
