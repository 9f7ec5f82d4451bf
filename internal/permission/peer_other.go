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
