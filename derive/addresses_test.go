package derive_test

import (
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

func parseIPs(written ...string) []netip.Addr {
	var ips []netip.Addr
	for _, s := range written {
		ip, _ := netip.ParseAddr(s)
		ips = append(ips, ip)
	}
	return ips
}

func newPodIPs(written ...string) []v1.PodIP {
	var ips []v1.PodIP
	for _, s := range written {
		ips = append(ips, v1.PodIP{IP: s})
	}
	return ips
}

func TestStatus_PodIPs(t *testing.T) {
	dual := parseIPs("192.168.0.1", "fd00::99")
	tests := map[string]struct {
		host     bool
		seen     []netip.Addr
		dead     bool
		node     derive.NodeInfo
		previous []v1.PodIP
		want     []v1.PodIP
	}{
		"PH-43 IPv4 first":                        {seen: parseIPs("fd00::1", "10.0.0.1"), want: newPodIPs("10.0.0.1", "fd00::1")},
		"PH-43 IPv6 first":                        {seen: parseIPs("10.0.0.1", "fd00::1"), node: derive.NodeInfo{IPv6First: true}, want: newPodIPs("fd00::1", "10.0.0.1")},
		"PH-43 one per family":                    {seen: parseIPs("10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"), want: newPodIPs("10.0.0.1", "fd00::1")},
		"PH-43 single family":                     {seen: parseIPs("fd00::1"), want: newPodIPs("fd00::1")},
		"PH-43 canonical form":                    {seen: parseIPs("::ffff:10.0.0.1", "fd00:0:0::1"), want: newPodIPs("10.0.0.1", "fd00::1")},
		"PH-43 invalid address":                   {seen: parseIPs("10.0.0.1", "nonsense"), want: nil},
		"PH-44 dead sandbox keeps addresses":      {dead: true, previous: newPodIPs("10.0.0.9"), want: newPodIPs("10.0.0.9")},
		"PH-44 ready sandbox without addresses":   {previous: newPodIPs("10.0.0.9"), want: nil},
		"PH-45 host network":                      {host: true, node: derive.NodeInfo{HostIPs: dual}, want: newPodIPs("192.168.0.1", "fd00::99")},
		"PH-45 published address is kept":         {host: true, node: derive.NodeInfo{HostIPs: parseIPs("192.168.0.2")}, previous: newPodIPs("192.168.0.1"), want: newPodIPs("192.168.0.1")},
		"PH-45 node became dual-stack":            {host: true, node: derive.NodeInfo{HostIPs: dual}, previous: newPodIPs("192.168.0.1"), want: newPodIPs("192.168.0.1", "fd00::99")},
		"PH-45 second address of the same family": {host: true, node: derive.NodeInfo{HostIPs: dual}, previous: newPodIPs("fd00::1"), want: newPodIPs("fd00::1")},
		"PH-47 no API server":                     {host: true, node: derive.NodeInfo{HostIPs: parseIPs("192.168.0.1")}, want: newPodIPs("192.168.0.1")},
		"PH-47 node addresses unknown":            {host: true, want: nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(always, newContainer("a"))
			pod.Spec.HostNetwork = test.host
			runtimePod := newRuntimePod()
			runtimePod.IPs, runtimePod.Sandboxes[0].Ready = test.seen, !test.dead
			got := computeStatus(derive.Input{Pod: pod, Observed: runtimePod, Node: test.node, Previous: &v1.PodStatus{PodIPs: test.previous}})
			requireEqual(t, got.PodIPs, test.want)
			if len(test.want) == 0 {
				requireEqual(t, got.PodIP, "")
			} else {
				requireEqual(t, got.PodIP, test.want[0].IP)
			}
		})
	}
}

func TestPH45_PublishedAddressesUnchanged(t *testing.T) {
	pod := newPod(always, newContainer("a"))
	pod.Spec.HostNetwork = true
	backing := newPodIPs("192.168.0.1", "another's")
	previous := &v1.PodStatus{PodIPs: backing[:1]}
	computeStatus(derive.Input{Pod: pod, Previous: previous, Node: derive.NodeInfo{HostIPs: parseIPs("192.168.0.1", "fd00::99")}})
	requireEqual(t, backing, newPodIPs("192.168.0.1", "another's"))
}

func TestPH46_HostIPs(t *testing.T) {
	const internal, external = v1.NodeInternalIP, v1.NodeExternalIP
	tests := map[string]struct {
		addresses []v1.NodeAddress
		want      []netip.Addr
	}{
		"internal first":               {[]v1.NodeAddress{{Type: external, Address: "8.8.8.8"}, {Type: internal, Address: "10.0.0.1"}}, parseIPs("10.0.0.1")},
		"external only":                {[]v1.NodeAddress{{Type: v1.NodeHostName, Address: "n1"}, {Type: external, Address: "8.8.8.8"}}, parseIPs("8.8.8.8")},
		"external of the other family": {[]v1.NodeAddress{{Type: internal, Address: "10.0.0.1"}, {Type: internal, Address: "10.0.0.2"}, {Type: external, Address: "fd00::1"}}, parseIPs("10.0.0.1", "fd00::1")},
		"IPv6 first":                   {[]v1.NodeAddress{{Type: internal, Address: "fd00::1"}, {Type: internal, Address: "10.0.0.1"}}, parseIPs("fd00::1", "10.0.0.1")},
		"host name skipped":            {[]v1.NodeAddress{{Type: internal, Address: "n1"}, {Type: internal, Address: "10.0.0.1"}}, parseIPs("10.0.0.1")},
		"no addresses":                 {nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := derive.HostIPs(test.addresses)
			if len(got) != len(test.want) {
				t.Fatalf("got %v, want %v", got, test.want)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Fatalf("got %v, want %v", got, test.want)
				}
			}
		})
	}
}

func TestPH46_HostIPsKept(t *testing.T) {
	pod := newPod(always, newContainer("a"))
	shown := computeStatus(derive.Input{Pod: pod, Observed: &observed.Pod{}, Node: derive.NodeInfo{HostIPs: parseIPs("10.0.0.1", "10.0.0.2", "fd00::1")}})
	requireEqual(t, shown.HostIP, "10.0.0.1")
	requireEqual(t, shown.HostIPs, []v1.HostIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}})
	unknown := computeStatus(derive.Input{Pod: pod, Previous: &shown})
	requireEqual(t, unknown.HostIP, "10.0.0.1")
	requireEqual(t, unknown.HostIPs, shown.HostIPs)
}
