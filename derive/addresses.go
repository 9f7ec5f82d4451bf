package derive

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// HostIPs chooses the addresses under which a node's pods show it: the first internal one, else the first external one,
// and the first of the other family (PH-46).
func HostIPs(addresses []v1.NodeAddress) []netip.Addr {
	var all []netip.Addr
	for _, kind := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, address := range addresses {
			if ip, err := netip.ParseAddr(address.Address); err == nil && address.Type == kind {
				all = append(all, plain(ip))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return onePerFamily(all, all[0].Is6())
}

// setAddresses fills in the pod's and the node's addresses.
func (d *derivation) setAddresses(status *v1.PodStatus) {
	d.setHostIPs(status)
	status.PodIPs = d.podIPs(status.HostIPs)
	if len(status.PodIPs) > 0 {
		status.PodIP = status.PodIPs[0].IP
	}
}

// setHostIPs keeps what was published while the node's addresses are not known: an address is not withdrawn because one
// look-up failed.
func (d *derivation) setHostIPs(status *v1.PodStatus) {
	if len(d.Node.HostIPs) == 0 {
		status.HostIP, status.HostIPs = d.previous.HostIP, d.previous.HostIPs
		return
	}
	first := plain(d.Node.HostIPs[0])
	for _, ip := range onePerFamily(d.Node.HostIPs, first.Is6()) {
		status.HostIPs = append(status.HostIPs, v1.HostIP{IP: ip.String()})
	}
	status.HostIP = status.HostIPs[0].IP
}

func (d *derivation) podIPs(hostIPs []v1.HostIP) []v1.PodIP {
	var ips []v1.PodIP
	for _, ip := range onePerFamily(d.seen.IPs, d.Node.IPv6First) {
		ips = append(ips, v1.PodIP{IP: ip.String()})
	}
	if len(ips) == 0 && (d.seen.ReadySandboxes() == 0 || d.Pod.Spec.HostNetwork) {
		// PH-44, PH-45: a pod that ended keeps the addresses that it had, also across a restart of the agent; those of a
		// pod on the host's network never change once they were published.
		ips = d.previous.PodIPs
	}
	if !d.Pod.Spec.HostNetwork {
		return ips
	}
	return withHostIPs(ips, hostIPs)
}

// withHostIPs completes the addresses of a pod on the host's network. A node that became dual-stack adds the other
// family.
func withHostIPs(ips []v1.PodIP, hostIPs []v1.HostIP) []v1.PodIP {
	if len(ips) == 0 && len(hostIPs) > 0 {
		ips = []v1.PodIP{{IP: hostIPs[0].IP}}
	}
	if len(ips) == 1 && len(hostIPs) == 2 && isIPv6(ips[0].IP) != isIPv6(hostIPs[1].IP) {
		ips = append(slices.Clip(ips), v1.PodIP{IP: hostIPs[1].IP})
	}
	return ips
}

// onePerFamily is the first address of the preferred family, then the first of the other. One that is no address makes
// all of them worthless (PH-43).
func onePerFamily(ips []netip.Addr, ipv6First bool) []netip.Addr {
	var chosen []netip.Addr
	for _, ipv6 := range []bool{ipv6First, !ipv6First} {
		for _, ip := range ips {
			if !ip.IsValid() {
				return nil
			}
			if plain(ip).Is6() == ipv6 {
				chosen = append(chosen, plain(ip))
				break
			}
		}
	}
	return chosen
}

// plain is the address in its one canonical form: no IPv4 in IPv6's clothes, no zone.
func plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

func isIPv6(written string) bool {
	ip, err := netip.ParseAddr(written)
	return err == nil && ip.Unmap().Is6()
}
