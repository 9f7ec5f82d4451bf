package source

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
)

// maxRedirects is how often a server may send us on within itself.
const maxRedirects = 5

// checkURL says whether pods may be read from there. Whoever can change them on the way is root on this node.
func checkURL(raw string, allowInsecure bool) (*url.URL, error) {
	if raw == "" {
		return nil, errors.New("required")
	}
	target, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("not a URL") // the cause would repeat the text, and any password in it
	}
	switch {
	case target.Hostname() == "":
		return nil, errors.New("has no host")
	case target.Scheme == "https":
		return target, nil
	case target.Scheme != "http":
		return nil, fmt.Errorf("scheme %q: want https", target.Scheme)
	case allowInsecure || isLoopback(target.Hostname()):
		return target, nil
	default:
		return nil, fmt.Errorf("%s is plain http to another machine: use https, or set AllowInsecure", display(target))
	}
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// display is the URL without its user, password, query and fragment, in which people put secrets.
func display(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// checkRedirect allows a server to send us to another of its own paths, and nowhere else: the headers that we send may
// hold credentials, and the configuration names who is trusted.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0].URL
	if next.URL.Scheme != first.Scheme || hostPort(next.URL) != hostPort(first) {
		return fmt.Errorf("redirect from %s://%s to %s://%s refused: only the configured server is trusted",
			first.Scheme, first.Host, next.URL.Scheme, next.URL.Host)
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	return nil
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
