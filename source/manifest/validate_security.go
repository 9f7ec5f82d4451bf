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
	maxProfileLength = 4095 // the longest path that the kernel takes
)

var sysctlName = regexp.MustCompile(`^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$`)

// checkPodSecurity looks at what holds for all containers of the pod.
func (c *checker) checkPodSecurity(spec *field.Path) {
	c.checkHostUsers(spec)
	at, context := spec.Child("securityContext"), c.spec.SecurityContext
	c.checkUser(at.Child("runAsUser"), context.RunAsUser)
	c.checkGroup(at.Child("runAsGroup"), context.RunAsGroup)
	c.checkGroup(at.Child("fsGroup"), context.FSGroup)
	for i := range context.SupplementalGroups {
		c.checkGroup(at.Child("supplementalGroups").Index(i), &context.SupplementalGroups[i])
	}
	if share := c.spec.ShareProcessNamespace; share != nil && *share && c.spec.HostPID {
		c.invalid(spec.Child("shareProcessNamespace"), *share, "may not be set together with hostPID")
	}
	c.checkSysctls(at.Child("sysctls"), context.Sysctls)
	oneOfIfSet(c, at.Child("fsGroupChangePolicy"), context.FSGroupChangePolicy,
		v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways)
	oneOfIfSet(c, at.Child("supplementalGroupsPolicy"), context.SupplementalGroupsPolicy,
		v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)
	oneOfIfSet(c, at.Child("seLinuxChangePolicy"), context.SELinuxChangePolicy, v1.SELinuxChangePolicyRecursive)
	c.checkSeccomp(at.Child("seccompProfile"), context.SeccompProfile, v1.SeccompPodAnnotationKey)
	c.checkAppArmor(at.Child("appArmorProfile"), context.AppArmorProfile)
	c.checkWindowsOptions(at.Child("windowsOptions"), context.WindowsOptions)
}

// checkSecurity looks at a container's own security context.
func (c *checker) checkSecurity(at *field.Path, container *v1.Container) {
	c.checkAppArmorMatch(at.Child("appArmorProfile"), container)
	context := container.SecurityContext
	if context == nil {
		return
	}
	c.checkUser(at.Child("runAsUser"), context.RunAsUser)
	c.checkGroup(at.Child("runAsGroup"), context.RunAsGroup)
	oneOfIfSet(c, at.Child("procMount"), context.ProcMount, v1.DefaultProcMount, v1.UnmaskedProcMount)
	if mount := context.ProcMount; mount != nil && *mount == v1.UnmaskedProcMount && c.sharesHostUsers() {
		c.invalid(at.Child("procMount"), *mount, "needs hostUsers: false")
	}
	if escalation := context.AllowPrivilegeEscalation; escalation != nil && !*escalation {
		if context.Privileged != nil && *context.Privileged {
			c.invalid(at.Child("allowPrivilegeEscalation"), false, "may not be false for a privileged container")
		}
		if context.Capabilities != nil && slices.Contains(context.Capabilities.Add, "CAP_SYS_ADMIN") {
			c.invalid(at.Child("allowPrivilegeEscalation"), false, "may not be false with the capability CAP_SYS_ADMIN")
		}
	}
	c.checkSeccomp(at.Child("seccompProfile"), context.SeccompProfile, v1.SeccompContainerAnnotationKeyPrefix+container.Name)
	c.checkAppArmor(at.Child("appArmorProfile"), context.AppArmorProfile)
	c.checkWindowsOptions(at.Child("windowsOptions"), context.WindowsOptions)
}

func (c *checker) checkUser(at *field.Path, id *int64) {
	if id != nil {
		c.invalid(at, *id, validation.IsValidUserID(*id)...)
	}
}

func (c *checker) checkGroup(at *field.Path, id *int64) {
	if id != nil {
		c.invalid(at, *id, validation.IsValidGroupID(*id)...)
	}
}

func (c *checker) checkWindowsOptions(at *field.Path, options *v1.WindowsSecurityContextOptions) {
	if options != nil {
		c.forbidden(at, "Windows pods are not supported")
	}
}

func (c *checker) sharesHostUsers() bool { return c.spec.HostUsers == nil || *c.spec.HostUsers }

// checkHostUsers keeps a pod with its own user namespace away from the host's other namespaces.
func (c *checker) checkHostUsers(spec *field.Path) {
	if c.sharesHostUsers() {
		return
	}
	for _, host := range []struct {
		name string
		set  bool
	}{{"hostNetwork", c.spec.HostNetwork}, {"hostPID", c.spec.HostPID}, {"hostIPC", c.spec.HostIPC}} {
		if host.set {
			c.forbidden(spec.Child(host.name), "may not be set when hostUsers is false")
		}
	}
}

func (c *checker) checkSysctls(at *field.Path, sysctls []v1.Sysctl) {
	seen := make(map[string]bool)
	for i, sysctl := range sysctls {
		name := at.Index(i).Child("name")
		switch {
		case sysctl.Name == "":
			c.required(name, "")
		case len(sysctl.Name) > maxSysctlName || !sysctlName.MatchString(sysctl.Name):
			c.invalid(name, sysctl.Name, "must be at most 253 lower-case letters, digits, '-' and '_', separated by '.' or '/'")
		default:
			unique(c, name, seen, sysctl.Name)
		}
		switch namespace := sysctlNamespace(sysctl.Name); {
		case namespace == "net" && c.spec.HostNetwork:
			c.invalid(name, sysctl.Name, "may not be set when hostNetwork is true")
		case namespace == "ipc" && c.spec.HostIPC:
			c.invalid(name, sysctl.Name, "may not be set when hostIPC is true")
		}
	}
}

// sysctlNamespace is the kernel namespace that a sysctl belongs to, or "".
func sysctlNamespace(name string) string {
	name = dotted(name)
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

// dotted is a sysctl's name with dots between its parts. Whichever separator comes first is the one that parts it, and the
// other is part of a name, as in net/ipv4/conf/eth0.1/rp_filter.
func dotted(name string) string {
	first := strings.IndexAny(name, "./")
	if first < 0 || name[first] == '.' {
		return name
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(name)
}
