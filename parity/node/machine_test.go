package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/heraldtest/runtimesuite"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// machine is one node: a containerd, and herald as its agent.
//
// begin, end and close are for one goroutine; the rest may be used by all.
type machine struct {
	name       string
	cluster    *recorder.Cluster
	containerd *containerd.Containerd
	runtime    *cri.Runtime // the tests' own view of containerd
	settings   settings
	program    string    // herald
	agent      *exec.Cmd // nil while none runs
	// runtimeKilled tells that containerd was killed: it forgets the network of a sandbox that it was about to make.
	runtimeKilled bool
}

// startMachine makes a node and its agent.
func startMachine(ctx context.Context, cluster *recorder.Cluster, herald, name string) (*machine, error) {
	c, err := containerd.Start(ctx, containerd.Config{})
	if err != nil {
		return nil, err
	}
	m := &machine{name: name, cluster: cluster, containerd: c, program: herald}
	err = m.configure()
	if err == nil {
		err = m.begin()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return m, nil
}

func (m *machine) configure() (err error) {
	folder := m.containerd.Dir()
	m.settings = settings{
		Node: m.name, Endpoint: m.containerd.Endpoint(), Data: filepath.Join(folder, "agent"),
		Manifests: filepath.Join(folder, "manifests"), Logs: filepath.Join(folder, "logs"), CgroupParent: "/" + filepath.Base(folder),
	}
	if err := os.Mkdir(m.settings.Manifests, 0o700); err != nil {
		return err
	}
	if m.settings.Kubeconfig, err = m.cluster.NodeKubeconfig(m.name); err != nil {
		return err
	}
	if m.settings.Address, err = gateway(folder); err != nil {
		return err
	}
	if err := m.settings.write(m.configFile()); err != nil {
		return err
	}
	m.runtime, err = cri.New(cri.Config{Endpoint: m.settings.Endpoint, Provisioner: runtimesuite.Provisioner{}, Root: m.settings.pods()})
	return err
}

func (m *machine) configFile() string { return filepath.Join(m.containerd.Dir(), "herald.yaml") }

// gateway is the machine's address on the bridge of its pods.
func gateway(folder string) (netip.Addr, error) {
	name, err := os.ReadFile(filepath.Join(folder, "bridge"))
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

// begin starts the agent.
func (m *machine) begin() error {
	log, err := os.OpenFile(m.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	m.agent = exec.CommandContext(context.Background(), m.program, "run", "--config", m.configFile())
	m.agent.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	m.agent.Stdout, m.agent.Stderr = log, log
	m.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return m.agent.Start()
}

// end ends the agent with a signal. One that was asked to end must do so without an error.
func (m *machine) end(signal syscall.Signal) error {
	if m.agent == nil {
		return nil
	}
	if err := m.agent.Process.Signal(signal); err != nil {
		return fmt.Errorf("the agent has ended by itself: %w", err)
	}
	err := m.agent.Wait()
	m.agent = nil
	if signal == syscall.SIGKILL {
		return nil
	}
	return err
}

// close ends the agent and containerd. What pods leave behind although their agent had some time is an error.
func (m *machine) close() error {
	for deadline := time.Now().Add(recorder.Timeout); len(m.leftovers()) > 0 && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
	err := m.end(syscall.SIGTERM)
	log, _ := os.ReadFile(m.logFile())
	if bytes.Contains(log, []byte("DATA RACE")) {
		err = errors.Join(err, errors.New("the agent has a data race"))
	}
	refused, unread := m.cluster.RejectedRequests(m.name)
	if err = errors.Join(err, unread); len(refused) > 0 {
		err = errors.Join(err, fmt.Errorf("node %s asked for what it may not: %s", m.name, strings.Join(refused, "\n")))
	}
	if left := m.leftovers(); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("left behind on node %s: %s", m.name, strings.Join(left, ", ")))
	}
	if err != nil {
		err = fmt.Errorf("%w; the agent said:\n%s", err, m.words())
	}
	return errors.Join(err, m.runtime.Close(), m.containerd.Close(), removeCgroups(m.settings.CgroupParent))
}

func (m *machine) logFile() string { return filepath.Join(m.containerd.Dir(), "agent.log") }

// words is the end of what the agent said in all its lives.
func (m *machine) words() string {
	const size = 32 << 10
	content, err := os.ReadFile(m.logFile())
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-size):])
}
