package process

import (
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerRules is what CreateContainer refuses.
func containerRules() []rule[*runtimeapi.ContainerConfig] {
	return slices.Concat(programRules(), machineRules(), mountRules(), hostPathRules(), userRules(), isolationRules(), profileRules())
}

type config = *runtimeapi.ContainerConfig

func programRules() []rule[config] {
	return []rule[config]{
		{
			Refusal{
				CRI: "config.image", Pod: "spec.containers[*].image",
				Must: `must be "host"`, Why: whyHostOnly,
			},
			func(_ facts, c config) string {
				return yes(!isHost(c.GetImage().GetImage()), `"`+c.GetImage().GetImage()+`"`)
			},
		},
		{
			Refusal{
				CRI: "config.command, config.args", Pod: "spec.containers[*].command",
				Must: "must name a program", Why: "the machine has no command of its own",
			},
			func(_ facts, c config) string { return yes(len(c.GetCommand())+len(c.GetArgs()) == 0, "both empty") },
		},
		{
			Refusal{
				CRI: "config.working_dir", Pod: "spec.containers[*].workingDir",
				Must: "must be empty or absolute", Why: "it is a folder of the machine",
			},
			func(_ facts, c config) string {
				return yes(c.GetWorkingDir() != "" && !strings.HasPrefix(c.GetWorkingDir(), "/"), c.GetWorkingDir())
			},
		},
		{
			Refusal{
				CRI: "config.stdin, config.stdin_once", Pod: "spec.containers[*].stdin",
				Must: "must not be true", Why: whyNoAttach,
			},
			func(_ facts, c config) string { return yes(c.GetStdin() || c.GetStdinOnce(), true) },
		},
		{
			Refusal{
				CRI: "config.tty", Pod: "spec.containers[*].tty",
				Must: "must not be true", Why: whyNoAttach,
			},
			func(_ facts, c config) string { return yes(c.GetTty(), true) },
		},
	}
}

func machineRules() []rule[config] {
	return []rule[config]{
		{
			Refusal{
				CRI: "config.devices", Pod: "spec.containers[*].volumeDevices",
				Must: "must be empty", Why: "a process sees the machine's devices",
			},
			func(_ facts, c config) string { return yes(len(c.GetDevices()) > 0, c.GetDevices()) },
		},
		{
			Refusal{
				CRI: "config.CDI_devices", Pod: "spec.resourceClaims",
				Must: "must be empty", Why: "the process runtime knows no CDI",
			},
			func(_ facts, c config) string { return yes(len(c.GetCDIDevices()) > 0, c.GetCDIDevices()) },
		},
		{
			Refusal{
				CRI: "config.linux.resources", Pod: "spec.containers[*].resources.limits",
				Must: "must be empty", Why: whyNoLimits,
			},
			func(_ facts, c config) string { return limits(c.GetLinux().GetResources()) },
		},
		{
			Refusal{
				CRI: "config.windows", Pod: "spec.os.name",
				Must: "must not be windows", Why: "the process runtime runs on Linux",
			},
			func(_ facts, c config) string { return yes(c.GetWindows() != nil, "set") },
		},
	}
}

func mountRules() []rule[config] {
	return []rule[config]{
		{
			Refusal{
				CRI: "config.mounts[*].readonly", Pod: "spec.containers[*].volumeMounts[*].readOnly",
				Must: "must be false, except for volumes that the agent writes", Why: whyWritable,
			},
			func(f facts, c config) string { return badMount(c, f.writableReadOnly) },
		},
		{
			Refusal{
				CRI: "config.mounts[*].recursive_read_only", Pod: "spec.containers[*].volumeMounts[*].recursiveReadOnly",
				Must: "must be empty", Why: whyWritable,
			},
			func(_ facts, c config) string { return badMount(c, (*runtimeapi.Mount).GetRecursiveReadOnly) },
		},
		{
			Refusal{
				CRI: "config.mounts[*].container_path", Pod: "spec.containers[*].volumeMounts[*].mountPath",
				Must: "must be below / and not the same as, or in, another", Why: "a mount is a symbolic link below $HERALD_ROOT",
			},
			func(_ facts, c config) string {
				return badMount(c, func(mount *runtimeapi.Mount) bool { return clashes(c, mount) })
			},
		},
		{
			Refusal{
				CRI: "config.mounts[*].image", Pod: "spec.volumes[*].image",
				Must: "must be empty", Why: whyHostOnly,
			},
			func(_ facts, c config) string {
				return badMount(c, func(mount *runtimeapi.Mount) bool { return mount.GetImage().GetImage() != "" })
			},
		},
		{
			Refusal{
				CRI: "config.mounts[*].uidMappings, gidMappings", Pod: "spec.hostUsers",
				Must: "must not be false", Why: whyNoNamespace,
			},
			func(_ facts, c config) string {
				return badMount(c, func(mount *runtimeapi.Mount) bool {
					return len(mount.GetUidMappings())+len(mount.GetGidMappings()) > 0
				})
			},
		},
	}
}

func hostPathRules() []rule[config] {
	return []rule[config]{
		{
			Refusal{
				CRI: "config.mounts[*].host_path", Pod: "spec.volumes[*].hostPath.path",
				Must: "must exist", Why: "the process runtime makes nothing outside of its own folder",
			},
			func(_ facts, c config) string {
				return badMount(c, func(mount *runtimeapi.Mount) bool { return mount.GetImage().GetImage() == "" && missing(mount) })
			},
		},
		{
			Refusal{
				CRI: "config.mounts[*].host_path with /volume-subpaths/", Pod: "spec.containers[*].volumeMounts[*].subPath, subPathExpr",
				Must: "must be empty", Why: "the agent binds a part of a volume only until the container has started",
			},
			func(_ facts, c config) string {
				return badMount(c, func(mount *runtimeapi.Mount) bool {
					return strings.Contains(mount.GetHostPath(), "/volume-subpaths/")
				})
			},
		},
	}
}

func security(c config) *runtimeapi.LinuxContainerSecurityContext {
	return c.GetLinux().GetSecurityContext()
}

func userRules() []rule[config] {
	return []rule[config]{
		{
			Refusal{
				CRI: inSecurity + "privileged", Pod: "spec.containers[*].securityContext.privileged",
				Must: "must not be true", Why: whyOwnPrivileges,
			},
			func(_ facts, c config) string { return yes(security(c).GetPrivileged(), true) },
		},
		{
			Refusal{
				CRI: inSecurity + "capabilities", Pod: "spec.containers[*].securityContext.capabilities",
				Must: "must be empty", Why: whyOwnPrivileges,
			},
			func(_ facts, c config) string {
				all := security(c).GetCapabilities()
				return yes(len(all.GetAddCapabilities())+len(all.GetDropCapabilities())+len(all.GetAddAmbientCapabilities()) > 0, all)
			},
		},
		{
			Refusal{
				CRI: inSecurity + "run_as_user", Pod: "spec.containers[*].securityContext.runAsUser",
				Must: "must be the agent's own user", Why: whyOwnUser,
			},
			func(f facts, c config) string { return f.foreignUser(security(c).GetRunAsUser()) },
		},
		{
			Refusal{
				CRI: inSecurity + "run_as_username", Pod: "spec.containers[*].securityContext.runAsUser",
				Must: "must be the agent's own user", Why: whyOwnUser,
			},
			func(_ facts, c config) string { return security(c).GetRunAsUsername() },
		},
		{
			Refusal{
				CRI: inSecurity + "run_as_group", Pod: "spec.containers[*].securityContext.runAsGroup",
				Must: "must be the agent's own group", Why: whyOwnUser,
			},
			func(f facts, c config) string { return f.foreignGroup(security(c).GetRunAsGroup()) },
		},
		{
			Refusal{
				CRI: inSecurity + "supplemental_groups", Pod: "spec.securityContext.supplementalGroups, fsGroup",
				Must: "must be the agent's own groups", Why: whyOwnUser,
			},
			func(f facts, c config) string { return f.foreignGroups(security(c).GetSupplementalGroups()) },
		},
		{
			Refusal{
				CRI: inSecurity + "supplemental_groups_policy", Pod: "spec.securityContext.supplementalGroupsPolicy",
				Must: "must not be Strict", Why: whyOwnUser,
			},
			func(_ facts, c config) string {
				return yes(security(c).GetSupplementalGroupsPolicy() == runtimeapi.SupplementalGroupsPolicy_Strict, "Strict")
			},
		},
	}
}

func isolationRules() []rule[config] {
	return []rule[config]{
		{
			Refusal{
				CRI: inSecurity + "readonly_rootfs", Pod: "spec.containers[*].securityContext.readOnlyRootFilesystem",
				Must: "must not be true", Why: "the root is the machine's own",
			},
			func(_ facts, c config) string { return yes(security(c).GetReadonlyRootfs(), true) },
		},
		{
			Refusal{
				CRI: inSecurity + "namespace_options.pid", Pod: "spec.ephemeralContainers[*].targetContainerName",
				Must: "must be empty", Why: whyNoNamespace,
			},
			func(_ facts, c config) string {
				options := security(c).GetNamespaceOptions()
				return yes(options.GetPid() == runtimeapi.NamespaceMode_TARGET, "TARGET "+options.GetTargetId())
			},
		},
		{
			Refusal{
				CRI: inSecurity + "namespace_options.userns_options", Pod: "spec.hostUsers",
				Must: "must not be false", Why: whyNoNamespace,
			},
			func(_ facts, c config) string { return ownUsers(security(c).GetNamespaceOptions()) },
		},
	}
}

func profileRules() []rule[config] {
	return []rule[config]{
		{
			Refusal{
				CRI: inSecurity + "selinux_options", Pod: "spec.containers[*].securityContext.seLinuxOptions",
				Must: "must be empty", Why: whyNoProfile,
			},
			func(_ facts, c config) string { return seLinux(security(c).GetSelinuxOptions()) },
		},
		{
			Refusal{
				CRI: inSecurity + "seccomp", Pod: "spec.containers[*].securityContext.seccompProfile",
				Must: "must not be of type Localhost", Why: whyNoProfile,
			},
			func(_ facts, c config) string { return localProfile(security(c).GetSeccomp()) },
		},
		{
			Refusal{
				CRI: inSecurity + "apparmor", Pod: "spec.containers[*].securityContext.appArmorProfile",
				Must: "must not be of type Localhost", Why: whyNoProfile,
			},
			func(_ facts, c config) string { return localProfile(security(c).GetApparmor()) },
		},
		{
			Refusal{
				CRI: inSecurity + "seccomp_profile_path", Pod: "spec.containers[*].securityContext.seccompProfile",
				Must: "must not be of type Localhost", Why: whyNoProfile,
			},
			func(_ facts, c config) string {
				return oldProfile(security(c).GetSeccompProfilePath()) //nolint:staticcheck // a client may still send it
			},
		},
		{
			Refusal{
				CRI: inSecurity + "apparmor_profile", Pod: "spec.containers[*].securityContext.appArmorProfile",
				Must: "must not be of type Localhost", Why: whyNoProfile,
			},
			func(_ facts, c config) string {
				return oldProfile(security(c).GetApparmorProfile()) //nolint:staticcheck // a client may still send it
			},
		},
	}
}
