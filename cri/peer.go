package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// dialSocket connects to a runtime's socket, if it is root or the agent's own user who listens there: a runtime is told
// secrets, and what it says of containers is believed.
func dialSocket(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(address, "unix://"))
	if err != nil {
		return nil, err
	}
	if err := checkPeer(conn.(*net.UnixConn), os.Geteuid()); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// checkPeer asks the kernel who listens.
func checkPeer(conn *net.UnixConn, own int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var asking error
	err = raw.Control(func(fd uintptr) { peer, asking = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, asking); err != nil {
		return fmt.Errorf("asking who listens on %s: %w", conn.RemoteAddr(), err)
	}
	if peer.Uid != 0 && peer.Uid != uint32(own) {
		return fmt.Errorf("socket %s is listened on by user %d (process %d), and not by root or by user %d, whom the agent "+
			"runs as", conn.RemoteAddr(), peer.Uid, peer.Pid, own)
	}
	return nil
}
