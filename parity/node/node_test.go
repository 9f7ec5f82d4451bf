package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/heraldtest/runtimesuite"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

const clusterDomain = "cluster.test"

var clusterDNS = netip.MustParseAddr("10.0.0.10")

// agentConfig is the configuration of a node's agent.
type agentConfig struct {
	NodeName, Kubeconfig, Endpoint string
	// DataDir belongs to the agent, ManifestDir and LogDir to the node.
	DataDir, ManifestDir, LogDir string
	CgroupRoot                   string
	NodeIP                       netip.Addr
}

// podsDir returns the directory of the pods' directories.
func (c agentConfig) podsDir() string { return filepath.Join(c.DataDir, "pods") }

// socket returns the address of the agent's server.
func (c agentConfig) socket() string { return "unix://" + filepath.Join(c.DataDir, "herald.sock") }

// write writes the configuration file of herald run.
func (c agentConfig) write(file string) error {
	return os.WriteFile(file, fmt.Appendf(nil, `apiVersion: heraldnode.github.io/v1alpha1
kind: HeraldConfiguration
evictionHard: {memory.available: 100Mi, nodefs.available: 0%%, nodefs.inodesFree: 0%%, imagefs.available: 0%%, imagefs.inodesFree: 0%%}
imageGCHighThresholdPercent: 100
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
port: 0
healthzPort: 0
`, c.NodeName, c.Kubeconfig, c.Endpoint, c.DataDir, c.ManifestDir, c.LogDir, c.CgroupRoot, c.NodeIP, clusterDNS, clusterDomain), 0o600)
}

// testNode is a node: a containerd, and herald as its agent.
//
// One goroutine calls startAgent, stopAgent and close; the other methods are safe for concurrent use.
type testNode struct {
	name       string
	cluster    *recorder.Cluster
	containerd *containerd.Containerd
	runtime    *cri.Runtime // the tests' own client of containerd
	config     agentConfig
	program    string    // herald
	agent      *exec.Cmd // nil while none runs
	// runtimeKilled is set when containerd was killed: it leaks the network of a sandbox that it was creating.
	runtimeKilled bool
	// agentKilled is set when the agent was killed, which cancels its requests to containerd.
	agentKilled bool
}

// startTestNode starts a node and its agent.
func startTestNode(ctx context.Context, cluster *recorder.Cluster, program, name string) (*testNode, error) {
	runtime, err := containerd.Start(ctx, containerd.Config{})
	if err != nil {
		return nil, err
	}
	n := &testNode{name: name, cluster: cluster, containerd: runtime, program: program}
	err = n.configure()
	if err == nil {
		err = n.startAgent()
	}
	if err != nil {
		return nil, errors.Join(err, runtime.Close())
	}
	return n, nil
}

func (n *testNode) configure() (err error) {
	dir := n.containerd.Dir()
	n.config = agentConfig{
		NodeName: n.name, Endpoint: n.containerd.Endpoint(), DataDir: filepath.Join(dir, "agent"),
		ManifestDir: filepath.Join(dir, "manifests"), LogDir: filepath.Join(dir, "logs"), CgroupRoot: "/" + filepath.Base(dir),
	}
	if err := os.Mkdir(n.config.ManifestDir, 0o700); err != nil {
		return err
	}
	if n.config.Kubeconfig, err = n.cluster.NodeKubeconfig(n.name); err != nil {
		return err
	}
	if n.config.NodeIP, err = bridgeAddress(dir); err != nil {
		return err
	}
	if err := n.config.write(n.configFile()); err != nil {
		return err
	}
	n.runtime, err = cri.New(cri.Config{Endpoint: n.config.Endpoint, Provisioner: runtimesuite.Provisioner{}, Root: n.config.podsDir()})
	return err
}

func (n *testNode) configFile() string { return filepath.Join(n.containerd.Dir(), "herald.yaml") }

