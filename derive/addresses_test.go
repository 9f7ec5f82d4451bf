package derive_test

import (
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

func addrs(written ...string) []netip.Addr {
	var ips []netip.Addr
	for _, s := range written {
		ip, _ := netip.ParseAddr(s)
		ips = append(ips, ip)
	}
	return ips
}

func podIPs(written ...string) []v1.PodIP {
	var ips []v1.PodIP
	for _, s := range written {
		ips = append(ips, v1.PodIP{IP: s})
	}
	return ips
}

func TestAPodsAddresses(t *testing.T) {
	dual := addrs("192.168.0.1", "fd00::99")
	tests := map[string]struct {
		host     bool
		seen     []netip.Addr
		dead     bool
		node     derive.NodeInfo
		previous []v1.PodIP
		want     []v1.PodIP
	}{
		"PH-43 in the node's order":                     {seen: addrs("fd00::1", "10.0.0.1"), want: podIPs("10.0.0.1", "fd00::1")},
		"PH-43 which may be IPv6 first":                 {seen: addrs("10.0.0.1", "fd00::1"), node: derive.NodeInfo{IPv6First: true}, want: podIPs("fd00::1", "10.0.0.1")},
		"PH-43 one of each family":                      {seen: addrs("10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"), want: podIPs("10.0.0.1", "fd00::1")},
		"PH-43 of one family only":                      {seen: addrs("fd00::1"), want: podIPs("fd00::1")},
		"PH-43 printed canonically":                     {seen: addrs("::ffff:10.0.0.1", "fd00:0:0::1"), want: podIPs("10.0.0.1", "fd00::1")},
		"PH-43 one that is none spoils all":             {seen: addrs("10.0.0.1", "nonsense"), want: nil},
		"PH-44 a dead sandbox keeps what was published": {dead: true, previous: podIPs("10.0.0.9"), want: podIPs("10.0.0.9")},
		"PH-44 a live one without does not":             {previous: podIPs("10.0.0.9"), want: nil},
		"PH-45 of the host":                             {host: true, node: derive.NodeInfo{HostIPs: dual}, want: podIPs("192.168.0.1", "fd00::99")},
		"PH-45 set once":                                {host: true, node: derive.NodeInfo{HostIPs: addrs("192.168.0.2")}, previous: podIPs("192.168.0.1"), want: podIPs("192.168.0.1")},
		"PH-45 the second family comes later":           {host: true, node: derive.NodeInfo{HostIPs: dual}, previous: podIPs("192.168.0.1"), want: podIPs("192.168.0.1", "fd00::99")},
		"PH-45 a second of the same family does not":    {host: true, node: derive.NodeInfo{HostIPs: dual}, previous: podIPs("fd00::1"), want: podIPs("fd00::1")},
		"PH-47 without an API server too":               {host: true, node: derive.NodeInfo{HostIPs: addrs("192.168.0.1")}, want: podIPs("192.168.0.1")},
		"PH-47 nothing is known of the node":            {host: true, want: nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(always, container("a"))
			pod.Spec.HostNetwork = test.host
			world := world()
			world.IPs, world.Sandboxes[0].Ready = test.seen, !test.dead
			got := status(derive.Input{Pod: pod, Observed: world, Node: test.node, Previous: &v1.PodStatus{PodIPs: test.previous}})
			mustEqual(t, got.PodIPs, test.want)
			if len(test.want) == 0 {
				mustEqual(t, got.PodIP, "")
			} else {
				mustEqual(t, got.PodIP, test.want[0].IP)
			}
		})
	}
}

func TestPH45WhatWasPublishedIsNotChangedInPlace(t *testing.T) {
	pod := newPod(always, container("a"))
	pod.Spec.HostNetwork = true
	backing := podIPs("192.168.0.1", "another's")
	previous := &v1.PodStatus{PodIPs: backing[:1]}
	status(derive.Input{Pod: pod, Previous: previous, Node: derive.NodeInfo{HostIPs: addrs("192.168.0.1", "fd00::99")}})
	mustEqual(t, backing, podIPs("192.168.0.1", "another's"))
}

func TestPH46HostIPsAreInternalBeforeExternalAndOneOfEachFamily(t *testing.T) {
	const internal, external = v1.NodeInternalIP, v1.NodeExternalIP
	tests := map[string]struct {
		addresses []v1.NodeAddress
		want      []netip.Addr
	}{
		"internal first":             {[]v1.NodeAddress{{Type: external, Address: "8.8.8.8"}, {Type: internal, Address: "10.0.0.1"}}, addrs("10.0.0.1")},
		"external if nothing else":   {[]v1.NodeAddress{{Type: v1.NodeHostName, Address: "n1"}, {Type: external, Address: "8.8.8.8"}}, addrs("8.8.8.8")},
		"the other family, external": {[]v1.NodeAddress{{Type: internal, Address: "10.0.0.1"}, {Type: internal, Address: "10.0.0.2"}, {Type: external, Address: "fd00::1"}}, addrs("10.0.0.1", "fd00::1")},
		"IPv6 first":                 {[]v1.NodeAddress{{Type: internal, Address: "fd00::1"}, {Type: internal, Address: "10.0.0.1"}}, addrs("fd00::1", "10.0.0.1")},
		"garbage is passed over":     {[]v1.NodeAddress{{Type: internal, Address: "n1"}, {Type: internal, Address: "10.0.0.1"}}, addrs("10.0.0.1")},
		"none":                       {nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := derive.HostIPs(test.addresses)
			if len(got) != len(test.want) {
				t.Fatalf("%v, want %v", got, test.want)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Fatalf("%v, want %v", got, test.want)
				}
			}
		})
	}
}

func TestPH46TheNodesAddressesAreShownAndNotWithdrawn(t *testing.T) {
	pod := newPod(always, container("a"))
	shown := status(derive.Input{Pod: pod, Observed: &observed.Pod{}, Node: derive.NodeInfo{HostIPs: addrs("10.0.0.1", "10.0.0.2", "fd00::1")}})
	mustEqual(t, shown.HostIP, "10.0.0.1")
	mustEqual(t, shown.HostIPs, []v1.HostIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}})
	unknown := status(derive.Input{Pod: pod, Previous: &shown})
	mustEqual(t, unknown.HostIP, "10.0.0.1")
	mustEqual(t, unknown.HostIPs, shown.HostIPs)
}
