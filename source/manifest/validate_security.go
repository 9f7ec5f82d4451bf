package manifest

import (
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxSysctlName    = 253
	maxProfileLength = 4095 // PATH_MAX of the kernel
)

var sysctlName = regexp.MustCompile(`^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$`)

// validatePodSecurity validates the security context of the pod.
func (v *validator) validatePodSecurity(spec *field.Path) {
	v.validateHostUsers(spec)
	at, context := spec.Child("securityContext"), v.spec.SecurityContext
	v.validateUser(at.Child("runAsUser"), context.RunAsUser)
	v.validateGroup(at.Child("runAsGroup"), context.RunAsGroup)
	v.validateGroup(at.Child("fsGroup"), context.FSGroup)
	for i := range context.SupplementalGroups {
		v.validateGroup(at.Child("supplementalGroups").Index(i), &context.SupplementalGroups[i])
	}
	if share := v.spec.ShareProcessNamespace; share != nil && *share && v.spec.HostPID {
		v.invalid(spec.Child("shareProcessNamespace"), *share, "may not be set together with hostPID")
	}
	v.validateSysctls(at.Child("sysctls"), context.Sysctls)
	requireOneOfIfSet(v, at.Child("fsGroupChangePolicy"), context.FSGroupChangePolicy,
		v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways)
	requireOneOfIfSet(v, at.Child("supplementalGroupsPolicy"), context.SupplementalGroupsPolicy,
		v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)
	requireOneOfIfSet(v, at.Child("seLinuxChangePolicy"), context.SELinuxChangePolicy, v1.SELinuxChangePolicyRecursive)
	v.validateSeccomp(at.Child("seccompProfile"), context.SeccompProfile, v1.SeccompPodAnnotationKey)
	v.validateAppArmor(at.Child("appArmorProfile"), context.AppArmorProfile)
	v.validateWindowsOptions(at.Child("windowsOptions"), context.WindowsOptions)
}

// validateSecurity validates the security context of a container.
func (v *validator) validateSecurity(at *field.Path, container *v1.Container) {
	v.validateAppArmorMatch(at.Child("appArmorProfile"), container)
	context := container.SecurityContext
	if context == nil {
		return
	}
	v.validateUser(at.Child("runAsUser"), context.RunAsUser)
	v.validateGroup(at.Child("runAsGroup"), context.RunAsGroup)
	requireOneOfIfSet(v, at.Child("procMount"), context.ProcMount, v1.DefaultProcMount, v1.UnmaskedProcMount)
	if mount := context.ProcMount; mount != nil && *mount == v1.UnmaskedProcMount && v.sharesHostUsers() {
		v.invalid(at.Child("procMount"), *mount, "requires hostUsers: false")
	}
	if escalation := context.AllowPrivilegeEscalation; escalation != nil && !*escalation {
		if context.Privileged != nil && *context.Privileged {
			v.invalid(at.Child("allowPrivilegeEscalation"), false, "may not be false for a privileged container")
		}
		if context.Capabilities != nil && slices.Contains(context.Capabilities.Add, "CAP_SYS_ADMIN") {
			v.invalid(at.Child("allowPrivilegeEscalation"), false, "may not be false with the capability CAP_SYS_ADMIN")
		}
	}
	v.validateSeccomp(at.Child("seccompProfile"), context.SeccompProfile, v1.SeccompContainerAnnotationKeyPrefix+container.Name)
	v.validateAppArmor(at.Child("appArmorProfile"), context.AppArmorProfile)
	v.validateWindowsOptions(at.Child("windowsOptions"), context.WindowsOptions)
}

func (v *validator) validateUser(at *field.Path, id *int64) {
	if id != nil {
		v.invalid(at, *id, validation.IsValidUserID(*id)...)
	}
}

func (v *validator) validateGroup(at *field.Path, id *int64) {
	if id != nil {
		v.invalid(at, *id, validation.IsValidGroupID(*id)...)
	}
}

func (v *validator) validateWindowsOptions(at *field.Path, options *v1.WindowsSecurityContextOptions) {
	if options != nil {
		v.forbidden(at, "Windows pods are not supported")
	}
}

