package admission

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// safeSysctls are confined to the pod's own namespaces (ADM-20).
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem",
	"net.ipv4.tcp_wmem",
}

// checkSysctls rejects sysctls that may affect other pods, or that a pod in a namespace of the host would set there (ADM-19).
func checkSysctls(pod *v1.Pod, allowed []string) *Rejection {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for i, sysctl := range pod.Spec.SecurityContext.Sysctls {
		name := normalizeSysctl(sysctl.Name)
		rejection := &Rejection{Reason: reasonSysctlForbidden, Field: fmt.Sprintf("spec.securityContext.sysctls[%d]", i)}
		namespace := sysctlNamespace(name)
		switch {
		case !isAllowed(name, allowed):
			rejection.Message = fmt.Sprintf("forbidden sysctl: %q not allowlisted", name)
			rejection.Remedy = "it may affect other pods; remove it or add it to the node's allowedUnsafeSysctls"
		case namespace == netNamespace && pod.Spec.HostNetwork || namespace == ipcNamespace && pod.Spec.HostIPC:
			rejection.Message = fmt.Sprintf("forbidden sysctl: %q not allowed with host %s enabled", name, namespace)
			rejection.Remedy = "remove it, hostNetwork or hostIPC"
		default:
			continue
		}
		return rejection
	}
	return nil
}

func isAllowed(name string, patterns []string) bool {
	return slices.Contains(safeSysctls, name) || slices.ContainsFunc(patterns, func(allowed string) bool {
		prefix, isPattern := strings.CutSuffix(allowed, "*")
		return name == allowed || isPattern && strings.HasPrefix(name, prefix)
	})
}

// The namespaces of sysctls, in the kubelet's words.
const (
	netNamespace = "Net"
	ipcNamespace = "IPC"
)

// sysctlNamespace returns the namespace that the sysctl belongs to, or "" if it is unknown.
func sysctlNamespace(name string) string {
	switch {
	case strings.HasPrefix(name, "net."):
		return netNamespace
	case name == "kernel.sem", strings.HasPrefix(name, "kernel.shm"), strings.HasPrefix(name, "kernel.msg"),
		strings.HasPrefix(name, "fs.mqueue."):
		return ipcNamespace
	default:
		return ""
	}
}

// normalizeSysctl returns the form that is separated by dots. The first separator decides which form a name has.
func normalizeSysctl(name string) string {
	if first := strings.IndexAny(name, "./"); first < 0 || name[first] == '.' {
		return name
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(name)
}
