package process

import (
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxRules is what RunPodSandbox refuses.
func sandboxRules() []rule[sandboxRequest] {
	return slices.Concat(podRules(), podMachineRules(), podSecurityRules())
}

type sandboxRequest = *runtimeapi.RunPodSandboxRequest

func podSecurity(r sandboxRequest) *runtimeapi.LinuxSandboxSecurityContext {
	return r.GetConfig().GetLinux().GetSecurityContext()
}

func podRules() []rule[sandboxRequest] {
	return []rule[sandboxRequest]{
		{
			Refusal{
				CRI: inSecurity + "namespace_options.network", Pod: "spec.hostNetwork",
				Must: "must be true", Why: "the process runtime has no network of its own",
			},
			func(_ facts, r sandboxRequest) string {
				mode := podSecurity(r).GetNamespaceOptions().GetNetwork()
				return yes(mode != runtimeapi.NamespaceMode_NODE, mode)
			},
		},
		{
			Refusal{
				CRI: inSecurity + "namespace_options.userns_options", Pod: "spec.hostUsers",
				Must: "must not be false", Why: whyNoNamespace,
			},
			func(_ facts, r sandboxRequest) string { return ownUsers(podSecurity(r).GetNamespaceOptions()) },
		},
		{
			Refusal{
				CRI: "runtime_handler", Pod: "spec.runtimeClassName",
				Must: "must be empty", Why: "the process runtime has no handlers",
			},
			func(_ facts, r sandboxRequest) string { return r.GetRuntimeHandler() },
		},
		{
			Refusal{
				CRI: "config.hostname", Pod: "spec.hostname",
				Must: "must be empty or the machine's", Why: "a process has the machine's name",
			},
			func(f facts, r sandboxRequest) string {
				return yes(r.GetConfig().GetHostname() != f.hostname, r.GetConfig().GetHostname())
			},
		},
		{
			Refusal{
				CRI: "config.port_mappings", Pod: "spec.containers[*].ports",
				Must: "must have hostPort empty or equal to containerPort, and no hostIP", Why: "a process has the machine's own ports",
			},
			func(_ facts, r sandboxRequest) string {
				at := slices.IndexFunc(r.GetConfig().GetPortMappings(), func(port *runtimeapi.PortMapping) bool {
					return port.GetHostIp() != "" || port.GetHostPort() != 0 && port.GetHostPort() != port.GetContainerPort()
				})
				return yes(at >= 0, r.GetConfig().GetPortMappings())
			},
		},
	}
}

func podMachineRules() []rule[sandboxRequest] {
	return []rule[sandboxRequest]{
		{
			Refusal{
				CRI: "config.linux.sysctls", Pod: "spec.securityContext.sysctls",
				Must: "must be empty", Why: "they are the machine's",
			},
			func(_ facts, r sandboxRequest) string {
				return yes(len(r.GetConfig().GetLinux().GetSysctls()) > 0, r.GetConfig().GetLinux().GetSysctls())
			},
		},
		{
			Refusal{
				CRI: "config.linux.resources", Pod: "spec.resources.limits",
				Must: "must be empty", Why: whyNoLimits,
			},
			func(_ facts, r sandboxRequest) string { return limits(r.GetConfig().GetLinux().GetResources()) },
		},
		{
			Refusal{
				CRI: "config.windows", Pod: "spec.os.name",
				Must: "must not be windows", Why: "the process runtime runs on Linux",
			},
			func(_ facts, r sandboxRequest) string { return yes(r.GetConfig().GetWindows() != nil, "set") },
		},
	}
}

func podSecurityRules() []rule[sandboxRequest] {
	return []rule[sandboxRequest]{
		{
			Refusal{
				CRI: inSecurity + "run_as_user", Pod: "spec.securityContext.runAsUser",
				Must: "must be the agent's own user", Why: whyOwnUser,
			},
			func(f facts, r sandboxRequest) string { return f.foreignUser(podSecurity(r).GetRunAsUser()) },
		},
		{
			Refusal{
				CRI: inSecurity + "run_as_group", Pod: "spec.securityContext.runAsGroup",
				Must: "must be the agent's own group", Why: whyOwnUser,
			},
			func(f facts, r sandboxRequest) string { return f.foreignGroup(podSecurity(r).GetRunAsGroup()) },
		},
		{
			Refusal{
				CRI: inSecurity + "supplemental_groups", Pod: "spec.securityContext.supplementalGroups, fsGroup",
				Must: "must be the agent's own groups", Why: whyOwnUser,
			},
			func(f facts, r sandboxRequest) string { return f.foreignGroups(podSecurity(r).GetSupplementalGroups()) },
		},
		{
			Refusal{
				CRI: inSecurity + "supplemental_groups_policy", Pod: "spec.securityContext.supplementalGroupsPolicy",
				Must: "must not be Strict", Why: whyOwnUser,
			},
			func(_ facts, r sandboxRequest) string {
				return yes(podSecurity(r).GetSupplementalGroupsPolicy() == runtimeapi.SupplementalGroupsPolicy_Strict, "Strict")
			},
		},
		{
			Refusal{
				CRI: inSecurity + "selinux_options", Pod: "spec.securityContext.seLinuxOptions",
				Must: "must be empty", Why: whyNoProfile,
			},
			func(_ facts, r sandboxRequest) string { return seLinux(podSecurity(r).GetSelinuxOptions()) },
		},
		{
			Refusal{
				CRI: inSecurity + "seccomp", Pod: "spec.securityContext.seccompProfile",
				Must: "must not be of type Localhost", Why: whyNoProfile,
			},
			func(_ facts, r sandboxRequest) string { return localProfile(podSecurity(r).GetSeccomp()) },
		},
		{
			Refusal{
				CRI: inSecurity + "apparmor", Pod: "spec.securityContext.appArmorProfile",
				Must: "must not be of type Localhost", Why: whyNoProfile,
			},
			func(_ facts, r sandboxRequest) string { return localProfile(podSecurity(r).GetApparmor()) },
		},
		{
			Refusal{
				CRI: inSecurity + "privileged", Pod: "spec.containers[*].securityContext.privileged",
				Must: "must not be true", Why: whyOwnPrivileges,
			},
			func(_ facts, r sandboxRequest) string { return yes(podSecurity(r).GetPrivileged(), true) },
		},
	}
}