// bridgeAddress returns the machine's address on the bridge of the pods.
func bridgeAddress(dir string) (netip.Addr, error) {
	name, err := os.ReadFile(filepath.Join(dir, "bridge"))
	if err != nil {
		return netip.Addr{}, err
	}
	bridge, err := net.InterfaceByName(string(name))
	if err != nil {
		return netip.Addr{}, err
	}
	addresses, err := bridge.Addrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil && prefix.Addr().Is4() {
			return prefix.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("bridge %s has no address", name)
}

func (n *testNode) startAgent() error {
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own descriptor
	n.agent = exec.CommandContext(context.Background(), n.program, "run", "--config", n.configFile())
	n.agent.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	n.agent.Stdout, n.agent.Stderr = log, log
	n.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return n.agent.Start()
}

// stopAgent sends a signal to the agent and waits for it. Unless it is killed, it must exit without an error.
func (n *testNode) stopAgent(signal syscall.Signal) error {
	if n.agent == nil {
		return nil
	}
	if err := n.agent.Process.Signal(signal); err != nil {
		return fmt.Errorf("agent has exited: %w", err)
	}
	err := n.agent.Wait()
	n.agent = nil
	if signal == syscall.SIGKILL {
		n.agentKilled = true
		return nil
	}
	return err
}

// close stops the agent and containerd. It returns an error if the agent does not clean up after its pods in time.
func (n *testNode) close() error {
	for deadline := time.Now().Add(recorder.Timeout); len(n.leftovers()) > 0 && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
	err := n.stopAgent(syscall.SIGTERM)
	log, _ := os.ReadFile(n.logFile())
	if bytes.Contains(log, []byte("DATA RACE")) {
		err = errors.Join(err, errors.New("the agent has a data race"))
	}
	rejected, readErr := n.cluster.RejectedRequests(n.name)
	if err = errors.Join(err, readErr); len(rejected) > 0 {
		err = errors.Join(err, fmt.Errorf("unauthorized requests of node %s: %s", n.name, strings.Join(rejected, "\n")))
	}
	if left := n.leftovers(); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("left on node %s: %s", n.name, strings.Join(left, ", ")))
	}
	if err != nil {
		err = fmt.Errorf("%w; log of the agent:\n%s", err, n.logTail())
	}
	return errors.Join(err, n.runtime.Close(), n.containerd.Close(), removeCgroups(n.config.CgroupRoot))
}

func (n *testNode) logFile() string { return filepath.Join(n.containerd.Dir(), "agent.log") }

// logTail returns the end of the log of all agent processes.
func (n *testNode) logTail() string {
	const size = 32 << 10
	content, err := os.ReadFile(n.logFile())
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-size):])
}

// leftovers returns everything on the machine that belongs to pods.
func (n *testNode) leftovers() []string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var left []string
	pods, err := n.runtime.ListPods(ctx)
	if err != nil {
		left = append(left, err.Error())
	}
	for _, p := range pods {
		left = append(left, fmt.Sprintf("pod %s in containerd", p.Name))
	}
	dir := n.containerd.Dir()
	for kind, pattern := range map[string]string{
		"pod directory":                   n.config.podsDir() + "/*",
		"pod logs":                        n.config.LogDir + "/*",
		"network namespace":               dir + "/state/*.cri/netns/*",
		"network namespace (other place)": dir + "/state/netns/*",
		"address of a pod":                dir + "/addresses/*/10.*",
		"pod cgroup":                      "/sys/fs/cgroup" + n.config.CgroupRoot + "/kubepods/*/pod*",
		"pod cgroup (v1)":                 "/sys/fs/cgroup/*" + n.config.CgroupRoot + "/kubepods/*/pod*",
	} {
		found, _ := filepath.Glob(pattern) // the pattern is valid
		for _, path := range found {
			left = append(left, kind+" "+path)
		}
	}
	left = append(left, n.mounts()...)
	if n.agentKilled && containerd.DefaultVersion() == containerd.Version2 {
		// containerd 2 may leak the root file system of a container that it was starting, which only it mounts.
		left = slices.DeleteFunc(left, func(item string) bool {
			return strings.HasPrefix(item, "mount ") && strings.Contains(item, "/state/io.containerd.runtime.v2.task/")
		})
	}
	if n.runtimeKilled {
		left = slices.DeleteFunc(left, func(item string) bool {
			return strings.HasPrefix(item, "network") || strings.HasPrefix(item, "address") || strings.Contains(item, "/netns/")
		})
	}
	return left
}

// mounts returns the mounts of the node's pods.
func (n *testNode) mounts() (found []string) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(string(content)) {
		if point := strings.Fields(line)[4]; strings.HasPrefix(point, n.containerd.Dir()+"/") {
			found = append(found, "mount "+point)
		}
	}
	return found
}

// removeCgroups removes the parent cgroups of one node, in every hierarchy.
func removeCgroups(root string) error {
	var errs []error
	for _, pattern := range []string{"/sys/fs/cgroup" + root, "/sys/fs/cgroup/*" + root} {
		found, _ := filepath.Glob(pattern) // the pattern is valid
		for _, dir := range found {
			for _, below := range []string{"kubepods/burstable", "kubepods/besteffort", "kubepods", "."} {
				if err := os.Remove(filepath.Join(dir, below)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}
