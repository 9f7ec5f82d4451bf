package permission

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// CheckPeer returns an error if the process that listens on the socket runs as neither root nor the trusted user, according
// to the kernel.
func (c Checker) CheckPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var sockoptErr error
	err = raw.Control(func(fd uintptr) { peer, sockoptErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, sockoptErr); err != nil {
		return fmt.Errorf("get listener of %s: %w", conn.RemoteAddr(), err)
	}
	if peer.Uid != 0 && peer.Uid != c.UID {
		return fmt.Errorf("listener of %s is user %d (process %d); it must be root or the agent's user %d",
			conn.RemoteAddr(), peer.Uid, peer.Pid, c.UID)
	}
	return nil
}
