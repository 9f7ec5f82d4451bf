// Package nodeaddress rejects connections that probes and hooks of a pod must not make on its behalf: to the node itself
// and to the metadata services of clouds, which give out the node's credentials.
package nodeaddress

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// metadataServices are the addresses of metadata services that are not link-local.
var metadataServices = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"),    // Alibaba Cloud
	netip.MustParseAddr("168.63.129.16"),      // Azure's wire server
	netip.MustParseAddr("192.0.0.192"),        // Oracle Cloud
	netip.MustParseAddr("fd00:c1::a9fe:a9fe"), // Oracle Cloud
	netip.MustParseAddr("fd00:ec2::254"),      // AWS
	netip.MustParseAddr("fd00:ec2::23"),       // AWS, credentials of pods
	netip.MustParseAddr("fd20:ce::254"),       // Google Cloud
	netip.MustParseAddr("fd00:42::42"),        // Scaleway
}

// nat64 is the well-known prefix of IPv4 addresses in IPv6 (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Error reports an address that a pod with its own network must not reach through its probes and hooks.
type Error struct{ Address netip.Addr }

func (e *Error) Error() string {
	return fmt.Sprintf("address %s is not allowed: probes and hooks of a pod outside the host network must not reach the node's own, "+
		"loopback, link-local and metadata addresses; leave host empty, set hostNetwork, or allow node addresses in the agent's "+
		"configuration", e.Address)
}

// Control is the Control function of a net.Dialer. It runs after name resolution, so that no name circumvents it. It returns
// an [Error] for addresses that are not allowed.
func Control(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	interfaceAddrs, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list addresses of the node: %w", err)
	}
	return Check(target.Addr(), parseInterfaceAddrs(interfaceAddrs))
}

// Check returns an [Error] if a pod must not reach the address on a node with these addresses.
func Check(address netip.Addr, nodeAddresses []netip.Addr) error {
	candidates := []netip.Addr{address.Unmap().WithZone("")}
	if bytes := address.As16(); nat64.Contains(address) {
		candidates = append(candidates, netip.AddrFrom4([4]byte(bytes[12:])))
	}
	for _, ip := range candidates {
		if ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() ||
			slices.Contains(metadataServices, ip) || slices.Contains(nodeAddresses, ip) {
			return &Error{address.Unmap()}
		}
	}
	return nil
}

func parseInterfaceAddrs(interfaceAddrs []net.Addr) []netip.Addr {
	var addresses []netip.Addr
	for _, interfaceAddr := range interfaceAddrs {
		if network, ok := interfaceAddr.(*net.IPNet); ok {
			if address, ok := netip.AddrFromSlice(network.IP); ok {
				addresses = append(addresses, address.Unmap())
			}
		}
	}
	return addresses
}