func (v *validator) sharesHostUsers() bool { return v.spec.HostUsers == nil || *v.spec.HostUsers }

// validateHostUsers forbids host namespaces to a pod with its own user namespace.
func (v *validator) validateHostUsers(spec *field.Path) {
	if v.sharesHostUsers() {
		return
	}
	for _, host := range []struct {
		name string
		set  bool
	}{{"hostNetwork", v.spec.HostNetwork}, {"hostPID", v.spec.HostPID}, {"hostIPC", v.spec.HostIPC}} {
		if host.set {
			v.forbidden(spec.Child(host.name), "may not be set when hostUsers is false")
		}
	}
}

func (v *validator) validateSysctls(at *field.Path, sysctls []v1.Sysctl) {
	seen := make(map[string]bool)
	for i, sysctl := range sysctls {
		name := at.Index(i).Child("name")
		switch {
		case sysctl.Name == "":
			v.required(name, "")
		case len(sysctl.Name) > maxSysctlName || !sysctlName.MatchString(sysctl.Name):
			v.invalid(name, sysctl.Name, "must be at most 253 lower-case letters, digits, '-' and '_', separated by '.' or '/'")
		default:
			requireUnique(v, name, seen, sysctl.Name)
		}
		switch namespace := sysctlNamespace(sysctl.Name); {
		case namespace == "net" && v.spec.HostNetwork:
			v.invalid(name, sysctl.Name, "may not be set when hostNetwork is true")
		case namespace == "ipc" && v.spec.HostIPC:
			v.invalid(name, sysctl.Name, "may not be set when hostIPC is true")
		}
	}
}

// sysctlNamespace returns the kernel namespace of a sysctl, or "".
func sysctlNamespace(name string) string {
	name = dottedSysctl(name)
	ipc := []string{
		"kernel.sem", "kernel.shm", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
		"kernel.msg", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni",
	}
	switch {
	case strings.HasPrefix(name, "net."):
		return "net"
	case strings.HasPrefix(name, "fs.mqueue."), slices.Contains(ipc, name):
		return "ipc"
	}
	return ""
}

