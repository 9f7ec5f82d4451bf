package cri_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/plan"
)

// boxed is the sandbox as it was asked for.
func boxed(t *testing.T, pod *v1.Pod, change ...func(*cri.Config)) (config *runtimeapi.PodSandboxConfig, events []string) {
	t.Helper()
	inWorld(t, func(w *world) {
		w.write(w.root+"/resolv.conf", "# the node's\nnameserver 192.0.2.53\nsearch old.test\nsearch node.test. .\noptions ndots:2 rotate\n")
		w.sandbox(pod)
		config, events = requests[*runtimeapi.RunPodSandboxRequest](w.fake)[0].Config, w.events()
	}, change...)
	return config, events
}

func TestASandboxIsNamedAfterItsPod(t *testing.T) {
	pod := newPod(func(pod *v1.Pod) {
		pod.Labels = map[string]string{"app": "shop", "io.kubernetes.pod.uid": "forged"}
		pod.Annotations = map[string]string{"note": "x"}
		pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 53, HostPort: 5353, Protocol: v1.ProtocolUDP, HostIP: "192.0.2.1"}}
		pod.Spec.InitContainers = []v1.Container{
			{Name: "once", Ports: []v1.ContainerPort{{ContainerPort: 1, HostPort: 1}}},
			{Name: "proxy", RestartPolicy: new(v1.ContainerRestartPolicyAlways), Ports: []v1.ContainerPort{{ContainerPort: 2, HostPort: 2}}},
		}
	})
	config, _ := boxed(t, pod)
	if m := config.Metadata; m.Name != "shop" || m.Namespace != "prod" || m.Uid != "uid-1" || m.Attempt != 0 {
		t.Errorf("metadata %v", m)
	}
	want := map[string]string{
		"app": "shop", "io.kubernetes.pod.name": "shop", "io.kubernetes.pod.namespace": "prod", "io.kubernetes.pod.uid": "uid-1",
	}
	if diff := cmp.Diff(want, config.Labels); diff != "" || config.Annotations["note"] != "x" {
		t.Errorf("%s, annotations %v", diff, config.Annotations)
	}
	if !strings.HasSuffix(config.LogDirectory, "/logs/prod_shop_uid-1") || config.Hostname != "shop" {
		t.Errorf("logs in %s, hostname %s", config.LogDirectory, config.Hostname)
	}
	var ports []string
	for _, p := range config.PortMappings {
		ports = append(ports, fmt.Sprintf("%s:%d->%d/%v", p.HostIp, p.HostPort, p.ContainerPort, p.Protocol))
	}
	if diff := cmp.Diff([]string{":2->2/TCP", "192.0.2.1:5353->53/UDP"}, ports); diff != "" {
		t.Error(diff)
	}
}

func TestHostnames(t *testing.T) {
	cases := map[string]struct {
		change func(*v1.Pod)
		want   string
	}{
		"its name":        {func(*v1.Pod) {}, "shop"},
		"a long name":     {func(pod *v1.Pod) { pod.Name = strings.Repeat("x", 62) + "-y" }, strings.Repeat("x", 62)},
		"what it says":    {func(pod *v1.Pod) { pod.Spec.Hostname = "till" }, "till"},
		"an override":     {func(pod *v1.Pod) { pod.Spec.HostnameOverride = new("a.b.c") }, "a.b.c"},
		"a subdomain":     {func(pod *v1.Pod) { pod.Spec.Subdomain = "mall" }, "shop"},
		"the full name":   {func(pod *v1.Pod) { pod.Spec.Subdomain, pod.Spec.SetHostnameAsFQDN = "mall", new(true) }, "shop.mall.prod.svc.c.test"},
		"the node's name": {func(pod *v1.Pod) { pod.Spec.HostNetwork = true }, ""},
	}
	domain := func(config *cri.Config) { config.ClusterDomain = "c.test" }
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if config, _ := boxed(t, newPod(test.change), domain); config.Hostname != test.want {
				t.Errorf("hostname %q, want %q", config.Hostname, test.want)
			}
		})
	}
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Subdomain, pod.Spec.SetHostnameAsFQDN = strings.Repeat("x", 60), new(true)
		})
		if _, err := w.StartSandbox(w.Context(), pod, 0); err == nil || !strings.Contains(err.Error(), "spec.setHostnameAsFQDN") {
			w.Errorf("a name that is too long: %v", err)
		}
	}, domain)
}

