package criconfig

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits of resolvers, as the kubelet applies them.
const (
	maxNameServers      = 3
	maxSearchDomains    = 32
	maxSearchLineLength = 2048
	maxDomainLength     = 253
)

// Event reasons of warnings, as the kubelet reports them.
const (
	reasonDNSConfigForming  = "DNSConfigForming"
	reasonMissingClusterDNS = "MissingClusterDNS"
)

// Warning is an event about a setting that the pod does not get as requested.
type Warning struct{ Reason, Message string }

// DNSConfig returns the pod's resolver configuration from its dnsPolicy, its dnsConfig and the node's own configuration.
func (g *Generator) DNSConfig(pod *v1.Pod, node *runtimeapi.DNSConfig) (*runtimeapi.DNSConfig, []Warning) {
	var warnings []Warning
	dns := &runtimeapi.DNSConfig{}
	switch clusterFirst := usesClusterDNS(pod); {
	case pod.Spec.DNSPolicy == v1.DNSNone:
	case clusterFirst && len(g.ClusterDNS) > 0:
		for _, server := range g.ClusterDNS {
			dns.Servers = append(dns.Servers, server.String())
		}
		dns.Searches = g.clusterSearches(pod, node.Searches)
		dns.Options = []string{"ndots:5"}
	default:
		if clusterFirst {
			warnings = append(warnings, Warning{reasonMissingClusterDNS, fmt.Sprintf(
				"pod: %q. no ClusterDNS is configured, so %q is not possible. Falling back to %q policy.",
				FormatPod(pod), v1.DNSClusterFirst, v1.DNSDefault)})
		}
		dns.Servers = slices.Clone(node.Servers)
		dns.Searches = slices.Clone(node.Searches)
		dns.Options = slices.Clone(node.Options)
	}
	if podDNS := pod.Spec.DNSConfig; podDNS != nil {
		dns.Servers = unique(append(dns.Servers, podDNS.Nameservers...))
		dns.Searches = unique(append(dns.Searches, podDNS.Searches...))
		dns.Options = mergeDNSOptions(dns.Options, podDNS.Options)
	}
	return dns, append(warnings, limitDNS(dns)...)
}

// usesClusterDNS reports whether the pod wants the cluster's name servers. In the host network ClusterFirst means the
// node's servers.
func usesClusterDNS(pod *v1.Pod) bool {
	switch pod.Spec.DNSPolicy {
	case v1.DNSClusterFirstWithHostNet:
		return true
	case v1.DNSDefault, v1.DNSNone:
		return false
	default:
		return !pod.Spec.HostNetwork
	}
}

func (g *Generator) clusterSearches(pod *v1.Pod, node []string) []string {
	if g.ClusterDomain == "" {
		return slices.Clone(node)
	}
	services := "svc." + g.ClusterDomain
	return unique(append([]string{pod.Namespace + "." + services, services, g.ClusterDomain}, node...))
}

// mergeDNSOptions adds the pod's options in order. An option of the pod replaces the option of the same name.
func mergeDNSOptions(options []string, podOptions []v1.PodDNSConfigOption) []string {
	for _, option := range podOptions {
		text := option.Name
		if option.Value != nil && *option.Value != "" {
			text += ":" + *option.Value
		}
		options = setDNSOption(options, text)
	}
	return options
}

func setDNSOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	at := slices.IndexFunc(options, func(other string) bool {
		otherName, _, _ := strings.Cut(other, ":")
		return otherName == name
	})
	if at < 0 {
		return append(options, option)
	}
	options[at] = option
	return options
}

// limitDNS drops what exceeds the limits of resolvers and warns about it.
func limitDNS(dns *runtimeapi.DNSConfig) []Warning {
	var warnings []Warning
	if len(dns.Servers) > maxNameServers {
		dns.Servers = dns.Servers[:maxNameServers]
		warnings = append(warnings, Warning{reasonDNSConfigForming, "Nameserver limits were exceeded, some nameservers have " +
			"been omitted, the applied nameserver line is: " + strings.Join(dns.Servers, " ")})
	}
	fitting := limitSearches(dns.Searches)
	if len(fitting) < len(dns.Searches) {
		dns.Searches = fitting
		warnings = append(warnings, Warning{reasonDNSConfigForming, "Search Line limits were exceeded, some search paths have " +
			"been omitted, the applied search line is: " + strings.Join(fitting, " ")})
	}
	return warnings
}

func limitSearches(searches []string) []string {
	var fitting []string
	length := 0
	for _, domain := range searches[:min(len(searches), maxSearchDomains)] {
		if len(domain) > maxDomainLength {
			continue
		}
		if length += len(domain); length > maxSearchLineLength {
			break
		}
		length++ // the space before the next domain
		fitting = append(fitting, domain)
	}
	return fitting
}

// ParseResolvConf parses a resolv.conf as resolvers do: the last search line wins.
func ParseResolvConf(content string) *runtimeapi.DNSConfig {
	dns := &runtimeapi.DNSConfig{}
	for line := range strings.Lines(content) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			dns.Servers = append(dns.Servers, fields[1])
		case "search":
			dns.Searches = nil
			for _, domain := range fields[1:] {
				if domain != "." {
					dns.Searches = append(dns.Searches, strings.TrimSuffix(domain, "."))
				}
			}
		case "options":
			for _, option := range fields[1:] {
				dns.Options = setDNSOption(dns.Options, option)
			}
		}
	}
	return dns
}

func unique(list []string) []string {
	var result []string
	for _, entry := range list {
		if !slices.Contains(result, entry) {
			result = append(result, entry)
		}
	}
	return result
}
