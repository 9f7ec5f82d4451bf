package source

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/permission"
	"github.com/heraldnode/herald/internal/unixsocket"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

// maxRedirects is the number of redirects within the server that are followed.
const maxRedirects = 5

// HTTPConfig configures an HTTP source.
type HTTPConfig struct {
	// URL serves a pod or a list of pods. Required. Its server must be authenticated, because it is root on this node:
	//   - https://HOST/PATH
	//   - unix:///PATH, a socket: the kernel reports its listener, which must be root or the agent's user. "/" is requested.
	//   - http://HOST:PORT/PATH with a loopback address and a port below 1024, which only root can listen on
	URL string
	// NodeName is the name of the node that runs the pods. Required.
	NodeName string
	// Period is the interval between requests. Defaults to 20s.
	Period time.Duration
	// Timeout limits a request, from the connection to the last byte. Defaults to 10s.
	Timeout time.Duration
	// Header is sent with every request. It is never logged, because it may contain credentials. Default: none.
	Header http.Header
	// RootCAs verifies the server's certificate. Defaults to CAFile or the system's pool.
	RootCAs *x509.CertPool
	// CAFile contains CA certificates, CertFile and KeyFile the client certificate and its key, all in PEM. They are read
	// before each request. CAFile excludes RootCAs. CertFile and KeyFile require each other. Default: none.
	CAFile, CertFile, KeyFile string
	// AllowInsecure permits plain http to other machines and to ports that any local user can listen on, although an attacker
	// can then start any pod. Defaults to false.
	AllowInsecure bool
	// Decode decodes a response. Defaults to manifest.Decode.
	Decode Decoder
}

// HTTP reads static pods from a URL. Run is called once. Its goroutine owns all fields.
type HTTP struct {
	config   HTTPConfig
	url      *url.URL
	location string // the URL without secrets
	client   httpClient

	applied   [sha256.Size]byte // digest of the body of the last reported set, zero if none
	pods      []*v1.Pod         // of that set
	appliedAt time.Time         // when that set was read
	validator validator         // of that body
}

// NewHTTP returns an HTTP source. It returns an error if the configuration is invalid.
func NewHTTP(config HTTPConfig) (*HTTP, error) {
	target, err := parseURL(config.URL, config.AllowInsecure)
	if err != nil {
		err = fmt.Errorf("source.HTTPConfig: URL %w", err)
	}
	if err := errors.Join(err, config.validate()); err != nil {
		return nil, err
	}
	config.Period = cmp.Or(config.Period, 20*time.Second)
	config.Timeout = cmp.Or(config.Timeout, 10*time.Second)
	if config.Decode == nil {
		config.Decode = manifest.Decode
	}
	config.Header = config.Header.Clone()
	return &HTTP{config: config, url: target, location: withoutSecrets(target)}, nil
}

// CheckURL returns an error if NewHTTP does not accept the URL without AllowInsecure. The error reads as the end of a
// sentence about the URL and contains no secrets.
func CheckURL(rawURL string) error {
	_, err := parseURL(rawURL, false)
	return err
}

// validate checks all fields but URL.
func (c HTTPConfig) validate() error {
	var errs []error
	if c.NodeName == "" {
		errs = append(errs, errors.New("source.HTTPConfig: NodeName is required"))
	}
	if c.Period < 0 {
		errs = append(errs, errors.New("source.HTTPConfig: Period must not be negative"))
	}
	if c.Timeout < 0 {
		errs = append(errs, errors.New("source.HTTPConfig: Timeout must not be negative"))
	}
	if c.RootCAs != nil && c.CAFile != "" {
		errs = append(errs, errors.New("source.HTTPConfig: CAFile must not be set with RootCAs"))
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		errs = append(errs, errors.New("source.HTTPConfig: CertFile and KeyFile must be set together"))
	}
	return errors.Join(errs...)
}

// parseURL parses the URL and checks that pods may be read from it. An attacker who can modify them in transit is root on
// this node.
func parseURL(raw string, allowInsecure bool) (*url.URL, error) {
	if raw == "" {
		return nil, errors.New("is required")
	}
	target, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("must be a valid URL") // the cause would contain a password in the URL
	}
	switch {
	case target.Scheme == "unix":
		return target, checkSocketURL(target)
	case target.Hostname() == "":
		return nil, errors.New("must have a host")
	case target.Scheme == "https":
		return target, nil
	case target.Scheme != "http":
		return nil, fmt.Errorf("must be https, not %q", target.Scheme)
	case allowInsecure || isLoopback(target.Hostname()) && isPrivilegedPort(target.Port()):
		return target, nil
	case isLoopback(target.Hostname()):
		return nil, fmt.Errorf("must be https, unix:///PATH or have a port below %d: any local user can serve %s while its server is down",
			unprivilegedPortStart(), withoutSecrets(target))
	default:
		return nil, fmt.Errorf("must be https: an attacker who can modify responses of %s in transit could gain root", withoutSecrets(target))
	}
}

