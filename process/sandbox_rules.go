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
			Limitation{
				CRIField: inSecurity + "namespace_options.network", PodField: "spec.hostNetwork",
				Requirement: "must be true", Reason: "the process runtime has no network of its own",
			},
			func(_ facts, r sandboxRequest) string {
				mode := podSecurity(r).GetNamespaceOptions().GetNetwork()
				return yes(mode != runtimeapi.NamespaceMode_NODE, mode)
			},
		},
		{
			Limitation{
				CRIField: inSecurity + "namespace_options.userns_options", PodField: "spec.hostUsers",
				Requirement: "must not be false", Reason: whyNoNamespace,
			},
			func(_ facts, r sandboxRequest) string { return ownUsers(podSecurity(r).GetNamespaceOptions()) },
		},
		{
			Limitation{
				CRIField: "runtime_handler", PodField: "spec.runtimeClassName",
				Requirement: "must be empty", Reason: "the process runtime has no handlers",
			},
			func(_ facts, r sandboxRequest) string { return r.GetRuntimeHandler() },
		},
		{
			Limitation{
				CRIField: "config.hostname", PodField: "spec.hostname",
				Requirement: "must be empty or the machine's", Reason: "a process has the machine's name",
			},
			func(f facts, r sandboxRequest) string {
				return yes(r.GetConfig().GetHostname() != f.hostname, r.GetConfig().GetHostname())
			},
		},
		{
			Limitation{
				CRIField: "config.port_mappings", PodField: "spec.containers[*].ports",
				Requirement: "must have hostPort empty or equal to containerPort, and no hostIP", Reason: "a process has the machine's own ports",
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
			Limitation{
				CRIField: "config.linux.sysctls", PodField: "spec.securityContext.sysctls",
				Requirement: "must be empty", Reason: "they are the machine's",
			},
			func(_ facts, r sandboxRequest) string {
				return yes(len(r.GetConfig().GetLinux().GetSysctls()) > 0, r.GetConfig().GetLinux().GetSysctls())
			},
		},
		{
			Limitation{
				CRIField: "config.linux.resources", PodField: "spec.resources.limits",
				Requirement: "must be empty", Reason: whyNoLimits,
			},
			func(_ facts, r sandboxRequest) string { return limits(r.GetConfig().GetLinux().GetResources()) },
		},
		{
			Limitation{
				CRIField: "config.windows", PodField: "spec.os.name",
				Requirement: "must not be windows", Reason: "the process runtime runs on Linux",
			},
			func(_ facts, r sandboxRequest) string { return yes(r.GetConfig().GetWindows() != nil, "set") },
		},
	}
}

func podSecurityRules() []rule[sandboxRequest] {
	return []rule[sandboxRequest]{
		{
			Limitation{
				CRIField: inSecurity + "run_as_user", PodField: "spec.securityContext.runAsUser",
				Requirement: "must be the agent's own user", Reason: whyOwnUser,
			},
			func(f facts, r sandboxRequest) string { return f.foreignUser(podSecurity(r).GetRunAsUser()) },
		},
		{
			Limitation{
				CRIField: inSecurity + "run_as_group", PodField: "spec.securityContext.runAsGroup",
				Requirement: "must be the agent's own group", Reason: whyOwnUser,
			},
			func(f facts, r sandboxRequest) string { return f.foreignGroup(podSecurity(r).GetRunAsGroup()) },
		},
		{
			Limitation{
				CRIField: inSecurity + "supplemental_groups", PodField: "spec.securityContext.supplementalGroups, fsGroup",
				Requirement: "must be the agent's own groups", Reason: whyOwnUser,
			},
			func(f facts, r sandboxRequest) string { return f.foreignGroups(podSecurity(r).GetSupplementalGroups()) },
		},
		{
			Limitation{
				CRIField: inSecurity + "supplemental_groups_policy", PodField: "spec.securityContext.supplementalGroupsPolicy",
				Requirement: "must not be Strict", Reason: whyOwnUser,
			},
			func(_ facts, r sandboxRequest) string {
				return yes(podSecurity(r).GetSupplementalGroupsPolicy() == runtimeapi.SupplementalGroupsPolicy_Strict, "Strict")
			},
		},
		{
			Limitation{
				CRIField: inSecurity + "selinux_options", PodField: "spec.securityContext.seLinuxOptions",
				Requirement: "must be empty", Reason: whyNoProfile,
			},
			func(_ facts, r sandboxRequest) string { return seLinux(podSecurity(r).GetSelinuxOptions()) },
		},
		{
			Limitation{
				CRIField: inSecurity + "seccomp", PodField: "spec.securityContext.seccompProfile",
				Requirement: "must not be of type Localhost", Reason: whyNoProfile,
			},
			func(_ facts, r sandboxRequest) string { return localProfile(podSecurity(r).GetSeccomp()) },
		},
		{
			Limitation{
				CRIField: inSecurity + "apparmor", PodField: "spec.securityContext.appArmorProfile",
				Requirement: "must not be of type Localhost", Reason: whyNoProfile,
			},
			func(_ facts, r sandboxRequest) string { return localProfile(podSecurity(r).GetApparmor()) },
		},
		{
			Limitation{
				CRIField: inSecurity + "privileged", PodField: "spec.containers[*].securityContext.privileged",
				Requirement: "must not be true", Reason: whyOwnPrivileges,
			},
			func(_ facts, r sandboxRequest) string { return yes(podSecurity(r).GetPrivileged(), true) },
		},
	}
}