// dottedSysctl returns the name with dots as separators. The first of "." and "/" is the separator, the other is part of a
// name, as in net/ipv4/conf/eth0.1/rp_filter.
func dottedSysctl(name string) string {
	first := strings.IndexAny(name, "./")
	if first < 0 || name[first] == '.' {
		return name
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(name)
}

const localhostPrefix = v1.SeccompLocalhostProfileNamePrefix // also of AppArmor annotations

// validateSeccomp validates a profile and requires that a deprecated annotation matches it.
func (v *validator) validateSeccomp(at *field.Path, profile *v1.SeccompProfile, annotation string) {
	if profile == nil {
		return
	}
	requireOneOf(v, at.Child("type"), profile.Type,
		v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeUnconfined)
	local := at.Child("localhostProfile")
	switch isLocal := profile.Type == v1.SeccompProfileTypeLocalhost; {
	case isLocal && profile.LocalhostProfile == nil:
		v.required(local, "")
	case isLocal:
		v.requireRelativePath(local, *profile.LocalhostProfile)
	case profile.LocalhostProfile != nil:
		v.invalid(local, *profile.LocalhostProfile, "may only be set for type Localhost")
	}
	value, annotated := v.pod.Annotations[annotation]
	if !annotated {
		return
	}
	same := true
	switch profile.Type {
	case v1.SeccompProfileTypeUnconfined:
		same = value == v1.SeccompProfileNameUnconfined
	case v1.SeccompProfileTypeRuntimeDefault:
		same = value == v1.SeccompProfileRuntimeDefault || value == v1.DeprecatedSeccompProfileDockerDefault
	case v1.SeccompProfileTypeLocalhost:
		same = profile.LocalhostProfile != nil && value == localhostPrefix+*profile.LocalhostProfile
	}
	if !same {
		v.forbidden(at.Child("type"), "must match the annotation "+annotation)
	}
}

// validateSeccompAnnotation requires the field that replaced the annotation: no runtime honours the annotation any more, so a pod
// with the annotation alone would run without the profile that its author wanted.
func (v *validator) validateSeccompAnnotation(at *field.Path, key, value string) {
	if !v.hasSeccompField(key) {
		v.forbidden(at, "is not honoured since Kubernetes 1.27; set securityContext.seccompProfile")
	}
	switch {
	case value == v1.SeccompProfileRuntimeDefault, value == v1.DeprecatedSeccompProfileDockerDefault:
	case value == v1.SeccompProfileNameUnconfined:
	case strings.HasPrefix(value, localhostPrefix):
		v.requireRelativePath(at, strings.TrimPrefix(value, localhostPrefix))
	default:
		v.invalid(at, value, "must be runtime/default, unconfined or localhost/<profile>")
	}
}

// hasSeccompField reports whether the pod or container that the annotation belongs to has a seccompProfile.
func (v *validator) hasSeccompField(annotation string) bool {
	if annotation == v1.SeccompPodAnnotationKey {
		return v.spec.SecurityContext != nil && v.spec.SecurityContext.SeccompProfile != nil
	}
	name, found := strings.TrimPrefix(annotation, v1.SeccompContainerAnnotationKeyPrefix), false
	v.eachContainer(nil, func(container *v1.Container, _ *field.Path) {
		context := container.SecurityContext
		found = found || container.Name == name && context != nil && context.SeccompProfile != nil
	})
	return found
}

func (v *validator) validateAppArmor(at *field.Path, profile *v1.AppArmorProfile) {
	if profile == nil {
		return
	}
	requireOneOf(v, at.Child("type"), profile.Type,
		v1.AppArmorProfileTypeLocalhost, v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeUnconfined)
	local := at.Child("localhostProfile")
	switch isLocal := profile.Type == v1.AppArmorProfileTypeLocalhost; {
	case isLocal && (profile.LocalhostProfile == nil || *profile.LocalhostProfile == ""):
		v.required(local, "")
	case isLocal && strings.TrimSpace(*profile.LocalhostProfile) != *profile.LocalhostProfile:
		v.invalid(local, *profile.LocalhostProfile, "must not have leading or trailing whitespace")
	case isLocal && len(*profile.LocalhostProfile) > maxProfileLength:
		v.add(field.TooLong(local, "", maxProfileLength))
	case !isLocal && profile.LocalhostProfile != nil:
		v.invalid(local, *profile.LocalhostProfile, "may only be set for type Localhost")
	}
}

func (v *validator) validateAppArmorAnnotation(at *field.Path, container, value string) {
	if !v.hasContainer(container) {
		v.invalid(at, container, "no container has this name")
	}
	switch {
	case value == "", value == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
	case value == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
	case strings.HasPrefix(value, localhostPrefix):
	default:
		v.invalid(at, value, "must be runtime/default, unconfined or localhost/<profile>")
	}
}

// validateAppArmorMatch requires that a deprecated annotation matches the profile of the container or the pod.
func (v *validator) validateAppArmorMatch(at *field.Path, container *v1.Container) {
	profile := v.spec.SecurityContext.AppArmorProfile
	if own := container.SecurityContext; own != nil && own.AppArmorProfile != nil {
		profile = own.AppArmorProfile
	}
	key := v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + container.Name
	value, annotated := v.pod.Annotations[key]
	if profile == nil || !annotated {
		return
	}
	same := true
	switch profile.Type {
	case v1.AppArmorProfileTypeUnconfined:
		same = value == v1.DeprecatedAppArmorBetaProfileNameUnconfined
	case v1.AppArmorProfileTypeRuntimeDefault:
		same = value == v1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case v1.AppArmorProfileTypeLocalhost:
		same = profile.LocalhostProfile != nil && value == localhostPrefix+*profile.LocalhostProfile
	}
	if !same {
		v.forbidden(at.Child("type"), "must match the annotation "+key)
	}
}

func (v *validator) hasContainer(name string) bool {
	found := false
	v.eachContainer(nil, func(container *v1.Container, _ *field.Path) { found = found || container.Name == name })
	return found
}