func checkSocketURL(target *url.URL) error {
	if target.Host != "" || target.RawQuery != "" {
		return errors.New("of a socket must have the form unix:///PATH")
	}
	if err := unixsocket.CheckPath(target.Path); err != nil {
		return fmt.Errorf("of a socket must have the form unix:///PATH: %w", err)
	}
	return nil
}

// maxPrivilegedPort is the last port that only root may listen on by default.
const maxPrivilegedPort = 1023

// isPrivilegedPort reports whether only root can listen on the port. The empty port is 80.
func isPrivilegedPort(port string) bool {
	number, err := strconv.ParseUint(cmp.Or(port, "80"), 10, 16)
	return err == nil && number < unprivilegedPortStart()
}

// unprivilegedPortStart returns the first port that every user can listen on. An administrator can lower it.
func unprivilegedPortStart() uint64 {
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	if err != nil {
		return maxPrivilegedPort + 1
	}
	start, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 32)
	if err != nil {
		return maxPrivilegedPort + 1
	}
	return min(start, maxPrivilegedPort+1)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// withoutSecrets returns the URL without user, password, query and fragment, which may be secret.
func withoutSecrets(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Origin returns the URL without secrets.
func (h *HTTP) Origin() string { return h.location }

// Name implements Source.
func (h *HTTP) Name() podid.Source { return podid.HTTP }

// Run implements Source. Whatever fails, the last valid set is kept (CFG-26, BUG-21).
func (h *HTTP) Run(ctx context.Context, sink Sink) error {
	defer h.client.close()
	ticker := time.NewTicker(h.config.Period)
	defer ticker.Stop()
	for {
		problems := h.poll(ctx, sink)
		if ctx.Err() != nil {
			return nil
		}
		sink.Report(withLastGood(problems, h.pods, h.appliedAt))
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// poll requests the URL once. It reports a set only if the body differs from the body of the last reported set, so that the
// same valid body after an invalid one is no change, and the first one after a start is one (CFG-28).
func (h *HTTP) poll(ctx context.Context, sink Sink) []Problem {
	response, err := h.fetch(ctx)
	if err != nil {
		return []Problem{{Location: h.location, Message: err.Error(), Unavailable: true}}
	}
	digest := sha256.Sum256(response.body)
	switch {
	case response.notModified:
		return nil
	case digest == h.applied:
		h.validator = response.validator
		return nil
	}
	pods, err := h.config.Decode(response.body, manifest.Origin{Source: podid.HTTP, Location: h.location, NodeName: h.config.NodeName})
	if errors.Is(err, manifest.ErrEmpty) {
		// The kubelet treats it as "no pods" and terminates all of them (CFG-27). A server fault must not do that.
		return []Problem{{Location: h.location, Message: "the server sent an empty document; its pods are kept; " +
			"to remove all pods, serve a list with `items: []`"}}
	}
	if err != nil {
		return decodeProblems(h.location, err)
	}
	sink.Replace(pods)
	h.applied, h.validator = digest, response.validator
	h.pods, h.appliedAt = pods, time.Now()
	return nil
}

// fetched is the result of one request.
type fetched struct {
	notModified bool // the body of the last reported set is still current
	body        []byte
	validator   validator
}

// validator is what a server recognizes a version of its content by.
type validator struct {
	etag, lastModified string
}

func (v validator) addTo(header http.Header) {
	if v.etag != "" {
		header.Set("If-None-Match", v.etag)
	}
	if v.lastModified != "" {
		header.Set("If-Modified-Since", v.lastModified)
	}
}

// fetch requests the URL. Size and duration of the whole response are limited, so that neither a flood nor a trickle can
// block the agent.
func (h *HTTP) fetch(ctx context.Context) (fetched, error) {
	client, err := h.client.get(h.config)
	if err != nil {
		return fetched{}, err
	}
	target := h.url.String()
	if h.url.Scheme == "unix" {
		target = "http://localhost/"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fetched{}, errors.New("the URL is not valid")
	}
	if h.config.Header != nil {
		request.Header = h.config.Header.Clone()
	}
	if host := request.Header.Get("Host"); host != "" {
		request.Host = host
	}
	h.validator.addTo(request.Header)
	response, err := client.Do(request)
	if err != nil {
		return fetched{}, fmt.Errorf("cannot be read: %w", withoutURL(err))
	}
	defer response.Body.Close()
	return h.readResponse(response)
}

func (h *HTTP) readResponse(response *http.Response) (fetched, error) {
	switch {
	case response.StatusCode == http.StatusNotModified && h.validator != validator{}:
		return fetched{notModified: true}, nil
	case response.StatusCode != http.StatusOK:
		return fetched{}, fmt.Errorf("the server responded with %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	case response.ContentLength > manifest.MaxBytes:
		return fetched{}, errResponseTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, manifest.MaxBytes+1))
	if err != nil {
		return fetched{}, fmt.Errorf("cannot be read completely: %w", withoutURL(err))
	}
	if len(body) > manifest.MaxBytes {
		return fetched{}, errResponseTooLarge
	}
	return fetched{body: body, validator: validator{
		etag: response.Header.Get("ETag"), lastModified: response.Header.Get("Last-Modified"),
	}}, nil
}

var errResponseTooLarge = fmt.Errorf("the response is larger than %d bytes, the maximum size of a manifest", manifest.MaxBytes)

// withoutURL removes the URL from an error: its query may be secret, and the problem names the location.
func withoutURL(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// httpClient provides an http.Client with the current certificates. It is not safe for concurrent use.
type httpClient struct {
	client *http.Client
	pems   [3][]byte // content of the CA, certificate and key files that client uses
}

// get reads the certificate files and returns a client that uses them.
func (c *httpClient) get(config HTTPConfig) (*http.Client, error) {
	var pems [3][]byte
	for i, path := range [...]string{config.CAFile, config.CertFile, config.KeyFile} {
		if path == "" {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("cannot be read without certificates: %w", err)
		}
		check := permission.New("start pods").CheckFile
		if path == config.KeyFile {
			check = permission.New("start pods").CheckSecret
		}
		if err := check(path); err != nil {
			return nil, fmt.Errorf("cannot be read without certificates: %w", err)
		}
		pems[i] = data
	}
	if c.client != nil && c.uses(pems) {
		return c.client, nil
	}
	tlsConfig, err := newTLSConfig(config, pems)
	if err != nil {
		return nil, err
	}
	c.close()
	c.pems = pems
	transport := &http.Transport{
		Proxy:                  nil, // a proxy from the environment would have to be trusted too
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    config.Timeout,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConns:           1,
		IdleConnTimeout:        time.Minute,
		ForceAttemptHTTP2:      true,
		// Without pings, a dead connection is used until the kernel gives it up after a quarter of an hour (F3).
		HTTP2: &http.HTTP2Config{SendPingTimeout: config.Timeout, PingTimeout: config.Timeout},
	}
	if socket, isSocket := strings.CutPrefix(config.URL, "unix://"); isSocket {
		transport.DialContext = dialSocket(socket)
	}
	c.client = &http.Client{Timeout: config.Timeout, CheckRedirect: checkRedirect, Transport: transport}
	return c.client, nil
}

// dialSocket returns a dialer that connects to the socket, whatever the address, and checks its listener.
func dialSocket(socket string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, err
		}
		if err := permission.New("start pods").CheckPeer(conn.(*net.UnixConn)); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	}
}

func (c *httpClient) uses(pems [3][]byte) bool {
	for i := range pems {
		if !bytes.Equal(c.pems[i], pems[i]) {
			return false
		}
	}
	return true
}

func (c *httpClient) close() {
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
}

func newTLSConfig(config HTTPConfig, pems [3][]byte) (*tls.Config, error) {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: config.RootCAs}
	if authorities := pems[0]; authorities != nil {
		tlsConfig.RootCAs = x509.NewCertPool()
		if !tlsConfig.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("cannot be read without certificates: %s contains no PEM certificate", config.CAFile)
		}
	}
	if pems[1] != nil {
		pair, err := tls.X509KeyPair(pems[1], pems[2])
		if err != nil {
			return nil, fmt.Errorf("cannot be read without certificates: %s and %s: %w",
				config.CertFile, config.KeyFile, err)
		}
		tlsConfig.Certificates = []tls.Certificate{pair}
	}
	return tlsConfig, nil
}

// checkRedirect allows redirects within the server only: the headers may contain credentials, and the configuration names
// the trusted server.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0].URL
	if next.URL.Scheme != first.Scheme || hostPort(next.URL) != hostPort(first) {
		return fmt.Errorf("redirect from %s://%s to %s://%s rejected: only the configured server is trusted",
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
