package config

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/heraldnode/herald/internal/permission"
)

// tcpListener is an address that the agent listens on.
type tcpListener struct {
	field, address string
	remedy         string // after "stop it, or"
}

func (c *Config) tcpListeners() []tcpListener {
	var listeners []tcpListener
	server := c.serverConfig()
	if server.Address != "" {
		listeners = append(listeners, tcpListener{"port", server.Address, "set another port, or 0 for no server"})
	}
	if server.HealthAddress != "" {
		listeners = append(listeners, tcpListener{"healthzPort", server.HealthAddress, "set another healthzPort, or 0 for no server"})
	}
	if c.KubectlListen != "" {
		listeners = append(listeners, tcpListener{"kubectlListen", c.KubectlListen, "set another kubectlListen"})
	}
	if address := c.ListenAddress(); !strings.HasPrefix(address, "unix://") {
		listeners = append(listeners, tcpListener{"listen", address, "set another listen"})
	}
	return listeners
}

// checkPorts listens on each address for a moment.
func (k *checker) checkPorts(ctx context.Context) {
	taken := map[string]string{} // field by port
	for _, l := range k.config.tcpListeners() {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", l.address)
		if err == nil {
			defer listener.Close() // at the end: two fields may have the same port
			_, port, _ := net.SplitHostPort(l.address)
			taken[port] = l.field
			continue
		}
		k.rejectAddress(ctx, l, err, taken)
	}
}

func (k *checker) rejectAddress(ctx context.Context, l tcpListener, err error, taken map[string]string) {
	_, port, _ := net.SplitHostPort(l.address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && taken[port] != "":
		k.rejectIf(true, l.field, "%s is the port of %s too; %s", l.address, taken[port], l.remedy)
	case errors.Is(err, syscall.EADDRINUSE):
		owner, isFound := findListener(port)
		if isFound && owner.pid == k.agentPID(ctx) {
			k.notef("%s: %s is used by the agent of this configuration, process %d", l.field, l.address, owner.pid)
			return
		}
		user := fmt.Sprintf("another process (ss -ltnp 'sport = :%s' shows it)", port)
		if isFound {
			user = fmt.Sprintf("process %d (%s)", owner.pid, owner.name)
		}
		k.rejectIf(true, l.field, "%s is used by %s; stop it, or %s", l.address, user, l.remedy)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		k.rejectIf(true, l.field, "%s is not an address of this machine; use one of 'ip address', or 0.0.0.0", l.address)
	case errors.Is(err, fs.ErrPermission):
		k.rejectIf(true, l.field, "%s: permission denied; run as root, or %s", l.address, l.remedy)
	default:
		k.rejectIf(true, l.field, "%v", err)
	}
}

// agentPID returns the process that listens on the agent's socket, or 0.
func (k *checker) agentPID(ctx context.Context) int {
	path, isSocket := strings.CutPrefix(k.config.ListenAddress(), "unix://")
	if !isSocket {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return 0
	}
	defer conn.Close()
	pid, err := permission.PeerPID(conn.(*net.UnixConn))
	if err != nil {
		return 0
	}
	return pid
}

// process is a process of this machine.
type process struct {
	pid  int
	name string
}

// findListener returns the process that listens on a TCP port, as far as this user may see it.
func findListener(port string) (process, bool) {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return process{}, false
	}
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		addListeners(inodes, table, fmt.Sprintf(":%04X", number))
	}
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is valid
	for _, descriptor := range descriptors {
		target, err := os.Readlink(descriptor)
		if err != nil || !inodes[target] {
			continue
		}
		dir := filepath.Dir(filepath.Dir(descriptor))
		pid, _ := strconv.Atoi(filepath.Base(dir)) // matches the pattern
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		return process{pid, strings.TrimSpace(string(name))}, true
	}
	return process{}, false
}

// addListeners adds the sockets of a table of the kernel that listen on the port, in the form of the links in /proc/PID/fd.
func addListeners(inodes map[string]bool, table, port string) {
	file, err := os.Open(table)
	if err != nil {
		return
	}
	defer file.Close()
	const listening = "0A"
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // number, local, remote, state, queues, timer, retransmits, user, timeout, inode
		if len(fields) > 9 && strings.HasSuffix(fields[1], port) && fields[3] == listening {
			inodes["socket:["+fields[9]+"]"] = true
		}
	}
}
