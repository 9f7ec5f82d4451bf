package assembly

import (
	"net"
	"net/netip"
)

// firstAddress is the machine's first address that others could reach, IPv4 before IPv6; loopback if there is none.
func firstAddress() netip.Addr {
	best := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return best
	}
	for _, address := range addresses {
		network, isNetwork := address.(*net.IPNet)
		if !isNetwork {
			continue
		}
		found, ok := netip.AddrFromSlice(network.IP)
		found = found.Unmap()
		if !ok || !found.IsGlobalUnicast() {
			continue
		}
		if found.Is4() {
			return found
		}
		if best.IsLoopback() {
			best = found
		}
	}
	return best
}
