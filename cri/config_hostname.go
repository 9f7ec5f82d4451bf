package cri

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

const (
	longestLabel    = 63 // of a DNS name
	longestHostname = 64 // that the kernel takes
)

// hostname is the pod's name on its own network, and the domain that services of the cluster give it.
func (c *Config) hostname(pod *v1.Pod) (host, domain string) {
	host = pod.Spec.Hostname
	if host == "" {
		host = pod.Name
	}
	if len(host) > longestLabel {
		host = strings.TrimRight(host[:longestLabel], "-.")
	}
	if pod.Spec.Subdomain != "" {
		domain = pod.Spec.Subdomain + "." + pod.Namespace + ".svc." + c.ClusterDomain
	}
	return host, domain
}

// kernelHostname is what `hostname` says inside.
func (c *Config) kernelHostname(pod *v1.Pod) (string, error) {
	if override := pod.Spec.HostnameOverride; override != nil {
		return *override, nil
	}
	host, domain := c.hostname(pod)
	if domain == "" || pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN {
		return host, nil
	}
	full := host + "." + domain
	if len(full) > longestHostname {
		return "", fmt.Errorf("spec.setHostnameAsFQDN: %s has %d characters, a hostname at most %d; shorten spec.hostname or spec.subdomain",
			full, len(full), longestHostname)
	}
	return full, nil
}
