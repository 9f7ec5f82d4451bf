package machine

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Interface is a network interface that is up.
type Interface struct {
	Name      string
	Addresses []netip.Addr
}

func (m *Machine) addresses() ([]netip.Addr, error) {
	if len(m.config.Addresses) > 0 {
		return m.config.Addresses, nil
	}
	interfaces, err := m.config.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	// The files do not exist on a machine without IPv6, or without a network.
	table4, _ := os.ReadFile(m.path("proc/net/route"))
	table6, _ := os.ReadFile(m.path("proc/net/ipv6_route"))
	return selectAddresses(interfaces, defaultRoute(table4), defaultRoute6(table6)), nil
}

// selectAddresses returns the addresses by which others reach the machine, at most one of each family, IPv4 first. It prefers
// the interface of the family's default route, and falls back to any interface. If only the other family has a default route,
// only its interface is used: others may be pod bridges. Only global unicast addresses count.
func selectAddresses(interfaces []Interface, route4, route6 string) []netip.Addr {
	var selected []netip.Addr
	for _, family := range []struct {
		matches    func(netip.Addr) bool
		own, other string // interfaces of the default routes
	}{{netip.Addr.Is4, route4, route6}, {netip.Addr.Is6, route6, route4}} {
		address := findAddress(interfaces, cmp.Or(family.own, family.other), family.matches)
		if !address.IsValid() && (family.own != "" || family.other == "") {
			address = findAddress(interfaces, "", family.matches)
		}
		if address.IsValid() {
			selected = append(selected, address)
		}
	}
	return selected
}

// findAddress returns the first matching address of the named interface, or of any if the name is empty.
func findAddress(interfaces []Interface, name string, matches func(netip.Addr) bool) netip.Addr {
	for _, candidate := range interfaces {
		for _, address := range candidate.Addresses {
			address = address.Unmap().WithZone("")
			if (name == "" || candidate.Name == name) && matches(address) && address.IsGlobalUnicast() {
				return address
			}
		}
	}
	return netip.Addr{}
}

// Flags of a route in the kernel.
const (
	routeUp     = 0x0001
	routeReject = 0x0200
)

// route is the interface with the lowest metric so far.
type route struct {
	device string
	metric uint64
}

// add considers another default route. Malformed and unusable routes are ignored.
func (r *route) add(device, hexFlags, metric string, metricBase int) {
	flags, err := strconv.ParseUint(hexFlags, 16, 32)
	cost, err2 := strconv.ParseUint(metric, metricBase, 32)
	if err == nil && err2 == nil && flags&routeUp != 0 && flags&routeReject == 0 && cost < r.metric {
		r.device, r.metric = device, cost
	}
}

// defaultRoute parses /proc/net/route. It returns the interface of the IPv4 default route with the lowest metric, or "".
func defaultRoute(table []byte) string {
	const columns, device, destination, flags, metric, mask = 8, 0, 1, 3, 6, 7
	best := route{metric: math.MaxUint64}
	for line := range bytes.Lines(table) {
		fields := strings.Fields(string(line))
		if len(fields) >= columns && fields[destination] == "00000000" && fields[mask] == "00000000" {
			best.add(fields[device], fields[flags], fields[metric], 10)
		}
	}
	return best.device
}

// defaultRoute6 parses /proc/net/ipv6_route. It returns the interface of the IPv6 default route with the lowest metric, or "".
func defaultRoute6(table []byte) string {
	const columns, destination, length, metric, flags, device = 10, 0, 1, 5, 8, 9
	best := route{metric: math.MaxUint64}
	for line := range bytes.Lines(table) {
		fields := strings.Fields(string(line))
		if len(fields) >= columns && strings.Trim(fields[destination], "0") == "" && fields[length] == "00" {
			best.add(fields[device], fields[flags], fields[metric], 16)
		}
	}
	return best.device
}

func listInterfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []Interface
	for _, candidate := range all {
		if candidate.Flags&net.FlagUp == 0 {
			continue
		}
		addresses, err := candidate.Addrs()
		if err != nil {
			continue // removed meanwhile
		}
		list = append(list, Interface{Name: candidate.Name, Addresses: parseAddresses(addresses)})
	}
	return list, nil
}

func parseAddresses(addresses []net.Addr) []netip.Addr {
	var parsed []netip.Addr
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil {
			parsed = append(parsed, prefix.Addr())
		}
	}
	return parsed
}
