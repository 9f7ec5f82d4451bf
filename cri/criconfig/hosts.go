package criconfig

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// HostsPath is the hosts file in a container.
const HostsPath = "/etc/hosts"

// The first lines of hosts files are the kubelet's: programs recognize by them that changes in the container are lost.
const (
	hostsHeader            = "# Kubernetes-managed hosts file.\n"
	hostNetworkHostsHeader = "# Kubernetes-managed hosts file (host network).\n"
)

const (
	maxLabelLength    = 63 // of a DNS name
	maxHostnameLength = 64 // of the kernel
)

// hostname returns the pod's host name and the domain that its headless service gives it, or "".
func (g *Generator) hostname(pod *v1.Pod) (host, domain string) {
	host = cmp.Or(pod.Spec.Hostname, pod.Name)
	if len(host) > maxLabelLength {
		host = strings.TrimRight(host[:maxLabelLength], "-.")
	}
	if pod.Spec.Subdomain != "" {
		domain = pod.Spec.Subdomain + "." + pod.Namespace + ".svc." + g.ClusterDomain
	}
	return host, domain
}

// kernelHostname returns the host name of the pod's UTS namespace.
func (g *Generator) kernelHostname(pod *v1.Pod) (string, error) {
	if override := pod.Spec.HostnameOverride; override != nil {
		return *override, nil
	}
	host, domain := g.hostname(pod)
	if domain == "" || !isTrue(pod.Spec.SetHostnameAsFQDN) {
		return host, nil
	}
	fqdn := host + "." + domain
	if len(fqdn) > maxHostnameLength {
		return "", fmt.Errorf("spec.setHostnameAsFQDN: %s has %d characters, the limit is %d; shorten spec.hostname or spec.subdomain",
			fqdn, len(fqdn), maxHostnameLength)
	}
	return fqdn, nil
}

// NeedsHostsFile reports whether the pod gets its own hosts file. A pod in the host network uses the node's, unless it adds
// aliases.
func NeedsHostsFile(pod *v1.Pod, ips []netip.Addr) bool {
	if pod.Spec.HostNetwork {
		return len(pod.Spec.HostAliases) > 0
	}
	return len(ips) > 0 || len(pod.Spec.HostAliases) > 0
}

// HostsFile returns the content of the pod's hosts file. nodeHosts is the node's own, for pods in the host network.
func (g *Generator) HostsFile(pod *v1.Pod, ips []netip.Addr, nodeHosts string) string {
	var file strings.Builder
	if pod.Spec.HostNetwork {
		file.WriteString(hostNetworkHostsHeader + nodeHosts)
	} else {
		file.WriteString(hostsHeader)
		file.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
		for _, ip := range ips {
			writeHost(&file, ip.String(), g.hostNames(pod)...)
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		file.WriteString("\n# spec.hostAliases\n")
	}
	for _, alias := range pod.Spec.HostAliases {
		writeHost(&file, alias.IP, alias.Hostnames...)
	}
	return file.String()
}

// hostNames returns the names of the pod's own addresses.
func (g *Generator) hostNames(pod *v1.Pod) []string {
	if pod.Spec.HostnameOverride != nil {
		return []string{*pod.Spec.HostnameOverride}
	}
	host, domain := g.hostname(pod)
	if domain == "" {
		return []string{host}
	}
	return []string{host + "." + domain, host}
}

func writeHost(file *strings.Builder, ip string, names ...string) {
	file.WriteString(ip + "\t" + strings.Join(names, "\t") + "\n")
}
