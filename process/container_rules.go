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
			Limitation{
				CRIField: "config.image", PodField: "spec.containers[*].image",
				Requirement: `must be "host"`, Reason: whyHostOnly,
			},
			func(_ facts, c config) string {
				return yes(!isHost(c.GetImage().GetImage()), `"`+c.GetImage().GetImage()+`"`)
			},
		},
		{
			Limitation{
				CRIField: "config.command, config.args", PodField: "spec.containers[*].command",
				Requirement: "must name a program", Reason: "the machine has no command of its own",
			},
			func(_ facts, c config) string { return yes(len(c.GetCommand())+len(c.GetArgs()) == 0, "both empty") },
		},
		{
			Limitation{
				CRIField: "config.working_dir", PodField: "spec.containers[*].workingDir",
				Requirement: "must be empty or absolute", Reason: "it is a folder of the machine",
			},
			func(_ facts, c config) string {
				return yes(c.GetWorkingDir() != "" && !strings.HasPrefix(c.GetWorkingDir(), "/"), c.GetWorkingDir())
			},
		},
		{
			Limitation{
				CRIField: "config.stdin, config.stdin_once", PodField: "spec.containers[*].stdin",
				Requirement: "must not be true", Reason: whyNoAttach,
			},
			func(_ facts, c config) string { return yes(c.GetStdin() || c.GetStdinOnce(), true) },
		},
		{
			Limitation{
				CRIField: "config.tty", PodField: "spec.containers[*].tty",
				Requirement: "must not be true", Reason: whyNoAttach,
			},
			func(_ facts, c config) string { return yes(c.GetTty(), true) },
		},
	}
}

func machineRules() []rule[config] {
	return []rule[config]{
		{
			Limitation{
				CRIField: "config.devices", PodField: "spec.containers[*].volumeDevices",
				Requirement: "must be empty", Reason: "a process sees the machine's devices",
			},
			func(_ facts, c config) string { return yes(len(c.GetDevices()) > 0, c.GetDevices()) },
		},
		{
			Limitation{
				CRIField: "config.CDI_devices", PodField: "spec.resourceClaims",
				Requirement: "must be empty", Reason: "the process runtime knows no CDI",
			},
			func(_ facts, c config) string { return yes(len(c.GetCDIDevices()) > 0, c.GetCDIDevices()) },
		},
		{
			Limitation{
				CRIField: "config.linux.resources", PodField: "spec.containers[*].resources.limits",
				Requirement: "must be empty", Reason: whyNoLimits,
			},
			func(_ facts, c config) string { return limits(c.GetLinux().GetResources()) },
		},
		{
			Limitation{
				CRIField: "config.windows", PodField: "spec.os.name",
				Requirement: "must not be windows", Reason: "the process runtime runs on Linux",
			},
			func(_ facts, c config) string { return yes(c.GetWindows() != nil, "set") },
		},
	}
}

