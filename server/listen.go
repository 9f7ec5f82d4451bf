package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Listen opens an address that only this machine can reach: unix:///run/herald/herald.sock, or an address like
// 127.0.0.1:10255. A socket that a dead agent left is replaced; it is for its owner only.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	if err := CheckAddress(address); err != nil {
		return nil, fmt.Errorf("listen on %w", err)
	}
	var config net.ListenConfig
	if path, isSocket := strings.CutPrefix(address, "unix://"); isSocket {
		return listenSocket(ctx, config, path)
	}
	return config.Listen(ctx, "tcp", address)
}

// longestSocket is what the kernel's address of a Unix socket has room for.
const longestSocket = 107

// CheckAddress says why Listen would not listen there, whatever the machine is like.
func CheckAddress(address string) error {
	if path, isSocket := strings.CutPrefix(address, "unix://"); isSocket {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%q: want an absolute path, like unix:///run/herald/herald.sock", address)
		}
		if len(path) > longestSocket {
			return fmt.Errorf("%q: a socket's path has at most %d bytes, this one has %d", address, longestSocket, len(path))
		}
		if strings.HasSuffix(path, "/") {
			return fmt.Errorf("%q: want the path of a socket, not of a folder", address)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q: want unix:///path or 127.0.0.1:port", address)
	}
	if !isLoopback(host) {
		return fmt.Errorf("%q: %q is not a loopback address, like 127.0.0.1; who asks is not checked, so others must not reach it",
			address, host)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: want a port from 0 to 65535", address)
	}
	return nil
}

func listenSocket(ctx context.Context, config net.ListenConfig, path string) (net.Listener, error) {
	if found, err := os.Lstat(path); err == nil {
		if found.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("listen on %s: there is something that is no socket", path)
		}
		switch connection, err := (&net.Dialer{}).DialContext(ctx, "unix", path); {
		case err == nil:
			_ = connection.Close()
			return nil, fmt.Errorf("listen on %s: another process does already", path)
		case !errors.Is(err, syscall.ECONNREFUSED): // there may well be somebody
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
	}
	config.Control = ownersOnly
	return config.Listen(ctx, "unix", path)
}

// ownersOnly sets the mode before the socket has a name, so that at no moment another user may connect.
func ownersOnly(_, _ string, socket syscall.RawConn) error {
	var failed error
	err := socket.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), 0o600) })
	return errors.Join(err, failed)
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// onlyByLocalNames refuses requests to a name that is not this machine's own: a web page can make a browser ask its own name,
// have that name lead here, and read the answer.
func onlyByLocalNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !isLoopback(strings.Trim(host, "[]")) {
			http.Error(w, "this server is asked by the name localhost or a loopback address only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
