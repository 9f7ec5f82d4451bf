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

// fakeNode has one pod and receives the readiness of its container.
type fakeNode struct {
	pod   *observed.Pod
	ready chan bool // the first value counts
}

// Get implements probe.PodCache.
func (v fakeNode) Get(podid.UID) *observed.Pod { return v.pod }

// GetPodStatus implements probe.Statuses.
func (v fakeNode) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

// SetContainerStartup implements probe.Statuses.
func (v fakeNode) SetContainerStartup(types.UID, observed.ContainerID, bool) {}

// SetContainerReadiness implements probe.Statuses.
func (v fakeNode) SetContainerReadiness(_ types.UID, _ observed.ContainerID, ready bool) {
	v.ready <- ready
}

// Event implements event.Recorder.
func (v fakeNode) Event(runtime.Object, string, string, string) { v.ready <- false }

func parseAddresses(written ...string) []netip.Addr {
	var all []netip.Addr
	for _, address := range written {
		all = append(all, netip.MustParseAddr(address))
	}
	return all
}

func TestPRB24_PrimaryAddress(t *testing.T) {
	tests := map[string]struct {
		hostNetwork bool
		ips         []netip.Addr
		node        derive.NodeInfo
		listenOn    string
	}{
		"single address":                     {ips: parseAddresses("127.0.0.2"), listenOn: "127.0.0.2"},
		"first of two":                       {ips: parseAddresses("127.0.0.2", "::1"), listenOn: "127.0.0.2"},
		"preferred family":                   {ips: parseAddresses("127.0.0.2", "::1"), node: derive.NodeInfo{IPv6First: true}, listenOn: "::1"},
		"only other family":                  {ips: parseAddresses("127.0.0.2"), node: derive.NodeInfo{IPv6First: true}, listenOn: "127.0.0.2"},
		"host network":                       {hostNetwork: true, node: derive.NodeInfo{HostIPs: parseAddresses("127.0.0.3")}, listenOn: "127.0.0.3"},
		"host network, node address unknown": {hostNetwork: true, listenOn: "127.0.0.1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(test.listenOn, "0"))
			if err != nil {
				t.Logf("skipped, the machine has no %s: %v", test.listenOn, err)
				return
			}
			defer listener.Close()
			pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("")})
			pod.Spec.HostNetwork = test.hostNetwork
			port := listener.Addr().(*net.TCPAddr).Port
			pod.Spec.Containers[0].ReadinessProbe.ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(port)}}
			runtimePod := &observed.Pod{IPs: test.ips, Containers: []observed.Container{{Name: "app", ID: containerID("a1"), State: observed.Running}}}
			if !firstReadiness(t, pod, runtimePod, func(c *probe.Config) { c.NodeInfo = func() derive.NodeInfo { return test.node } }) {
				t.Fatal("got not ready, want ready")
			}
		})
	}
}

func TestProber_AllowNodeAddresses(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := intstr.FromInt(listener.Addr().(*net.TCPAddr).Port)
	got := map[string]bool{}
	for name, allow := range map[string]bool{"rejected": false, "allowed": true} {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("")})
		pod.Spec.Containers[0].ReadinessProbe.ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: port, Host: "127.0.0.1"}}
		runtimePod := &observed.Pod{Containers: []observed.Container{{Name: "app", ID: containerID("a1"), State: observed.Running}}}
		got[name] = firstReadiness(t, pod, runtimePod, func(c *probe.Config) { c.AllowNodeAddresses = allow })
	}
	if diff := cmp.Diff(map[string]bool{"rejected": false, "allowed": true}, got); diff != "" {
		t.Fatal(diff)
	}
}

// firstReadiness runs a prober until the readiness of the pod's container is known, however busy the machine is.
func firstReadiness(t *testing.T, pod *v1.Pod, runtimePod *observed.Pod, configure func(*probe.Config)) bool {
	t.Helper()
	node := fakeNode{pod: runtimePod, ready: make(chan bool, 10)}
	config := probe.Config{PodCache: node, Statuses: node, Events: node}
	configure(&config)
	prober, err := probe.New(config)
	if err != nil {
		t.Fatal(err)
	}
	pod.Spec.Containers[0].ReadinessProbe.TimeoutSeconds = 60
	runtimePod.Containers[0].StartedAt = time.Now() // after the prober, which would spread its first checks otherwise
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = prober.Run(ctx) })
	prober.AddPod(pod)
	return <-node.ready
}
