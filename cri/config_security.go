package cri

import (
	"errors"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What the kernel tells and lets change under /proc and /sys that is none of a container's business.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// sandboxSecurity is the pod's own part. The process that holds a sandbox does nothing, so it always runs confined.
func sandboxSecurity(pod *v1.Pod) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	security := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod, ""),
		Privileged:       anyPrivileged(pod),
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	asked := pod.Spec.SecurityContext
	if asked == nil {
		return security, nil
	}
	security.RunAsUser = int64Value(asked.RunAsUser)
	if asked.RunAsUser != nil { // the CRI forbids a group alone
		security.RunAsGroup = int64Value(asked.RunAsGroup)
	}
	security.SelinuxOptions = selinux(asked.SELinuxOptions)
	security.SupplementalGroups = groups(asked)
	policy, err := groupsPolicy(asked)
	security.SupplementalGroupsPolicy = policy
	return security, err
}

// imageUser is who an image runs as when the spec does not say: a number, a name, or nobody in particular, which is root.
type imageUser struct {
	id   *int64
	name string
}

// containerSecurity is the container's part, what it asks for before what its pod does.
func (c *Config) containerSecurity(pod *v1.Pod, container *v1.Container, user imageUser) (
	*runtimeapi.LinuxContainerSecurityContext, error,
) {
	asked := effective(pod, container)
	if err := checkNonRoot(asked, user); err != nil {
		return nil, err
	}
	security := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:   capabilities(asked.Capabilities),
		Privileged:     isTrue(asked.Privileged),
		SelinuxOptions: selinux(asked.SELinuxOptions),
		RunAsUser:      int64Value(asked.RunAsUser),
		RunAsGroup:     int64Value(asked.RunAsGroup),
		ReadonlyRootfs: isTrue(asked.ReadOnlyRootFilesystem),
		NoNewPrivs:     asked.AllowPrivilegeEscalation != nil && !*asked.AllowPrivilegeEscalation,
	}
	if asked.RunAsUser == nil {
		security.RunAsUser, security.RunAsUsername = int64Value(user.id), user.name
	}
	if asked.ProcMount == nil || *asked.ProcMount == v1.DefaultProcMount {
		security.MaskedPaths, security.ReadonlyPaths = maskedPaths, readonlyPaths
	}
	var problems [3]error
	security.Seccomp, problems[0] = c.seccomp(asked.SeccompProfile)
	//nolint:staticcheck // deprecated, but all that containerd 1.6 reads
	security.Apparmor, security.ApparmorProfile, problems[1] = appArmor(asked.AppArmorProfile)
	if whole := pod.Spec.SecurityContext; whole != nil {
		security.SupplementalGroups = groups(whole)
		security.SupplementalGroupsPolicy, problems[2] = groupsPolicy(whole)
	}
	return security, errors.Join(problems[:]...)
}

// effective fills what the container leaves open from its pod.
func effective(pod *v1.Pod, container *v1.Container) *v1.SecurityContext {
	merged := &v1.SecurityContext{}
	if container.SecurityContext != nil {
		*merged = *container.SecurityContext
	}
	if merged.AppArmorProfile == nil {
		merged.AppArmorProfile = annotatedAppArmor(pod, container.Name)
	}
	whole := pod.Spec.SecurityContext
	if whole == nil {
		return merged
	}
	inherit(&merged.RunAsUser, whole.RunAsUser)
	inherit(&merged.RunAsGroup, whole.RunAsGroup)
	inherit(&merged.RunAsNonRoot, whole.RunAsNonRoot)
	inherit(&merged.SELinuxOptions, whole.SELinuxOptions)
	inherit(&merged.SeccompProfile, whole.SeccompProfile)
	inherit(&merged.AppArmorProfile, whole.AppArmorProfile)
	return merged
}

func inherit[T any](own **T, whole *T) {
	if *own == nil {
		*own = whole
	}
}

// needsImageUser tells whether the spec leaves to the image what must be known: who the user is.
func needsImageUser(pod *v1.Pod, container *v1.Container) bool {
	asked := effective(pod, container)
	return asked.RunAsUser == nil && (isTrue(asked.RunAsNonRoot) || asked.RunAsGroup != nil)
}

func checkNonRoot(asked *v1.SecurityContext, user imageUser) error {
	switch {
	case !isTrue(asked.RunAsNonRoot):
		return nil
	case asked.RunAsUser != nil && *asked.RunAsUser == 0:
		return errors.New("container's runAsUser breaks non-root policy: securityContext.runAsUser is 0 and runAsNonRoot true")
	case asked.RunAsUser != nil:
		return nil
	case user.name != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root; "+
			"set securityContext.runAsUser", user.name)
	case user.id == nil || *user.id == 0:
		return errors.New("container has runAsNonRoot and image will run as root; set securityContext.runAsUser")
	default:
		return nil
	}
}

func (c *Config) seccomp(asked *v1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	kind := v1.SeccompProfileTypeUnconfined
	switch {
	case asked != nil:
		kind = asked.Type
	case c.SeccompDefault:
		kind = v1.SeccompProfileTypeRuntimeDefault
	}
	switch kind {
	case v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case v1.SeccompProfileTypeLocalhost:
		if asked.LocalhostProfile == nil || !filepath.IsLocal(*asked.LocalhostProfile) {
			return nil, fmt.Errorf("securityContext.seccompProfile.localhostProfile: must name a file below %s", c.SeccompDir)
		}
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: filepath.Join(c.SeccompDir, *asked.LocalhostProfile),
		}, nil
	default:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	}
}

func anyPrivileged(pod *v1.Pod) bool {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if security := list[i].SecurityContext; security != nil && isTrue(security.Privileged) {
				return true
			}
		}
	}
	return false
}

func isTrue(b *bool) bool { return b != nil && *b }
