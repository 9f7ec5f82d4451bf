package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/heraldnode/herald/internal/unixsocket"
)

// Listen listens on a local address: unix:///run/herald/herald.sock, or a loopback address like 127.0.0.1:10255. A socket has
// mode 0600, and a stale socket is replaced.
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

// CheckAddress returns an error if the address is not valid for Listen.
func CheckAddress(address string) error {
	if path, isSocket := strings.CutPrefix(address, "unix://"); isSocket {
		if err := unixsocket.CheckPath(path); err != nil {
			return fmt.Errorf("%q: %w", address, err)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q: must be unix:///path or 127.0.0.1:port", address)
	}
	if !isLoopback(host) {
		return fmt.Errorf("%q: %q is not a loopback address, like 127.0.0.1; the server has no authentication",
			address, host)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: the port must be between 0 and 65535", address)
	}
	return nil
}

func listenSocket(ctx context.Context, config net.ListenConfig, path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("listen on %s: the file exists and is not a socket", path)
		}
		switch connection, err := (&net.Dialer{}).DialContext(ctx, "unix", path); {
		case err == nil:
			_ = connection.Close()
			return nil, fmt.Errorf("listen on %s: another process is listening", path)
		case !errors.Is(err, syscall.ECONNREFUSED): // another process may be listening
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
	}
	config.Control = setSocketMode
	return config.Listen(ctx, "unix", path)
}

// setSocketMode sets the mode before the socket is bound, so that other users can never connect.
func setSocketMode(_, _ string, socket syscall.RawConn) error {
	var chmodErr error
	err := socket.Control(func(fd uintptr) { chmodErr = syscall.Fchmod(int(fd), 0o600) })
	return errors.Join(err, chmodErr)
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// RequireLocalHost rejects requests for host names that are not local. It prevents DNS rebinding: a web page could point its
// own name at this address and read the response.
func RequireLocalHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !isLoopback(strings.Trim(host, "[]")) {
			http.Error(w, "requests must use localhost or a loopback address", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