func TestDNS(t *testing.T) {
	cluster := func(config *cri.Config) {
		config.ClusterDomain, config.ClusterDNS = "c.test", []netip.Addr{netip.MustParseAddr("10.96.0.10")}
	}
	domains := func(n int, each string) []string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("d%d.%s", i, each))
		}
		return all
	}
	node := &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"node.test"}, Options: []string{"ndots:2", "rotate"}}
	inCluster := &runtimeapi.DNSConfig{
		Servers: []string{"10.96.0.10"}, Searches: []string{"prod.svc.c.test", "svc.c.test", "c.test", "node.test"}, Options: []string{"ndots:5"},
	}
	cases := map[string]struct {
		policy      v1.DNSPolicy
		hostNetwork bool
		own         *v1.PodDNSConfig
		without     bool // a cluster
		want        *runtimeapi.DNSConfig
		events      []string
	}{
		"Default":                  {policy: v1.DNSDefault, want: node},
		"ClusterFirst":             {policy: v1.DNSClusterFirst, want: inCluster},
		"ClusterFirst on the node": {policy: v1.DNSClusterFirst, hostNetwork: true, want: node},
		"ClusterFirstWithHostNet":  {policy: v1.DNSClusterFirstWithHostNet, hostNetwork: true, want: inCluster},
		"None":                     {policy: v1.DNSNone, own: &v1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}}, want: &runtimeapi.DNSConfig{Servers: []string{"1.1.1.1"}}},
		"ClusterFirst without a cluster's": {
			policy: v1.DNSClusterFirst, without: true, want: node,
			events: []string{`Warning MissingClusterDNS : pod: "shop_prod(uid-1)". no ClusterDNS is configured, so "ClusterFirst" is not possible. Falling back to "Default" policy.`},
		},
		"its own besides": {
			policy: v1.DNSDefault,
			own: &v1.PodDNSConfig{
				Nameservers: []string{"192.0.2.53", "1.1.1.1"}, Searches: []string{"own.test", "node.test"},
				Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: new("7")}, {Name: "edns0"}},
			},
			want: &runtimeapi.DNSConfig{
				Servers: []string{"192.0.2.53", "1.1.1.1"}, Searches: []string{"node.test", "own.test"}, Options: []string{"ndots:7", "rotate", "edns0"},
			},
		},
		"too many": {
			policy: v1.DNSNone, own: &v1.PodDNSConfig{Nameservers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"}, Searches: domains(33, "t")},
			want: &runtimeapi.DNSConfig{Servers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3"}, Searches: domains(32, "t")},
			events: []string{
				"Warning DNSConfigForming : Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3",
				"Warning DNSConfigForming : Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(domains(32, "t"), " "),
			},
		},
		"too long a domain": {
			policy: v1.DNSNone, own: &v1.PodDNSConfig{Searches: []string{strings.Repeat("x", 254), "short"}},
			want:   &runtimeapi.DNSConfig{Searches: []string{"short"}},
			events: []string{"Warning DNSConfigForming : Search Line limits were exceeded, some search paths have been omitted, the applied search line is: short"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var change []func(*cri.Config)
			if !test.without {
				change = append(change, cluster)
			}
			got, events := boxed(t, newPod(func(pod *v1.Pod) {
				pod.Spec.DNSPolicy, pod.Spec.HostNetwork, pod.Spec.DNSConfig = test.policy, test.hostNetwork, test.own
			}), change...)
			for _, pair := range [][2][]string{
				{test.want.Servers, got.DnsConfig.Servers}, {test.want.Searches, got.DnsConfig.Searches},
				{test.want.Options, got.DnsConfig.Options}, {test.events, events},
			} {
				if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestTheSearchLineHasRoomFor2048Characters(t *testing.T) {
	whole := strings.Repeat("x", 202) + "." // 10 of these, each with a digit, are 2040 characters, and 2049 with spaces
	var all []string
	for i := range 10 {
		all = append(all, fmt.Sprintf("%s%d", whole, i))
	}
	got, _ := boxed(t, newPod(func(pod *v1.Pod) {
		pod.Spec.DNSPolicy, pod.Spec.DNSConfig = v1.DNSNone, &v1.PodDNSConfig{Searches: all}
	}))
	if line := strings.Join(got.DnsConfig.Searches, " "); len(got.DnsConfig.Searches) != 9 || len(line) > 2048 {
		t.Errorf("%d domains in %d characters", len(got.DnsConfig.Searches), len(line))
	}
}

func TestNamespaces(t *testing.T) {
	const node, pod, own = runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_CONTAINER
	cases := map[string]struct {
		change            func(*v1.PodSpec)
		network, ipc, pid runtimeapi.NamespaceMode
	}{
		"none":                  {func(*v1.PodSpec) {}, pod, pod, own},
		"hostNetwork":           {func(s *v1.PodSpec) { s.HostNetwork = true }, node, pod, own},
		"hostIPC":               {func(s *v1.PodSpec) { s.HostIPC = true }, pod, node, own},
		"hostPID":               {func(s *v1.PodSpec) { s.HostPID = true }, pod, pod, node},
		"shareProcessNamespace": {func(s *v1.PodSpec) { s.ShareProcessNamespace = new(true) }, pod, pod, pod},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				made := w.made(newPod(func(pod *v1.Pod) { test.change(&pod.Spec) }))
				box := requests[*runtimeapi.RunPodSandboxRequest](w.fake)[0].Config
				for _, got := range []*runtimeapi.NamespaceOption{
					made.Linux.SecurityContext.NamespaceOptions, box.Linux.SecurityContext.NamespaceOptions,
				} {
					if got.Network != test.network || got.Ipc != test.ipc || got.Pid != test.pid {
						w.Errorf("shared are %v", got)
					}
				}
			})
		})
	}
}

func quantities(cpu, memory string) v1.ResourceList {
	list := v1.ResourceList{}
	if cpu != "" {
		list[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		list[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return list
}

func TestResources(t *testing.T) { // on a machine with 1 GiB
	cases := map[string]struct {
		requests, limits           v1.ResourceList
		priority                   *int32
		class                      string
		shares, quota, memory, oom int64
	}{
		"best effort":            {shares: 2, oom: 1000},
		"guaranteed":             {requests: quantities("500m", "64Mi"), limits: quantities("500m", "64Mi"), shares: 512, quota: 50_000, memory: 64 << 20, oom: -997},
		"burstable":              {requests: quantities("250m", "256Mi"), limits: quantities("1", ""), shares: 256, quota: 100_000, oom: 750},
		"burstable, cpu only":    {requests: quantities("1", ""), shares: 1024, oom: 999},
		"all of the machine":     {requests: quantities("1", "1Gi"), shares: 1024, oom: 3},
		"a limit is a request":   {limits: quantities("2", ""), shares: 2048, quota: 200_000, oom: 999},
		"the least quota":        {limits: quantities("1m", ""), shares: 2, quota: 1000, oom: 999},
		"the most shares":        {requests: quantities("1000", ""), shares: 262144, oom: 999},
		"critical for the node":  {priority: new(int32(2_000_001_000)), shares: 2, oom: -997},
		"critical by its class":  {class: "system-node-critical", shares: 2, oom: -997},
		"critical, but not that": {priority: new(int32(2_000_000_000)), shares: 2, oom: 1000},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				got := w.made(newPod(func(pod *v1.Pod) {
					pod.Spec.Priority, pod.Spec.PriorityClassName = test.priority, test.class
					pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: test.requests, Limits: test.limits}
				})).Linux.Resources
				if got.CpuShares != test.shares || got.CpuQuota != test.quota || got.CpuPeriod != 100_000 ||
					got.MemoryLimitInBytes != test.memory || got.OomScoreAdj != test.oom {
					w.Errorf("got %v", got)
				}
			})
		})
	}
}

