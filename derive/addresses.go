package derive

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// HostIPs selects the node addresses that pods publish: the first internal one, else the first external one, and the first
// of the other family (PH-46).
func HostIPs(addresses []v1.NodeAddress) []netip.Addr {
	var candidates []netip.Addr
	for _, addressType := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, address := range addresses {
			if ip, err := netip.ParseAddr(address.Address); err == nil && address.Type == addressType {
				candidates = append(candidates, canonicalIP(ip))
			}
		}
	}
	if len(candidates) == 0 {
		return nil
	}
	return onePerFamily(candidates, candidates[0].Is6())
}

// setAddresses sets the addresses of the pod and of the node.
func (d *derivation) setAddresses(status *v1.PodStatus) {
	d.setHostIPs(status)
	status.PodIPs = d.podIPs(status.HostIPs)
	if len(status.PodIPs) > 0 {
		status.PodIP = status.PodIPs[0].IP
	}
}

// setHostIPs keeps the published addresses while the node's are unknown: one failed lookup must not withdraw them.
func (d *derivation) setHostIPs(status *v1.PodStatus) {
	if len(d.Node.HostIPs) == 0 {
		status.HostIP, status.HostIPs = d.previous.HostIP, d.previous.HostIPs
		return
	}
	primary := canonicalIP(d.Node.HostIPs[0])
	for _, ip := range onePerFamily(d.Node.HostIPs, primary.Is6()) {
		status.HostIPs = append(status.HostIPs, v1.HostIP{IP: ip.String()})
	}
	status.HostIP = status.HostIPs[0].IP
}

func (d *derivation) podIPs(hostIPs []v1.HostIP) []v1.PodIP {
	var podIPs []v1.PodIP
	for _, ip := range onePerFamily(d.runtimePod.IPs, d.Node.IPv6First) {
		podIPs = append(podIPs, v1.PodIP{IP: ip.String()})
	}
	if len(podIPs) == 0 && (d.runtimePod.ReadySandboxes() == 0 || d.Pod.Spec.HostNetwork) {
		// PH-44, PH-45: a terminated pod keeps its addresses, also across a restart of the agent. The published addresses
		// of a host network pod never change.
		podIPs = d.previous.PodIPs
	}
	if !d.Pod.Spec.HostNetwork {
		return podIPs
	}
	return addHostIPs(podIPs, hostIPs)
}

// addHostIPs completes the addresses of a host network pod. If the node became dual-stack, it adds the other family.
func addHostIPs(podIPs []v1.PodIP, hostIPs []v1.HostIP) []v1.PodIP {
	if len(podIPs) == 0 && len(hostIPs) > 0 {
		podIPs = []v1.PodIP{{IP: hostIPs[0].IP}}
	}
	if len(podIPs) == 1 && len(hostIPs) == 2 && isIPv6(podIPs[0].IP) != isIPv6(hostIPs[1].IP) {
		podIPs = append(slices.Clip(podIPs), v1.PodIP{IP: hostIPs[1].IP})
	}
	return podIPs
}

// onePerFamily returns the first address of the preferred family, then the first of the other one. It returns nil if any
// address is invalid (PH-43).
func onePerFamily(ips []netip.Addr, ipv6First bool) []netip.Addr {
	var selected []netip.Addr
	for _, ipv6 := range []bool{ipv6First, !ipv6First} {
		for _, ip := range ips {
			if !ip.IsValid() {
				return nil
			}
			if canonicalIP(ip).Is6() == ipv6 {
				selected = append(selected, canonicalIP(ip))
				break
			}
		}
	}
	return selected
}

// canonicalIP unmaps IPv4-mapped addresses and removes the zone.
func canonicalIP(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

func isIPv6(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Unmap().Is6()
}
