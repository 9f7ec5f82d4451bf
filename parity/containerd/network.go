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

// bridgeFile contains the name of the bridge, for the supervisor.
const bridgeFile = "bridge"

// maxBridges is the number of bridges, each with its own subnet, that one machine can have.
const maxBridges = 256

// conflist connects pods to the bridge. The address of the bridge is set beforehand: the plugin would also enable the machine's IP
// forwarding. Without masquerading and port mapping, no iptables rule is created.
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

// createNetwork creates a bridge with its own subnet and writes the CNI configuration that connects pods to it.
func createNetwork(ctx context.Context, dir string) error {
	bridge, subnet, err := createBridge(ctx)
	if err != nil {
		return fmt.Errorf("create bridge: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, bridgeFile), []byte(bridge), 0o600); err != nil {
		return err
	}
	gateway := hostAddress(subnet)
	address := netip.PrefixFrom(gateway, subnet.Bits()).String()
	if err := ip(ctx, "address", "add", address, "dev", bridge); err != nil {
		return err
	}
	if err := ip(ctx, "link", "set", bridge, "up"); err != nil {
		return err
	}
	configs := filepath.Join(dir, "cni")
	if err := os.Mkdir(configs, 0o700); err != nil {
		return err
	}
	content := fmt.Sprintf(conflist, bridge, filepath.Join(dir, "addresses"), subnet, gateway)
	return os.WriteFile(filepath.Join(configs, "bridge.conflist"), []byte(content), 0o600)
}

// hostAddress is the address of the host in the subnet of its pods.
func hostAddress(subnet netip.Prefix) netip.Addr { return subnet.Addr().Next() }

// HostIP returns the address at which pods reach the host. It is an address of the bridge, and not a loopback address.
func (c *Containerd) HostIP() (string, error) {
	bridge, err := os.ReadFile(filepath.Join(c.dir, bridgeFile))
	if err != nil {
		return "", err
	}
	var number byte
	if _, err := fmt.Sscanf(string(bridge), bridgeName, &number); err != nil {
		return "", fmt.Errorf("name of bridge %q: %w", bridge, err)
	}
	return hostAddress(subnet(number)).String(), nil
}

// bridgeName is the name of the bridge with subnet(number).
const bridgeName = "herald%d"

func subnet(number byte) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 231, number, 0}), 24)
}

// createBridge creates a bridge that no other process uses. Its name determines its subnet and the kernel accepts a name only
// once, so two processes cannot get the same subnet.
func createBridge(ctx context.Context) (string, netip.Prefix, error) {
	inUse, err := machineNetworks()
	if err != nil {
		return "", netip.Prefix{}, err
	}
	for _, n := range rand.Perm(maxBridges) {
		subnet := subnet(byte(n))
		if overlaps(subnet, inUse) {
			continue
		}
		bridge := fmt.Sprintf(bridgeName, n)
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

// machineNetworks returns the networks of the machine's addresses.
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
