// Package report decides what a Node object says: its conditions, addresses, resources and system, from what was found
// out about the machine and from what the object said before; how that is written so that all that others own survives;
// and which lease keeps the node alive.
package report

import (
	"net/netip"

	v1 "k8s.io/api/core/v1"
)

// MachineInfo is what is known of the machine at one moment.
type MachineInfo struct {
	Hostname string
	// Addresses are the machine's own, the primary one first.
	Addresses []netip.Addr
	// System has the IDs, kernel, operating system, architecture, and the versions of the runtime and the agent.
	System v1.NodeSystemInfo
	CPUs   int64
	// Memory and Storage are in bytes, PIDs in processes and threads.
	Memory, Storage, Inodes, PIDs Amount
}

// Amount is how much there is of something. With a Total of zero it is not known, and nothing is concluded from it.
type Amount struct{ Total, Available int64 }

// below reports whether less than so many percent are available.
func (a Amount) below(percent int64) bool {
	return a.Total > 0 && float64(a.Available)*100 < float64(a.Total)*float64(percent)
}

// HostIPs are the addresses that pods on the host's network have: the primary one, and one of the other family.
func HostIPs(addresses []netip.Addr) []netip.Addr {
	var ips []netip.Addr
	for _, address := range addresses {
		if len(ips) == 0 || (len(ips) == 1 && ips[0].Is4() != address.Is4()) {
			ips = append(ips, address)
		}
	}
	return ips
}
