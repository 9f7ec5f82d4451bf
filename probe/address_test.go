package probe_test

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe"
)

// verdicts is a node with one pod, from which the readiness of its container comes.
type verdicts struct {
	pod   *observed.Pod
	ready chan bool // the first is enough
}

// Get implements probe.Observations.
func (v verdicts) Get(podid.UID) *observed.Pod { return v.pod }

// GetPodStatus implements probe.Statuses.
func (v verdicts) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

// SetContainerStartup implements probe.Statuses.
func (v verdicts) SetContainerStartup(types.UID, observed.ContainerID, bool) {}

// SetContainerReadiness implements probe.Statuses.
func (v verdicts) SetContainerReadiness(_ types.UID, _ observed.ContainerID, ready bool) {
	v.ready <- ready
}

// Event implements event.Recorder.
func (v verdicts) Event(runtime.Object, string, string, string) { v.ready <- false }

func addresses(written ...string) []netip.Addr {
	var all []netip.Addr
	for _, address := range written {
		all = append(all, netip.MustParseAddr(address))
	}
	return all
}

func TestPRB24APodIsAskedAtItsPrimaryAddress(t *testing.T) {
	tests := map[string]struct {
		hostNetwork bool
		ips         []netip.Addr
		node        derive.NodeInfo
		listens     string
	}{
		"its own":                              {ips: addresses("127.0.0.2"), listens: "127.0.0.2"},
		"the first of two":                     {ips: addresses("127.0.0.2", "::1"), listens: "127.0.0.2"},
		"the one of the node's first family":   {ips: addresses("127.0.0.2", "::1"), node: derive.NodeInfo{IPv6First: true}, listens: "::1"},
		"the only one, of whatever family":     {ips: addresses("127.0.0.2"), node: derive.NodeInfo{IPv6First: true}, listens: "127.0.0.2"},
		"the node's":                           {hostNetwork: true, node: derive.NodeInfo{HostIPs: addresses("127.0.0.3")}, listens: "127.0.0.3"},
		"loopback while the node's is unknown": {hostNetwork: true, listens: "127.0.0.1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(test.listens, "0"))
			if err != nil {
				t.Logf("not tried, for the machine has no %s: %v", test.listens, err)
				return
			}
			defer listener.Close()
			pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("")})
			pod.Spec.HostNetwork = test.hostNetwork
			port := listener.Addr().(*net.TCPAddr).Port
			pod.Spec.Containers[0].ReadinessProbe.ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(port)}}
			seen := &observed.Pod{IPs: test.ips, Containers: []observed.Container{{Name: "app", ID: named("a1"), State: observed.Running}}}
			if !firstVerdict(t, pod, seen, func(c *probe.Config) { c.NodeInfo = func() derive.NodeInfo { return test.node } }) {
				t.Fatal("nobody was found there")
			}
		})
	}
}

func TestProbesMayNameTheNodesAddressesOnlyWhereThatIsAllowed(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := intstr.FromInt(listener.Addr().(*net.TCPAddr).Port)
	got := map[string]bool{}
	for name, allow := range map[string]bool{"refused": false, "allowed": true} {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("")})
		pod.Spec.Containers[0].ReadinessProbe.ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: port, Host: "127.0.0.1"}}
		seen := &observed.Pod{Containers: []observed.Container{{Name: "app", ID: named("a1"), State: observed.Running}}}
		got[name] = firstVerdict(t, pod, seen, func(c *probe.Config) { c.AllowNodeAddresses = allow })
	}
	if diff := cmp.Diff(map[string]bool{"refused": false, "allowed": true}, got); diff != "" {
		t.Fatal(diff)
	}
}

// firstVerdict runs a prober until it has found out whether the pod's container is ready, however busy the machine is.
func firstVerdict(t *testing.T, pod *v1.Pod, seen *observed.Pod, configure func(*probe.Config)) bool {
	t.Helper()
	node := verdicts{pod: seen, ready: make(chan bool, 10)}
	config := probe.Config{PodCache: node, Statuses: node, Events: node}
	configure(&config)
	prober, err := probe.New(config)
	if err != nil {
		t.Fatal(err)
	}
	pod.Spec.Containers[0].ReadinessProbe.TimeoutSeconds = 60
	seen.Containers[0].StartedAt = time.Now() // after the agent, which would spread its first checks otherwise
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = prober.Run(ctx) })
	prober.AddPod(pod)
	return <-node.ready
}
