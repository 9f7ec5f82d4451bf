//go:build !linux

package permission

import (
	"errors"
	"net"
)

// CheckPeer returns an error: the listener of a socket can be checked on Linux only.
func (Checker) CheckPeer(*net.UnixConn) error {
	return errors.New("the listener of a socket can be checked on Linux only")
}

// PeerUID returns an error: the user of a socket's peer is known on Linux only.
func PeerUID(*net.UnixConn) (uint32, error) {
	return 0, errors.New("the peer of a socket is known on Linux only")
}

// PeerPID returns an error: the process of a socket's peer is known on Linux only.
func PeerPID(*net.UnixConn) (int, error) {
	return 0, errors.New("the peer of a socket is known on Linux only")
}
