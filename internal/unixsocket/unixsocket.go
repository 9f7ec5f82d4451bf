// Package unixsocket checks the paths of unix sockets.
package unixsocket

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// MaxPath is the maximum length of a socket's path in bytes on Linux, whose addresses have room for 108 with the final zero.
const MaxPath = 107

// CheckPath returns an error if no socket can have the path. The error reads as the end of a sentence about the path.
func CheckPath(socket string) error {
	switch {
	case !path.IsAbs(socket):
		return errors.New("must be an absolute path")
	case strings.HasSuffix(socket, "/"):
		return errors.New("must be the path of a socket, not of a directory")
	case len(socket) > MaxPath:
		return fmt.Errorf("must not exceed %d bytes, the kernel's limit for sockets: it has %d; use a shorter path", MaxPath, len(socket))
	}
	return nil
}
