package containerd_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/heraldnode/herald/parity/containerd"
)

// TestHostIP uses the address as a node's agent does that answers the API server, which refuses loopback addresses.
func TestHostIP(t *testing.T) {
	c := containerd.ForTest(t)
	host, err := c.HostIP()
	if err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := netip.MustParseAddr(host)
	network, err := address.Prefix(24)
	if err != nil {
		t.Fatal(err)
	}
	if pod := newClient(t, c).runPod("neighbour"); address.IsLoopback() || !network.Contains(pod.address) {
		t.Errorf("got address %v, and a pod at %v", address, pod.address)
	}
}
