// Package rotation decides about certificates of a node: whether one fits, when to ask for another, under which name, what an answer
// means, and how long to wait after a failure.
package rotation

import (
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// NodesGroup is the group of all nodes, and userPrefix the prefix of their users.
const (
	NodesGroup = "system:nodes"
	userPrefix = "system:node:"
)

// Template is what a certificate must have: all of it, and possibly more names and addresses.
type Template struct {
	CommonName    string
	Organizations []string
	DNSNames      []string
	IPs           []netip.Addr
}

// ForClient returns the template of a node's client certificate (CRT-3).
func ForClient(nodeName string) Template {
	return Template{CommonName: userPrefix + nodeName, Organizations: []string{NodesGroup}}
}

// ForServing returns the template of a node's serving certificate. It returns false while the node has no address: a certificate
// without one is of no use to whoever connects (CRT-20).
func ForServing(nodeName string, addresses []v1.NodeAddress) (Template, bool) {
	template := ForClient(nodeName)
	template.DNSNames, template.IPs = Names(addresses)
	return template, len(template.IPs) > 0
}

// Names returns the names and the IP addresses of a node, sorted and without duplicates. A host name that is an address counts as one.
func Names(addresses []v1.NodeAddress) (names []string, ips []netip.Addr) {
	for i := range addresses {
		address := addresses[i].Address
		ip, err := netip.ParseAddr(address)
		switch {
		case err == nil:
			ips = append(ips, ip.Unmap().WithZone(""))
		case addresses[i].Type == v1.NodeInternalIP || addresses[i].Type == v1.NodeExternalIP || address == "":
		default:
			names = append(names, address)
		}
	}
	slices.Sort(names)
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(names), slices.Compact(ips)
}

// Unique returns the items without duplicates, in the order of their first occurrence.
func Unique[T comparable](items []T) []T {
	var unique []T
	for _, item := range items {
		if !slices.Contains(unique, item) {
			unique = append(unique, item)
		}
	}
	return unique
}

// Missing returns what the certificate lacks, or "" if it fits (CRT-7).
func (t Template) Missing(leaf *x509.Certificate) string {
	if leaf.Subject.CommonName != t.CommonName {
		return "its common name is " + leaf.Subject.CommonName + ", not " + t.CommonName
	}
	for _, organization := range t.Organizations {
		if !slices.Contains(leaf.Subject.Organization, organization) {
			return "it lacks the organization " + organization
		}
	}
	return t.MissingNames(leaf)
}

// MissingNames returns which name or address the certificate lacks, or "" if it has all. Further ones do not matter.
func (t Template) MissingNames(leaf *x509.Certificate) string {
	for _, name := range t.DNSNames {
		if !slices.ContainsFunc(leaf.DNSNames, func(has string) bool { return strings.EqualFold(has, name) }) {
			return "it lacks the name " + name
		}
	}
	for _, address := range t.IPs {
		found := false
		for _, ip := range leaf.IPAddresses {
			has, ok := netip.AddrFromSlice(ip)
			found = found || ok && has.Unmap() == address.Unmap()
		}
		if !found {
			return "it lacks the address " + address.String()
		}
	}
	return ""
}
