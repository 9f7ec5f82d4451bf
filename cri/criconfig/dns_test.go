package criconfig_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
)

const resolvConf = "# the node's\nnameserver 192.0.2.53\nsearch old.test\nsearch node.test. .\noptions ndots:2 rotate\n"

func inCluster(generator *criconfig.Generator) {
	generator.ClusterDomain, generator.ClusterDNS = "c.test", []netip.Addr{netip.MustParseAddr("10.96.0.10")}
}

func domains(count int) []string {
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("d%d.t", i))
	}
	return names
}

func TestGenerator_DNSConfig(t *testing.T) {
	nodeDNS := &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"node.test"}, Options: []string{"ndots:2", "rotate"}}
	clusterDNS := &runtimeapi.DNSConfig{
		Servers: []string{"10.96.0.10"}, Searches: []string{"prod.svc.c.test", "svc.c.test", "c.test", "node.test"}, Options: []string{"ndots:5"},
	}
	tests := map[string]struct {
		policy       v1.DNSPolicy
		hostNetwork  bool
		config       *v1.PodDNSConfig
		noCluster    bool
		want         *runtimeapi.DNSConfig
		wantWarnings []string
	}{
		"Default":                      {policy: v1.DNSDefault, want: nodeDNS},
		"ClusterFirst":                 {policy: v1.DNSClusterFirst, want: clusterDNS},
		"ClusterFirst in host network": {policy: v1.DNSClusterFirst, hostNetwork: true, want: nodeDNS},
		"ClusterFirstWithHostNet":      {policy: v1.DNSClusterFirstWithHostNet, hostNetwork: true, want: clusterDNS},
		"None": {
			policy: v1.DNSNone, config: &v1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}},
			want: &runtimeapi.DNSConfig{Servers: []string{"1.1.1.1"}},
		},
		"ClusterFirst without cluster DNS": {
			policy: v1.DNSClusterFirst, noCluster: true, want: nodeDNS,
			wantWarnings: []string{`MissingClusterDNS: pod: "shop_prod(uid-1)". no ClusterDNS is configured, so "ClusterFirst" is not possible. Falling back to "Default" policy.`},
		},
		"dnsConfig": {
			policy: v1.DNSDefault,
			config: &v1.PodDNSConfig{
				Nameservers: []string{"192.0.2.53", "1.1.1.1"}, Searches: []string{"own.test", "node.test"},
				Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: new("7")}, {Name: "edns0"}},
			},
			want: &runtimeapi.DNSConfig{
				Servers: []string{"192.0.2.53", "1.1.1.1"}, Searches: []string{"node.test", "own.test"}, Options: []string{"ndots:7", "rotate", "edns0"},
			},
		},
		"too many servers and domains": {
			policy: v1.DNSNone, config: &v1.PodDNSConfig{Nameservers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"}, Searches: domains(33)},
			want: &runtimeapi.DNSConfig{Servers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3"}, Searches: domains(32)},
			wantWarnings: []string{
				"DNSConfigForming: Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3",
				"DNSConfigForming: Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(domains(32), " "),
			},
		},
		"too long a domain": {
			policy: v1.DNSNone, config: &v1.PodDNSConfig{Searches: []string{strings.Repeat("x", 254), "short"}},
			want:         &runtimeapi.DNSConfig{Searches: []string{"short"}},
			wantWarnings: []string{"DNSConfigForming: Search Line limits were exceeded, some search paths have been omitted, the applied search line is: short"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			generator := newGenerator(inCluster)
			if test.noCluster {
				generator = newGenerator()
			}
			dns, warnings := generator.DNSConfig(newPod(func(pod *v1.Pod) {
				pod.Spec.DNSPolicy, pod.Spec.HostNetwork, pod.Spec.DNSConfig = test.policy, test.hostNetwork, test.config
			}), criconfig.ParseResolvConf(resolvConf))
			var got []string
			for _, warning := range warnings {
				got = append(got, warning.Reason+": "+warning.Message)
			}
			for _, pair := range [][2][]string{
				{test.want.Servers, dns.Servers}, {test.want.Searches, dns.Searches}, {test.want.Options, dns.Options}, {test.wantWarnings, got},
			} {
				if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestGenerator_DNSConfigSearchLineLength(t *testing.T) {
	domain := strings.Repeat("x", 202) + "." // 10 of these, each with a digit, have 2040 characters, and 2049 with spaces
	var searches []string
	for i := range 10 {
		searches = append(searches, fmt.Sprintf("%s%d", domain, i))
	}
	dns, _ := newGenerator().DNSConfig(newPod(func(pod *v1.Pod) {
		pod.Spec.DNSPolicy, pod.Spec.DNSConfig = v1.DNSNone, &v1.PodDNSConfig{Searches: searches}
	}), &runtimeapi.DNSConfig{})
	if line := strings.Join(dns.Searches, " "); len(dns.Searches) != 9 || len(line) > 2048 {
		t.Errorf("got %d domains in %d characters, want 9 in at most 2048", len(dns.Searches), len(line))
	}
}