func TestASidecarIsNotKilledBeforeThoseThatItServes(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].Resources.Requests = quantities("", "512Mi")
			pod.Spec.InitContainers = []v1.Container{{
				Name: "proxy", Image: "web:1", RestartPolicy: new(v1.ContainerRestartPolicyAlways),
				Resources: v1.ResourceRequirements{Requests: quantities("", "64Mi")},
			}}
		})
		start := plan.Start{Container: &pod.Spec.InitContainers[0], Kind: derive.SidecarContainer}
		if err := w.StartContainer(w.Context(), pod, w.sandbox(pod), start); err != nil {
			w.Fatal(err)
		}
		if got := requests[*runtimeapi.CreateContainerRequest](w.fake)[0].Config.Linux.Resources.OomScoreAdj; got != 500 {
			w.Errorf("its score is %d", got)
		}
	})
}

func TestTheSandboxsOwnNeedsAreTold(t *testing.T) {
	config, _ := boxed(t, newPod(func(pod *v1.Pod) { pod.Spec.Overhead = quantities("250m", "64Mi") }))
	if got := config.Linux.Overhead; got.CpuShares != 256 || got.CpuQuota != 25_000 || got.MemoryLimitInBytes != 64<<20 {
		t.Errorf("got %v", got)
	}
}

