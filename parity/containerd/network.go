package containerd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
)

// bridgeFile names the bridge, for the leash.
const bridgeFile = "bridge"

// bridges is how many bridges, each with its own subnet, one machine can have.
const bridges = 256

// conflist connects pods to the bridge. The bridge has its address already: the plugin would also switch the machine's
// IP forwarding on. Without masquerading and port mapping, no iptables rule is ever made.
const conflist = `{
  "cniVersion": "0.4.0",
  "name": %[1]q,
  "plugins": [{
    "type": "bridge",
    "bridge": %[1]q,
    "ipam": {
      "type": "host-local",
      "dataDir": %[2]q,
      "ranges": [[{"subnet": %[3]q, "gateway": %[4]q}]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
`

// makeNetwork makes a bridge with a subnet of its own and writes the CNI configuration that puts pods on it.
func makeNetwork(ctx context.Context, folder string) error {
	bridge, subnet, err := claimBridge(ctx)
	if err != nil {
		return fmt.Errorf("making a bridge: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, bridgeFile), []byte(bridge), 0o600); err != nil {
		return err
	}
	gateway := subnet.Addr().Next()
	address := netip.PrefixFrom(gateway, subnet.Bits()).String()
	if err := ip(ctx, "address", "add", address, "dev", bridge); err != nil {
		return err
	}
	if err := ip(ctx, "link", "set", bridge, "up"); err != nil {
		return err
	}
	configs := filepath.Join(folder, "cni")
	if err := os.Mkdir(configs, 0o700); err != nil {
		return err
	}
	content := fmt.Sprintf(conflist, bridge, filepath.Join(folder, "addresses"), subnet, gateway)
	return os.WriteFile(filepath.Join(configs, "bridge.conflist"), []byte(content), 0o600)
}

// claimBridge makes a bridge that nobody else has. Its name stands for its subnet and the kernel gives a name only
// once, so two processes cannot get the same subnet.
func claimBridge(ctx context.Context) (string, netip.Prefix, error) {
	inUse, err := machineNetworks()
	if err != nil {
		return "", netip.Prefix{}, err
	}
	for _, n := range rand.Perm(bridges) {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 231, byte(n), 0}), 24)
		if overlaps(subnet, inUse) {
			continue
		}
		bridge := fmt.Sprintf("herald%d", n)
		err := ip(ctx, "link", "add", bridge, "type", "bridge")
		if err == nil {
			return bridge, subnet, nil
		}
		if _, missing := net.InterfaceByName(bridge); missing != nil {
			return "", netip.Prefix{}, err
		}
	}
	return "", netip.Prefix{}, errors.New("no free subnet in 10.231.0.0/16; remove unused bridges herald0 to herald255")
}

// machineNetworks returns the networks that the machine has addresses in.
func machineNetworks() ([]netip.Prefix, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var networks []netip.Prefix
	for _, address := range addresses {
		if network, err := netip.ParsePrefix(address.String()); err == nil {
			networks = append(networks, network)
		}
	}
	return networks, nil
}

func overlaps(subnet netip.Prefix, networks []netip.Prefix) bool {
	for _, network := range networks {
		if network.Overlaps(subnet) {
			return true
		}
	}
	return false
}

func ip(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, "ip", args...)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", command.Args, err, output)
	}
	return nil
}
