package cri

import (
	"net/netip"
	"strings"

	v1 "k8s.io/api/core/v1"
)

const hostsPath = "/etc/hosts"

// wantsHostsFile: a pod in the node's network sees the node's names, unless it adds its own.
func wantsHostsFile(pod *v1.Pod, ips []netip.Addr) bool {
	if pod.Spec.HostNetwork {
		return len(pod.Spec.HostAliases) > 0
	}
	return len(ips) > 0 || len(pod.Spec.HostAliases) > 0
}

// hostsFile is /etc/hosts inside the pod's containers. node is the node's own, for pods that share its network.
func (c *Config) hostsFile(pod *v1.Pod, ips []netip.Addr, node string) string {
	var file strings.Builder
	file.WriteString("# Managed for this pod: changes are lost.\n")
	if pod.Spec.HostNetwork {
		file.WriteString(node)
	} else {
		file.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
		for _, ip := range ips {
			line(&file, ip.String(), c.ownNames(pod)...)
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		file.WriteString("\n# spec.hostAliases\n")
	}
	for _, alias := range pod.Spec.HostAliases {
		line(&file, alias.IP, alias.Hostnames...)
	}
	return file.String()
}

func (c *Config) ownNames(pod *v1.Pod) []string {
	if pod.Spec.HostnameOverride != nil {
		return []string{*pod.Spec.HostnameOverride}
	}
	host, domain := c.hostname(pod)
	if domain == "" {
		return []string{host}
	}
	return []string{host + "." + domain, host}
}

func line(file *strings.Builder, ip string, names ...string) {
	file.WriteString(ip + "\t" + strings.Join(names, "\t") + "\n")
}