func mountRules() []rule[config] {
	return []rule[config]{
		{
			Limitation{
				CRIField: "config.mounts[*].readonly", PodField: "spec.containers[*].volumeMounts[*].readOnly",
				Requirement: "must be false, except for volumes that the agent writes", Reason: whyWritable,
			},
			func(f facts, c config) string { return badMount(c, f.writableReadOnly) },
		},
		{
			Limitation{
				CRIField: "config.mounts[*].recursive_read_only", PodField: "spec.containers[*].volumeMounts[*].recursiveReadOnly",
				Requirement: "must be empty", Reason: whyWritable,
			},
			func(_ facts, c config) string { return badMount(c, (*runtimeapi.Mount).GetRecursiveReadOnly) },
		},
		{
			Limitation{
				CRIField: "config.mounts[*].container_path", PodField: "spec.containers[*].volumeMounts[*].mountPath",
				Requirement: "must be below / and not the same as, or in, another", Reason: "a mount is a symbolic link below $HERALD_ROOT",
			},
			func(_ facts, c config) string {
				return badMount(c, func(mount *runtimeapi.Mount) bool { return clashes(c, mount) })
			},
		},
		{
			Limitation{
				CRIField: "config.mounts[*].image", PodField: "spec.volumes[*].image",
				Requirement: "must be empty", Reason: whyHostOnly,
			},
			func(_ facts, c config) string {
				return badMount(c, func(mount *runtimeapi.Mount) bool { return mount.GetImage().GetImage() != "" })
			},
		},
		{
			Limitation{
				CRIField: "config.mounts[*].uidMappings, gidMappings", PodField: "spec.hostUsers",
				Requirement: "must not be false", Reason: whyNoNamespace,
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
			Limitation{
				CRIField: "config.mounts[*].host_path", PodField: "spec.volumes[*].hostPath.path",
				Requirement: "must exist", Reason: "the process runtime makes nothing outside of its own folder",
			},
			func(_ facts, c config) string {
				return badMount(c, func(mount *runtimeapi.Mount) bool { return mount.GetImage().GetImage() == "" && missing(mount) })
			},
		},
		{
			Limitation{
				CRIField: "config.mounts[*].host_path with /volume-subpaths/", PodField: "spec.containers[*].volumeMounts[*].subPath, subPathExpr",
				Requirement: "must be empty", Reason: "the agent binds a part of a volume only until the container has started",
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
			Limitation{
				CRIField: inSecurity + "privileged", PodField: "spec.containers[*].securityContext.privileged",
				Requirement: "must not be true", Reason: whyOwnPrivileges,
			},
			func(_ facts, c config) string { return yes(security(c).GetPrivileged(), true) },
		},
		{
			Limitation{
				CRIField: inSecurity + "capabilities", PodField: "spec.containers[*].securityContext.capabilities",
				Requirement: "must be empty", Reason: whyOwnPrivileges,
			},
			func(_ facts, c config) string {
				all := security(c).GetCapabilities()
				return yes(len(all.GetAddCapabilities())+len(all.GetDropCapabilities())+len(all.GetAddAmbientCapabilities()) > 0, all)
			},
		},
		{
			Limitation{
				CRIField: inSecurity + "run_as_user", PodField: "spec.containers[*].securityContext.runAsUser",
				Requirement: "must be the agent's own user", Reason: whyOwnUser,
			},
			func(f facts, c config) string { return f.foreignUser(security(c).GetRunAsUser()) },
		},
		{
			Limitation{
				CRIField: inSecurity + "run_as_username", PodField: "spec.containers[*].securityContext.runAsUser",
				Requirement: "must be the agent's own user", Reason: whyOwnUser,
			},
			func(_ facts, c config) string { return security(c).GetRunAsUsername() },
		},
		{
			Limitation{
				CRIField: inSecurity + "run_as_group", PodField: "spec.containers[*].securityContext.runAsGroup",
				Requirement: "must be the agent's own group", Reason: whyOwnUser,
			},
			func(f facts, c config) string { return f.foreignGroup(security(c).GetRunAsGroup()) },
		},
		{
			Limitation{
				CRIField: inSecurity + "supplemental_groups", PodField: "spec.securityContext.supplementalGroups, fsGroup",
				Requirement: "must be the agent's own groups", Reason: whyOwnUser,
			},
			func(f facts, c config) string { return f.foreignGroups(security(c).GetSupplementalGroups()) },
		},
		{
			Limitation{
				CRIField: inSecurity + "supplemental_groups_policy", PodField: "spec.securityContext.supplementalGroupsPolicy",
				Requirement: "must not be Strict", Reason: whyOwnUser,
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
			Limitation{
				CRIField: inSecurity + "readonly_rootfs", PodField: "spec.containers[*].securityContext.readOnlyRootFilesystem",
				Requirement: "must not be true", Reason: "the root is the machine's own",
			},
			func(_ facts, c config) string { return yes(security(c).GetReadonlyRootfs(), true) },
		},
		{
			Limitation{
				CRIField: inSecurity + "namespace_options.pid", PodField: "spec.ephemeralContainers[*].targetContainerName",
				Requirement: "must be empty", Reason: whyNoNamespace,
			},
			func(_ facts, c config) string {
				options := security(c).GetNamespaceOptions()
				return yes(options.GetPid() == runtimeapi.NamespaceMode_TARGET, "TARGET "+options.GetTargetId())
			},
		},
		{
			Limitation{
				CRIField: inSecurity + "namespace_options.userns_options", PodField: "spec.hostUsers",
				Requirement: "must not be false", Reason: whyNoNamespace,
			},
			func(_ facts, c config) string { return ownUsers(security(c).GetNamespaceOptions()) },
		},
	}
}

func profileRules() []rule[config] {
	return []rule[config]{
		{
			Limitation{
				CRIField: inSecurity + "selinux_options", PodField: "spec.containers[*].securityContext.seLinuxOptions",
				Requirement: "must be empty", Reason: whyNoProfile,
			},
			func(_ facts, c config) string { return seLinux(security(c).GetSelinuxOptions()) },
		},
		{
			Limitation{
				CRIField: inSecurity + "seccomp", PodField: "spec.containers[*].securityContext.seccompProfile",
				Requirement: "must not be of type Localhost", Reason: whyNoProfile,
			},
			func(_ facts, c config) string { return localProfile(security(c).GetSeccomp()) },
		},
		{
			Limitation{
				CRIField: inSecurity + "apparmor", PodField: "spec.containers[*].securityContext.appArmorProfile",
				Requirement: "must not be of type Localhost", Reason: whyNoProfile,
			},
			func(_ facts, c config) string { return localProfile(security(c).GetApparmor()) },
		},
		{
			Limitation{
				CRIField: inSecurity + "seccomp_profile_path", PodField: "spec.containers[*].securityContext.seccompProfile",
				Requirement: "must not be of type Localhost", Reason: whyNoProfile,
			},
			func(_ facts, c config) string {
				return oldProfile(security(c).GetSeccompProfilePath()) //nolint:staticcheck // a client may still send it
			},
		},
		{
			Limitation{
				CRIField: inSecurity + "apparmor_profile", PodField: "spec.containers[*].securityContext.appArmorProfile",
				Requirement: "must not be of type Localhost", Reason: whyNoProfile,
			},
			func(_ facts, c config) string {
				return oldProfile(security(c).GetApparmorProfile()) //nolint:staticcheck // a client may still send it
			},
		},
	}
}
