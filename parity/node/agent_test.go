package node_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
)

const clusterDomain = "cluster.test"

var clusterDNS = netip.MustParseAddr("10.0.0.10")

// settings are what a machine's agent is told, in a folder of the machine.
type settings struct {
	Node, Kubeconfig, Endpoint string
	// Data is the agent's own folder, Manifests and Logs are the machine's.
	Data, Manifests, Logs string
	CgroupParent          string
	Address               netip.Addr
}

// pods is the folder of the pods' folders.
func (s settings) pods() string { return filepath.Join(s.Data, "pods") }

// socket is where the agent answers questions.
func (s settings) socket() string { return "unix://" + filepath.Join(s.Data, "herald.sock") }

// write makes a configuration of herald run of the settings, in its folder.
func (s settings) write(file string) error {
	return os.WriteFile(file, fmt.Appendf(nil, `apiVersion: heraldnode.github.io/v1alpha1
kind: HeraldConfiguration
nodeName: %s
kubeconfig: %s
containerRuntimeEndpoint: %s
dataDir: %s
staticPodPath: %s
podLogsDir: %s
cgroupRoot: %s
nodeIP: %s
clusterDNS: [%s]
clusterDomain: %s
`, s.Node, s.Kubeconfig, s.Endpoint, s.Data, s.Manifests, s.Logs, s.CgroupParent, s.Address, clusterDNS, clusterDomain), 0o600)
}