func TestCgroups(t *testing.T) {
	burstable := func(pod *v1.Pod) { pod.UID = "a-b"; pod.Spec.Containers[0].Resources.Requests = quantities("1", "") }
	guaranteed := func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Limits = quantities("1", "1Gi")
		pod.Spec.Containers[0].Resources.Requests = quantities("1", "1Gi")
	}
	cases := map[string]struct {
		parent, driver string
		change         func(*v1.Pod)
		want           string
	}{
		"the runtime's choice":        {change: burstable, want: ""},
		"best effort":                 {parent: "/kubepods", driver: "cgroupfs", change: func(*v1.Pod) {}, want: "/kubepods/besteffort/poduid-1"},
		"burstable":                   {parent: "/kubepods", driver: "cgroupfs", change: burstable, want: "/kubepods/burstable/poda-b"},
		"guaranteed":                  {parent: "/kubepods", driver: "cgroupfs", change: guaranteed, want: "/kubepods/poduid-1"},
		"systemd":                     {parent: "/kubepods", driver: "systemd", change: burstable, want: "kubepods-burstable-poda_b.slice"},
		"systemd, deeper":             {parent: "/a-b/kubepods", driver: "systemd", change: guaranteed, want: "a_b-kubepods-poduid_1.slice"},
		"a runtime that does not say": {parent: "/kubepods", change: burstable, want: "/kubepods/burstable/poda-b"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			config, _ := boxed(t, newPod(test.change), func(config *cri.Config) { config.CgroupParent, config.CgroupDriver = test.parent, test.driver })
			if got := config.Linux.CgroupParent; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestAConfigThatCannotWorkNamesItsField(t *testing.T) {
	good := cri.Config{Endpoint: "unix:///x", Provisioner: provision{}, Root: "/pods"}
	for field, change := range map[string]func(*cri.Config){
		"Endpoint":       func(c *cri.Config) { c.Endpoint = "tcp://x" },
		"ImageEndpoint":  func(c *cri.Config) { c.ImageEndpoint = "/x" },
		"Provisioner":    func(c *cri.Config) { c.Provisioner = nil },
		"Root":           func(c *cri.Config) { c.Root = "pods" },
		"CgroupDriver":   func(c *cri.Config) { c.CgroupDriver = "magic" },
		"CgroupParent":   func(c *cri.Config) { c.CgroupParent = "kubepods" },
		"RequestTimeout": func(c *cri.Config) { c.RequestTimeout = -1 },

		"MaxParallelPulls":     func(c *cri.Config) { c.MaxParallelPulls = -1 },
		"ContainerLogMaxFiles": func(c *cri.Config) { c.ContainerLogMaxFiles = 1 },
	} {
		bad := good
		change(&bad)
		if _, err := cri.New(bad); err == nil || !strings.HasPrefix(err.Error(), "cri.Config: "+field+" ") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
