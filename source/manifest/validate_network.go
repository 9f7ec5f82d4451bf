package manifest

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What the resolver of the C library takes.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
	maxHostname     = 64
)

// checkNetwork looks at names and addresses.
func (c *checker) checkNetwork(spec *field.Path) {
	if c.spec.Hostname != "" {
		c.invalid(spec.Child("hostname"), c.spec.Hostname, validation.IsDNS1123Label(c.spec.Hostname)...)
	}
	if c.spec.Subdomain != "" {
		c.invalid(spec.Child("subdomain"), c.spec.Subdomain, validation.IsDNS1123Label(c.spec.Subdomain)...)
	}
	c.checkHostnameOverride(spec.Child("hostnameOverride"))
	for i, alias := range c.spec.HostAliases {
		at := spec.Child("hostAliases").Index(i)
		c.add(validation.IsValidIPForLegacyField(at.Child("ip"), alias.IP, true, nil)...)
		for j, name := range alias.Hostnames {
			c.invalid(at.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name)...)
		}
	}
	oneOf(c, spec.Child("dnsPolicy"), c.spec.DNSPolicy,
		v1.DNSClusterFirstWithHostNet, v1.DNSClusterFirst, v1.DNSDefault, v1.DNSNone)
	c.checkDNSConfig(spec.Child("dnsConfig"))
}

func (c *checker) checkHostnameOverride(at *field.Path) {
	name := c.spec.HostnameOverride
	if name == nil {
		return
	}
	c.invalid(at, *name, validation.IsDNS1123Subdomain(*name)...)
	if len(*name) > maxHostname {
		c.add(field.TooLong(at, "", maxHostname))
	}
	if c.spec.SetHostnameAsFQDN != nil && *c.spec.SetHostnameAsFQDN {
		c.forbidden(at, "may not be set together with setHostnameAsFQDN")
	}
	if c.spec.HostNetwork {
		c.forbidden(at, "may not be set when hostNetwork is true")
	}
}

func (c *checker) checkDNSConfig(at *field.Path) {
	config := c.spec.DNSConfig
	if config == nil {
		config = &v1.PodDNSConfig{}
	}
	nameservers, searches := at.Child("nameservers"), at.Child("searches")
	switch {
	case c.spec.DNSPolicy == v1.DNSNone && len(config.Nameservers) == 0:
		c.required(nameservers, "at least one when dnsPolicy is None")
	case len(config.Nameservers) > maxNameservers:
		c.add(field.TooMany(nameservers, len(config.Nameservers), maxNameservers))
	}
	for i, server := range config.Nameservers {
		c.add(validation.IsValidIPForLegacyField(nameservers.Index(i), server, true, nil)...)
	}
	if len(config.Searches) > maxSearches {
		c.add(field.TooMany(searches, len(config.Searches), maxSearches))
	}
	if len(strings.Join(config.Searches, " ")) > maxSearchLength {
		c.invalid(searches, len(config.Searches), fmt.Sprintf("must have at most %d characters together", maxSearchLength))
	}
	for i, domain := range config.Searches {
		if domain != "." {
			domain = strings.TrimSuffix(domain, ".")
			c.invalid(searches.Index(i), domain, validation.IsDNS1123SubdomainWithUnderscore(domain)...)
		}
	}
	for i, option := range config.Options {
		if option.Name == "" {
			c.required(at.Child("options").Index(i).Child("name"), "")
		}
	}
}
