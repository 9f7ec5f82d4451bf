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
	peer, err := peerOf(conn)
	if err != nil {
		return fmt.Errorf("get listener of %s: %w", conn.RemoteAddr(), err)
	}
	if peer.Uid != 0 && peer.Uid != c.UID {
		return fmt.Errorf("listener of %s is user %d (process %d); it must be root or the agent's user %d",
			conn.RemoteAddr(), peer.Uid, peer.Pid, c.UID)
	}
	return nil
}

// PeerUID returns the user of the process at the other end of the socket, according to the kernel.
func PeerUID(conn *net.UnixConn) (uint32, error) {
	peer, err := peerOf(conn)
	if err != nil {
		return 0, err
	}
	return peer.Uid, nil
}

// PeerPID returns the process at the other end of the socket, according to the kernel.
func PeerPID(conn *net.UnixConn) (int, error) {
	peer, err := peerOf(conn)
	if err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}

func peerOf(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var peer *unix.Ucred
	var sockoptErr error
	err = raw.Control(func(fd uintptr) { peer, sockoptErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(err, sockoptErr)
}
