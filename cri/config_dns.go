package cri

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What resolvers bear.
const (
	mostNameServers   = 3
	mostSearchDomains = 32
	longestSearchLine = 2048
	longestDomain     = 253
)

// warning is an event about something that a pod gets otherwise than it asked for.
type warning struct{ reason, message string }

// podDNS is how names are resolved in the pod, from its dnsPolicy, its dnsConfig and the node's own resolv.conf.
func (c *Config) podDNS(pod *v1.Pod, node *runtimeapi.DNSConfig) (*runtimeapi.DNSConfig, []warning) {
	var warnings []warning
	dns := &runtimeapi.DNSConfig{}
	switch clusterFirst := usesClusterDNS(pod); {
	case pod.Spec.DNSPolicy == v1.DNSNone:
	case clusterFirst && len(c.ClusterDNS) > 0:
		for _, server := range c.ClusterDNS {
			dns.Servers = append(dns.Servers, server.String())
		}
		dns.Searches = c.clusterSearches(pod, node.Searches)
		dns.Options = []string{"ndots:5"}
	default:
		if clusterFirst {
			warnings = append(warnings, warning{eventMissingClusterDNS, fmt.Sprintf(
				"pod: %q. no ClusterDNS is configured, so %q is not possible. Falling back to %q policy.",
				describe(pod), v1.DNSClusterFirst, v1.DNSDefault)})
		}
		dns.Servers = slices.Clone(node.Servers)
		dns.Searches = slices.Clone(node.Searches)
		dns.Options = slices.Clone(node.Options)
	}
	if own := pod.Spec.DNSConfig; own != nil {
		dns.Servers = unique(append(dns.Servers, own.Nameservers...))
		dns.Searches = unique(append(dns.Searches, own.Searches...))
		dns.Options = mergeDNSOptions(dns.Options, own.Options)
	}
	return dns, append(warnings, limitDNS(dns)...)
}

// usesClusterDNS: in the node's network ClusterFirst means the node's servers, unless the policy insists.
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

func (c *Config) clusterSearches(pod *v1.Pod, node []string) []string {
	if c.ClusterDomain == "" {
		return slices.Clone(node)
	}
	services := "svc." + c.ClusterDomain
	return unique(append([]string{pod.Namespace + "." + services, services, c.ClusterDomain}, node...))
}

// mergeDNSOptions keeps the order; an option of the pod replaces the one of the same name.
func mergeDNSOptions(options []string, own []v1.PodDNSConfigOption) []string {
	for _, option := range own {
		written := option.Name
		if option.Value != nil && *option.Value != "" {
			written += ":" + *option.Value
		}
		options = setDNSOption(options, written)
	}
	return options
}

func setDNSOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	at := slices.IndexFunc(options, func(other string) bool {
		known, _, _ := strings.Cut(other, ":")
		return known == name
	})
	if at < 0 {
		return append(options, option)
	}
	options[at] = option
	return options
}

// limitDNS leaves out what resolvers would stumble over, and says so.
func limitDNS(dns *runtimeapi.DNSConfig) []warning {
	var warnings []warning
	if len(dns.Servers) > mostNameServers {
		dns.Servers = dns.Servers[:mostNameServers]
		warnings = append(warnings, warning{eventDNSConfigForming, "Nameserver limits were exceeded, some nameservers have " +
			"been omitted, the applied nameserver line is: " + strings.Join(dns.Servers, " ")})
	}
	fitting := fittingSearches(dns.Searches)
	if len(fitting) < len(dns.Searches) {
		dns.Searches = fitting
		warnings = append(warnings, warning{eventDNSConfigForming, "Search Line limits were exceeded, some search paths have " +
			"been omitted, the applied search line is: " + strings.Join(fitting, " ")})
	}
	return warnings
}

func fittingSearches(searches []string) []string {
	var fitting []string
	length := 0
	for _, domain := range searches[:min(len(searches), mostSearchDomains)] {
		if len(domain) > longestDomain {
			continue
		}
		if length += len(domain); length > longestSearchLine {
			break
		}
		length++ // the space before the next
		fitting = append(fitting, domain)
	}
	return fitting
}

// parseResolvConf reads what the node's resolver reads: of several search lines the last counts.
func parseResolvConf(content string) *runtimeapi.DNSConfig {
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
	var once []string
	for _, entry := range list {
		if !slices.Contains(once, entry) {
			once = append(once, entry)
		}
	}
	return once
}

// describe names a pod as the kubelet's messages do: name_namespace(uid).
func describe(pod *v1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}
