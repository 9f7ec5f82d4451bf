package process

import (
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxRules returns the rules of RunPodSandbox.
func sandboxRules() []rule[sandboxRequest] {
	return slices.Concat(podRules(), podHostRules(), podUserRules(), podProfileRules())
}

type sandboxRequest = *runtimeapi.RunPodSandboxRequest

func sandboxSecurityContext(r sandboxRequest) *runtimeapi.LinuxSandboxSecurityContext {
	return r.GetConfig().GetLinux().GetSecurityContext()
}

func podRules() []rule[sandboxRequest] {
	return []rule[sandboxRequest]{
		{
			Limitation{
				PodField: "spec.hostNetwork", CRIField: securityContextField + "namespace_options.network",
				Requirement: "must be true", Reason: "pods use the host network",
			},
			func(_ hostInfo, r sandboxRequest) string {
				mode := sandboxSecurityContext(r).GetNamespaceOptions().GetNetwork()
				return valueIf(mode != runtimeapi.NamespaceMode_NODE, mode)
			},
		},
		{
			Limitation{
				PodField: "spec.hostUsers", CRIField: securityContextField + "namespace_options.userns_options",
				Requirement: "must not be false", Reason: reasonNoNamespaces,
			},
			func(_ hostInfo, r sandboxRequest) string {
				return userNamespace(sandboxSecurityContext(r).GetNamespaceOptions())
			},
		},
		{
			Limitation{
				PodField: "spec.runtimeClassName", CRIField: "runtime_handler",
				Requirement: "must be empty", Reason: "the process runtime has no runtime handlers",
			},
			func(_ hostInfo, r sandboxRequest) string { return r.GetRuntimeHandler() },
		},
		{
			Limitation{
				PodField: "spec.hostname", CRIField: "config.hostname",
				Requirement: "must be empty or the host's", Reason: "processes have the host's name",
			},
			func(h hostInfo, r sandboxRequest) string {
				return valueIf(r.GetConfig().GetHostname() != h.hostname, r.GetConfig().GetHostname())
			},
		},
		{
			Limitation{
				PodField: "spec.containers[*].ports", CRIField: "config.port_mappings",
				Requirement: "must have hostPort empty or equal to containerPort, and no hostIP", Reason: "processes use the host's ports",
			},
			func(_ hostInfo, r sandboxRequest) string {
				at := slices.IndexFunc(r.GetConfig().GetPortMappings(), func(port *runtimeapi.PortMapping) bool {
					return port.GetHostIp() != "" || port.GetHostPort() != 0 && port.GetHostPort() != port.GetContainerPort()
				})
				return valueIf(at >= 0, r.GetConfig().GetPortMappings())
			},
		},
	}
}

func podHostRules() []rule[sandboxRequest] {
	return []rule[sandboxRequest]{
		{
			Limitation{
				PodField: "spec.securityContext.sysctls", CRIField: "config.linux.sysctls",
				Requirement: "must be empty", Reason: "sysctls belong to the host",
			},
			func(_ hostInfo, r sandboxRequest) string {
				return valueIf(len(r.GetConfig().GetLinux().GetSysctls()) > 0, r.GetConfig().GetLinux().GetSysctls())
			},
		},
		{
			Limitation{
				PodField: "spec.resources.limits", CRIField: "config.linux.resources",
				Requirement: "must be empty", Reason: reasonNoLimits,
			},
			func(_ hostInfo, r sandboxRequest) string {
				return resourceLimits(r.GetConfig().GetLinux().GetResources())
			},
		},
		{
			Limitation{
				PodField: "spec.os.name", CRIField: "config.windows",
				Requirement: "must not be windows", Reason: "the process runtime runs on Linux",
			},
			func(_ hostInfo, r sandboxRequest) string { return valueIf(r.GetConfig().GetWindows() != nil, "set") },
		},
	}
}

func podUserRules() []rule[sandboxRequest] {
	return []rule[sandboxRequest]{
		{
			Limitation{
				PodField: "spec.securityContext.runAsUser", CRIField: securityContextField + "run_as_user",
				Requirement: "must be the agent's user", Reason: reasonAgentUser,
			},
			func(h hostInfo, r sandboxRequest) string {
				return h.otherUser(sandboxSecurityContext(r).GetRunAsUser())
			},
		},
		{
			Limitation{
				PodField: "spec.securityContext.runAsGroup", CRIField: securityContextField + "run_as_group",
				Requirement: "must be the agent's group", Reason: reasonAgentUser,
			},
			func(h hostInfo, r sandboxRequest) string {
				return h.otherGroup(sandboxSecurityContext(r).GetRunAsGroup())
			},
		},
		{
			Limitation{
				PodField: "spec.securityContext.supplementalGroups, fsGroup", CRIField: securityContextField + "supplemental_groups",
				Requirement: "must be groups of the agent", Reason: reasonAgentUser,
			},
			func(h hostInfo, r sandboxRequest) string {
				return h.otherGroups(sandboxSecurityContext(r).GetSupplementalGroups())
			},
		},
		{
			Limitation{
				PodField: "spec.securityContext.supplementalGroupsPolicy", CRIField: securityContextField + "supplemental_groups_policy",
				Requirement: "must not be Strict", Reason: reasonAgentUser,
			},
			func(_ hostInfo, r sandboxRequest) string {
				return valueIf(sandboxSecurityContext(r).GetSupplementalGroupsPolicy() == runtimeapi.SupplementalGroupsPolicy_Strict, "Strict")
			},
		},
	}
}

func podProfileRules() []rule[sandboxRequest] {
	return []rule[sandboxRequest]{
		{
			Limitation{
				PodField: "spec.securityContext.seLinuxOptions", CRIField: securityContextField + "selinux_options",
				Requirement: "must be empty", Reason: reasonNoProfiles,
			},
			func(_ hostInfo, r sandboxRequest) string {
				return seLinuxOptions(sandboxSecurityContext(r).GetSelinuxOptions())
			},
		},
		{
			Limitation{
				PodField: "spec.securityContext.seccompProfile", CRIField: securityContextField + "seccomp",
				Requirement: "must not be of type Localhost", Reason: reasonNoProfiles,
			},
			func(_ hostInfo, r sandboxRequest) string { return localProfile(sandboxSecurityContext(r).GetSeccomp()) },
		},
		{
			Limitation{
				PodField: "spec.securityContext.appArmorProfile", CRIField: securityContextField + "apparmor",
				Requirement: "must not be of type Localhost", Reason: reasonNoProfiles,
			},
			func(_ hostInfo, r sandboxRequest) string {
				return localProfile(sandboxSecurityContext(r).GetApparmor())
			},
		},
		{
			Limitation{
				PodField: "spec.containers[*].securityContext.privileged", CRIField: securityContextField + "privileged",
				Requirement: "must not be true", Reason: reasonAgentPrivileges,
			},
			func(_ hostInfo, r sandboxRequest) string {
				return valueIf(sandboxSecurityContext(r).GetPrivileged(), true)
			},
		},
	}
}

// containerRules returns the rules of CreateContainer.
func containerRules() []rule[containerConfig] {
	return slices.Concat(programRules(), deviceRules(), mountRules(), hostPathRules(), userRules(), isolationRules(), profileRules())
}

type containerConfig = *runtimeapi.ContainerConfig

func programRules() []rule[containerConfig] {
	return []rule[containerConfig]{
		{
			Limitation{
				PodField: "spec.containers[*].image", CRIField: "config.image",
				Requirement: `must be "host"`, Reason: reasonHostImageOnly,
			},
			func(_ hostInfo, c containerConfig) string {
				return valueIf(!isHostImage(c.GetImage().GetImage()), `"`+c.GetImage().GetImage()+`"`)
			},
		},
		{
			Limitation{
				PodField: "spec.containers[*].command", CRIField: "config.command, config.args",
				Requirement: "must be set", Reason: "the host image has no entrypoint",
			},
			func(_ hostInfo, c containerConfig) string {
				return valueIf(len(c.GetCommand())+len(c.GetArgs()) == 0, "both empty")
			},
		},
		{
			Limitation{
				PodField: "spec.containers[*].workingDir", CRIField: "config.working_dir",
				Requirement: "must be empty or absolute", Reason: "it is a directory of the host",
			},
			func(_ hostInfo, c containerConfig) string {
				return valueIf(c.GetWorkingDir() != "" && !strings.HasPrefix(c.GetWorkingDir(), "/"), c.GetWorkingDir())
			},
		},
	}
}

func deviceRules() []rule[containerConfig] {
	return []rule[containerConfig]{
		{
			Limitation{
				PodField: "spec.containers[*].volumeDevices", CRIField: "config.devices",
				Requirement: "must be empty", Reason: "processes see the host's devices",
			},
			func(_ hostInfo, c containerConfig) string { return valueIf(len(c.GetDevices()) > 0, c.GetDevices()) },
		},
		{
			Limitation{
				PodField: "spec.resourceClaims", CRIField: "config.CDI_devices",
				Requirement: "must be empty", Reason: "the process runtime does not support CDI",
			},
			func(_ hostInfo, c containerConfig) string {
				return valueIf(len(c.GetCDIDevices()) > 0, c.GetCDIDevices())
			},
		},
		{
			Limitation{
				PodField: "spec.containers[*].resources.limits", CRIField: "config.linux.resources",
				Requirement: "must be empty", Reason: reasonNoLimits,
			},
			func(_ hostInfo, c containerConfig) string { return resourceLimits(c.GetLinux().GetResources()) },
		},
		{
			Limitation{
				PodField: "spec.os.name", CRIField: "config.windows",
				Requirement: "must not be windows", Reason: "the process runtime runs on Linux",
			},
			func(_ hostInfo, c containerConfig) string { return valueIf(c.GetWindows() != nil, "set") },
		},
	}
}

func mountRules() []rule[containerConfig] {
	return []rule[containerConfig]{
		{
			Limitation{
				PodField: "spec.containers[*].volumeMounts[*].readOnly", CRIField: "config.mounts[*].readonly",
				Requirement: "must be false, except for volumes whose files the agent writes", Reason: reasonNoReadOnly,
			},
			func(h hostInfo, c containerConfig) string { return findMount(c, h.isUnsupportedReadOnly) },
		},
		{
			Limitation{
				PodField: "spec.containers[*].volumeMounts[*].recursiveReadOnly", CRIField: "config.mounts[*].recursive_read_only",
				Requirement: "must be empty", Reason: reasonNoReadOnly,
			},
			func(_ hostInfo, c containerConfig) string {
				return findMount(c, (*runtimeapi.Mount).GetRecursiveReadOnly)
			},
		},
		{
			Limitation{
				PodField: "spec.containers[*].volumeMounts[*].mountPath", CRIField: "config.mounts[*].container_path",
				Requirement: "must be below / and neither equal to nor inside another", Reason: "a mount is a symbolic link below $HERALD_ROOT",
			},
			func(_ hostInfo, c containerConfig) string {
				return findMount(c, func(mount *runtimeapi.Mount) bool { return isConflicting(c, mount) })
			},
		},
		{
			Limitation{
				PodField: "spec.volumes[*].image", CRIField: "config.mounts[*].image",
				Requirement: "must be empty", Reason: reasonHostImageOnly,
			},
			func(_ hostInfo, c containerConfig) string {
				return findMount(c, func(mount *runtimeapi.Mount) bool { return mount.GetImage().GetImage() != "" })
			},
		},
		{
			Limitation{
				PodField: "spec.hostUsers", CRIField: "config.mounts[*].uidMappings, gidMappings",
				Requirement: "must not be false", Reason: reasonNoNamespaces,
			},
			func(_ hostInfo, c containerConfig) string {
				return findMount(c, func(mount *runtimeapi.Mount) bool {
					return len(mount.GetUidMappings())+len(mount.GetGidMappings()) > 0
				})
			},
		},
	}
}

func hostPathRules() []rule[containerConfig] {
	return []rule[containerConfig]{
		{
			Limitation{
				PodField: "spec.volumes[*].hostPath.path", CRIField: "config.mounts[*].host_path",
				Requirement: "must exist", Reason: "the process runtime creates nothing outside its own directory",
			},
			func(_ hostInfo, c containerConfig) string {
				return findMount(c, func(mount *runtimeapi.Mount) bool { return mount.GetImage().GetImage() == "" && isMissing(mount) })
			},
		},
		{
			Limitation{
				PodField: "spec.containers[*].volumeMounts[*].subPath, subPathExpr", CRIField: "config.mounts[*].host_path with /volume-subpaths/",
				Requirement: "must be empty", Reason: "the agent mounts a subpath only until the container has started",
			},
			func(_ hostInfo, c containerConfig) string {
				return findMount(c, func(mount *runtimeapi.Mount) bool {
					return strings.Contains(mount.GetHostPath(), "/volume-subpaths/")
				})
			},
		},
	}
}

func securityContext(c containerConfig) *runtimeapi.LinuxContainerSecurityContext {
	return c.GetLinux().GetSecurityContext()
}

func userRules() []rule[containerConfig] {
	return []rule[containerConfig]{
		{
			Limitation{
				PodField: "spec.containers[*].securityContext.privileged", CRIField: securityContextField + "privileged",
				Requirement: "must not be true", Reason: reasonAgentPrivileges,
			},
			func(_ hostInfo, c containerConfig) string { return valueIf(securityContext(c).GetPrivileged(), true) },
		},
		{
			Limitation{
				PodField: "spec.containers[*].securityContext.capabilities", CRIField: securityContextField + "capabilities",
				Requirement: "must be empty", Reason: reasonAgentPrivileges,
			},
			func(_ hostInfo, c containerConfig) string {
				all := securityContext(c).GetCapabilities()
				return valueIf(len(all.GetAddCapabilities())+len(all.GetDropCapabilities())+len(all.GetAddAmbientCapabilities()) > 0, all)
			},
		},
		{
			Limitation{
				PodField: "spec.containers[*].securityContext.runAsUser", CRIField: securityContextField + "run_as_user",
				Requirement: "must be the agent's user", Reason: reasonAgentUser,
			},
			func(h hostInfo, c containerConfig) string { return h.otherUser(securityContext(c).GetRunAsUser()) },
		},
		{
			Limitation{
				PodField: "spec.containers[*].securityContext.runAsUser", CRIField: securityContextField + "run_as_username",
				Requirement: "must be the agent's user", Reason: reasonAgentUser,
			},
			func(_ hostInfo, c containerConfig) string { return securityContext(c).GetRunAsUsername() },
		},
		{
			Limitation{
				PodField: "spec.containers[*].securityContext.runAsGroup", CRIField: securityContextField + "run_as_group",
				Requirement: "must be the agent's group", Reason: reasonAgentUser,
			},
			func(h hostInfo, c containerConfig) string { return h.otherGroup(securityContext(c).GetRunAsGroup()) },
		},
		{
			Limitation{
				PodField: "spec.securityContext.supplementalGroups, fsGroup", CRIField: securityContextField + "supplemental_groups",
				Requirement: "must be groups of the agent", Reason: reasonAgentUser,
			},
			func(h hostInfo, c containerConfig) string {
				return h.otherGroups(securityContext(c).GetSupplementalGroups())
			},
		},
		{
			Limitation{
				PodField: "spec.securityContext.supplementalGroupsPolicy", CRIField: securityContextField + "supplemental_groups_policy",
				Requirement: "must not be Strict", Reason: reasonAgentUser,
			},
			func(_ hostInfo, c containerConfig) string {
				return valueIf(securityContext(c).GetSupplementalGroupsPolicy() == runtimeapi.SupplementalGroupsPolicy_Strict, "Strict")
			},
		},
	}
}

func isolationRules() []rule[containerConfig] {
	return []rule[containerConfig]{
		{
			Limitation{
				PodField: "spec.containers[*].securityContext.readOnlyRootFilesystem", CRIField: securityContextField + "readonly_rootfs",
				Requirement: "must not be true", Reason: "the root file system is the host's",
			},
			func(_ hostInfo, c containerConfig) string {
				return valueIf(securityContext(c).GetReadonlyRootfs(), true)
			},
		},
		{
			Limitation{
				PodField: "spec.ephemeralContainers[*].targetContainerName", CRIField: securityContextField + "namespace_options.pid",
				Requirement: "must be empty", Reason: reasonNoNamespaces,
			},
			func(_ hostInfo, c containerConfig) string {
				options := securityContext(c).GetNamespaceOptions()
				return valueIf(options.GetPid() == runtimeapi.NamespaceMode_TARGET, "TARGET "+options.GetTargetId())
			},
		},
		{
			Limitation{
				PodField: "spec.hostUsers", CRIField: securityContextField + "namespace_options.userns_options",
				Requirement: "must not be false", Reason: reasonNoNamespaces,
			},
			func(_ hostInfo, c containerConfig) string {
				return userNamespace(securityContext(c).GetNamespaceOptions())
			},
		},
	}
}

func profileRules() []rule[containerConfig] {
	return []rule[containerConfig]{
		{
			Limitation{
				PodField: "spec.containers[*].securityContext.seLinuxOptions", CRIField: securityContextField + "selinux_options",
				Requirement: "must be empty", Reason: reasonNoProfiles,
			},
			func(_ hostInfo, c containerConfig) string {
				return seLinuxOptions(securityContext(c).GetSelinuxOptions())
			},
		},
		{
			Limitation{
				PodField: "spec.containers[*].securityContext.seccompProfile", CRIField: securityContextField + "seccomp",
				Requirement: "must not be of type Localhost", Reason: reasonNoProfiles,
			},
			func(_ hostInfo, c containerConfig) string { return localProfile(securityContext(c).GetSeccomp()) },
		},
		{
			Limitation{
				PodField: "spec.containers[*].securityContext.appArmorProfile", CRIField: securityContextField + "apparmor",
				Requirement: "must not be of type Localhost", Reason: reasonNoProfiles,
			},
			func(_ hostInfo, c containerConfig) string { return localProfile(securityContext(c).GetApparmor()) },
		},
		{
			Limitation{
				PodField: "spec.containers[*].securityContext.seccompProfile", CRIField: securityContextField + "seccomp_profile_path",
				Requirement: "must not be of type Localhost", Reason: reasonNoProfiles,
			},
			func(_ hostInfo, c containerConfig) string {
				return legacyProfile(securityContext(c).GetSeccompProfilePath()) //nolint:staticcheck // clients may still send it
			},
		},
		{
			Limitation{
				PodField: "spec.containers[*].securityContext.appArmorProfile", CRIField: securityContextField + "apparmor_profile",
				Requirement: "must not be of type Localhost", Reason: reasonNoProfiles,
			},
			func(_ hostInfo, c containerConfig) string {
				return legacyProfile(securityContext(c).GetApparmorProfile()) //nolint:staticcheck // clients may still send it
			},
		},
	}
}
