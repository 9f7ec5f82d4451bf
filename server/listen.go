package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// Listen opens an address that only this machine can reach: unix:///run/herald/herald.sock, or an address like
// 127.0.0.1:10255. A socket that a dead agent left is replaced; it is for its owner only.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	if path, isSocket := strings.CutPrefix(address, "unix://"); isSocket {
		return listenSocket(ctx, config, path)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w (want unix:///path or 127.0.0.1:port)", address, err)
	}
	if !isLoopback(host) {
		return nil, fmt.Errorf("listen on %q: %s is not a loopback address; who asks is not checked, so others must not reach it", address, host)
	}
	return config.Listen(ctx, "tcp", address)
}

func listenSocket(ctx context.Context, config net.ListenConfig, path string) (net.Listener, error) {
	if found, err := os.Lstat(path); err == nil {
		if found.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("listen on %s: there is something that is no socket", path)
		}
		if connection, err := (&net.Dialer{}).DialContext(ctx, "unix", path); err == nil {
			_ = connection.Close()
			return nil, fmt.Errorf("listen on %s: another process does already", path)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
	}
	listener, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), listener.Close())
	}
	return listener, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
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
