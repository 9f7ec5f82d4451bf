package criconfig_test

import (
	"net/netip"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cri/criconfig"
)

func TestGenerator_Hostname(t *testing.T) {
	tests := map[string]struct {
		mutate func(*v1.Pod)
		want   string
	}{
		"pod name":      {func(*v1.Pod) {}, "shop"},
		"long pod name": {func(pod *v1.Pod) { pod.Name = strings.Repeat("x", 62) + "-y" }, strings.Repeat("x", 62)},
		"hostname":      {func(pod *v1.Pod) { pod.Spec.Hostname = "till" }, "till"},
		"override":      {func(pod *v1.Pod) { pod.Spec.HostnameOverride = new("a.b.c") }, "a.b.c"},
		"subdomain":     {func(pod *v1.Pod) { pod.Spec.Subdomain = "mall" }, "shop"},
		"FQDN": {
			func(pod *v1.Pod) { pod.Spec.Subdomain, pod.Spec.SetHostnameAsFQDN = "mall", new(true) }, "shop.mall.prod.svc.c.test",
		},
		"host network": {func(pod *v1.Pod) { pod.Spec.HostNetwork = true }, ""},
	}
	generator := newGenerator(inCluster)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := sandboxConfig(t, generator, newPod(test.mutate)).Hostname; got != test.want {
				t.Errorf("got hostname %q, want %q", got, test.want)
			}
		})
	}
	pod := newPod(func(pod *v1.Pod) {
		pod.Spec.Subdomain, pod.Spec.SetHostnameAsFQDN = strings.Repeat("x", 60), new(true)
	})
	_, err := generator.SandboxConfig(pod, 0, cgroup.DriverCgroupfs)
	if err == nil || !strings.HasPrefix(err.Error(), "spec.setHostnameAsFQDN: ") {
		t.Errorf("FQDN above the limit: got error %v", err)
	}
}

func TestGenerator_HostsFile(t *testing.T) {
	ips := []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}
	alias := func(pod *v1.Pod) {
		pod.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"a", "b"}}}
	}
	hostNetwork := func(pod *v1.Pod) { pod.Spec.HostNetwork = true }
	tests := map[string]struct {
		mutate []func(*v1.Pod)
		needed bool
		want   []string
	}{
		"subdomain and aliases": {
			mutate: []func(*v1.Pod){alias, func(pod *v1.Pod) { pod.Spec.Subdomain = "mall" }}, needed: true,
			want: []string{
				"127.0.0.1\tlocalhost\n", "10.0.0.7\tshop.mall.prod.svc.c.test\tshop\n", "fd00::7\tshop.mall.prod.svc.c.test\tshop\n",
				"192.0.2.1\ta\tb\n",
			},
		},
		"plain":                     {needed: true, want: []string{"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n", "10.0.0.7\tshop\n"}},
		"override":                  {mutate: []func(*v1.Pod){func(pod *v1.Pod) { pod.Spec.HostnameOverride = new("x.y") }}, needed: true, want: []string{"10.0.0.7\tx.y\n"}},
		"host network":              {mutate: []func(*v1.Pod){hostNetwork}, needed: false},
		"host network with aliases": {mutate: []func(*v1.Pod){hostNetwork, alias}, needed: true, want: []string{"# Kubernetes-managed hosts file (host network).\n192.0.2.9\tnode\n", "192.0.2.1\ta\tb\n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(test.mutate...)
			if got := criconfig.NeedsHostsFile(pod, ips); got != test.needed {
				t.Errorf("NeedsHostsFile: got %v, want %v", got, test.needed)
			}
			content := newGenerator(inCluster).HostsFile(pod, ips, "192.0.2.9\tnode\n")
			for _, line := range test.want {
				if !strings.Contains(content, line) {
					t.Errorf("got %s, want a line %q", content, line)
				}
			}
		})
	}
}
