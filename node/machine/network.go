package machine

import (
	"bytes"
	"cmp"
	"fmt"
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
	list, err := m.config.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	// A machine without IPv6, or without a network at all, has no such file.
	v4, _ := os.ReadFile(m.path("proc/net/route"))
	v6, _ := os.ReadFile(m.path("proc/net/ipv6_route"))
	return Addresses(list, DefaultRoute(v4), DefaultRoute6(v6)), nil
}

// Addresses are those by which others reach the machine, at most one of each family, IPv4 first: that of the interface
// which the family's default route leads through, or else of any interface. Where only the other family has such a route,
// its interface alone counts: the rest may be bridges of pods. So do only addresses that are valid beyond one link.
func Addresses(interfaces []Interface, route4, route6 string) []netip.Addr {
	var found []netip.Addr
	for _, f := range []struct {
		family     func(netip.Addr) bool
		own, other string
	}{{netip.Addr.Is4, route4, route6}, {netip.Addr.Is6, route6, route4}} {
		address := addressOn(interfaces, cmp.Or(f.own, f.other), f.family)
		if !address.IsValid() && (f.own != "" || f.other == "") {
			address = addressOn(interfaces, "", f.family)
		}
		if address.IsValid() {
			found = append(found, address)
		}
	}
	return found
}

// addressOn is the first of that family on the named interface, or on any.
func addressOn(interfaces []Interface, name string, family func(netip.Addr) bool) netip.Addr {
	for _, i := range interfaces {
		for _, address := range i.Addresses {
			address = address.Unmap().WithZone("")
			if (name == "" || i.Name == name) && family(address) && address.IsGlobalUnicast() {
				return address
			}
		}
	}
	return netip.Addr{}
}

// DefaultRoute reads /proc/net/route: the interface of the IPv4 default route with the lowest metric, or nothing.
func DefaultRoute(table []byte) string {
	const columns, destination, flags, metric, mask = 8, 1, 3, 6, 7
	best, name := uint64(1<<63), ""
	for line := range bytes.Lines(table) {
		fields := strings.Fields(string(line))
		if len(fields) < columns || fields[destination] != "00000000" || fields[mask] != "00000000" {
			continue
		}
		up, err := strconv.ParseUint(fields[flags], 16, 32)
		cost, err2 := strconv.ParseUint(fields[metric], 10, 32)
		if err == nil && err2 == nil && up&routeUp != 0 && up&routeReject == 0 && cost < best {
			best, name = cost, fields[0]
		}
	}
	return name
}

// Flags of a route, as the kernel numbers them.
const (
	routeUp     = 0x0001
	routeReject = 0x0200
)

// DefaultRoute6 reads /proc/net/ipv6_route: the interface of the IPv6 default route with the lowest metric, or nothing.
func DefaultRoute6(table []byte) string {
	const columns, destination, length, metric, flags, device = 10, 0, 1, 5, 8, 9
	best, name := uint64(1<<63), ""
	for line := range bytes.Lines(table) {
		fields := strings.Fields(string(line))
		if len(fields) < columns || strings.Trim(fields[destination], "0") != "" || fields[length] != "00" {
			continue
		}
		up, err := strconv.ParseUint(fields[flags], 16, 32)
		cost, err2 := strconv.ParseUint(fields[metric], 16, 32)
		if err == nil && err2 == nil && up&routeUp != 0 && up&routeReject == 0 && cost < best {
			best, name = cost, fields[device]
		}
	}
	return name
}

func interfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []Interface
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			continue // it disappeared meanwhile
		}
		list = append(list, Interface{Name: i.Name, Addresses: parse(addresses)})
	}
	return list, nil
}

func parse(addresses []net.Addr) []netip.Addr {
	var parsed []netip.Addr
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil {
			parsed = append(parsed, prefix.Addr())
		}
	}
	return parsed
}
