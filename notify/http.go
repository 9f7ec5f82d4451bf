package notify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// maxRetryAfter caps Retry-After. A longer one comes from a gateway under maintenance, and nothing else would end the wait.
	maxRetryAfter = 5 * time.Minute
	maxResponse   = 64 << 10 // of which maxReason is part of the error
	maxReason     = 200
	maxFile       = 64 << 10 // of tokens and passwords
	userAgent     = "herald"
)

// responseError is an answer other than success.
type responseError struct {
	code       int
	reason     string
	retryAfter time.Duration
}

// Error has the code and the beginning of the answer.
func (e *responseError) Error() string {
	text := fmt.Sprintf("receiver answers %d %s", e.code, http.StatusText(e.code))
	if e.reason != "" {
		text += ": " + e.reason
	}
	return text
}

// isRefusal reports whether the same request would be refused again. A redirect is one, because it is not followed.
func (e *responseError) isRefusal() bool {
	return e.code >= 300 && e.code < 500 && e.code != http.StatusRequestTimeout && e.code != http.StatusTooManyRequests
}

// isAboutContent reports whether other alerts might be accepted.
func (e *responseError) isAboutContent() bool {
	return e.code == http.StatusBadRequest || e.code == http.StatusRequestEntityTooLarge || e.code == http.StatusUnprocessableEntity
}

// isUnheard reports whether the receiver has certainly not accepted a message.
func isUnheard(err error) bool {
	var response *responseError
	var network *net.OpError
	return errors.As(err, &response) && response.isRefusal() || errors.As(err, &network) && network.Op == "dial"
}

// client sends JSON to one URL.
type client struct {
	config HTTP
	url    string
	http   *http.Client
}

// transportFunc returns the transport of a client.
type transportFunc func(config HTTP, onlyLoopback bool) (http.RoundTripper, error)

// newClient checks the configuration. The path is appended to that of the URL.
func newClient(config HTTP, path string, newTransport transportFunc) (*client, error) {
	parsed, err := url.Parse(config.URL)
	switch {
	case err != nil:
		return nil, errors.New("the URL cannot be parsed") // it may contain a secret
	case !isURL(config.URL):
		return nil, errors.New("the URL must begin with http:// or https:// and have a host")
	case parsed.User != nil:
		return nil, errors.New("the URL must not have a user or a password: use the username, passwordFile and tokenFile")
	case parsed.Fragment != "":
		return nil, errors.New("the URL must not have a fragment")
	case config.TokenFile != "" && config.Username != "":
		return nil, errors.New("a username and a token exclude each other")
	case (config.Username == "") != (config.PasswordFile == ""):
		return nil, errors.New("a username needs a password file, and a password file a username")
	case (config.CertFile == "") != (config.KeyFile == ""):
		return nil, errors.New("a client certificate needs both its file and that of its key")
	}
	isPlain := parsed.Scheme == "http"
	hasCredentials := config.TokenFile != "" || config.Username != ""
	if isPlain && hasCredentials && !isLoopback(parsed.Hostname()) {
		return nil, errors.New("credentials are only sent over https or to a loopback address")
	}
	transport, err := newTransport(config, isPlain && isLoopback(parsed.Hostname()))
	if err != nil {
		return nil, err
	}
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	if path != "" {
		parsed = parsed.JoinPath(path)
	}
	return &client{config: config, url: parsed.String(), http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// isLoopback reports whether a host can only be this machine. What localhost resolves to is checked again when it is connected.
func isLoopback(host string) bool {
	address := net.ParseIP(host)
	return host == "localhost" || address != nil && address.IsLoopback()
}

// newTransport is the transportFunc for real servers.
func newTransport(config HTTP, onlyLoopback bool) (http.RoundTripper, error) {
	dialer := &net.Dialer{Timeout: defaultTimeout, KeepAlive: 30 * time.Second}
	if onlyLoopback {
		dialer.Control = checkLoopback
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: config.ServerName}
	if config.CAFile != "" {
		data, err := os.ReadFile(config.CAFile)
		if err != nil {
			return nil, err
		}
		if secure.RootCAs = x509.NewCertPool(); !secure.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("%s has no certificate in PEM", config.CAFile)
		}
	}
	if config.CertFile != "" {
		secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificate, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile)
			return &certificate, err
		}
	}
	return &http.Transport{ // no proxy: the environment of an agent must not decide where alerts go
		DialContext: dialer.DialContext, TLSClientConfig: secure, ForceAttemptHTTP2: true, DisableCompression: true,
		TLSHandshakeTimeout: defaultTimeout, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 1, MaxResponseHeaderBytes: maxResponse,
	}, nil
}

func checkLoopback(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err == nil && !isLoopback(host) {
		err = fmt.Errorf("%s is not a loopback address", host)
	}
	return err
}

// post sends the body. Any answer but 2xx is a *responseError. Errors do not contain the URL, which may be a secret.
func (c *client) post(ctx context.Context, body []byte, header map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL is not valid")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", userAgent)
	// Lets receivers drop duplicates, and lets net/http repeat a request on a new connection if an idle one turns out to be closed.
	sum := sha256.Sum256(body)
	request.Header.Set("Idempotency-Key", hex.EncodeToString(sum[:16]))
	for name, value := range header {
		request.Header.Set(name, value)
	}
	if err := c.authenticate(request); err != nil {
		return err
	}
	response, err := c.http.Do(request)
	var requestErr *url.Error
	if errors.As(err, &requestErr) {
		err = requestErr.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", c.config.Timeout)
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return checkResponse(response)
}

func (c *client) authenticate(request *http.Request) error {
	switch {
	case c.config.TokenFile != "":
		token, err := readSecret(c.config.TokenFile)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	case c.config.Username != "":
		password, err := readSecret(c.config.PasswordFile)
		if err != nil {
			return err
		}
		request.SetBasicAuth(c.config.Username, password)
	}
	return nil
}

// readSecret reads a file of one line.
func readSecret(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(data))
	if secret == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return secret, nil
}

func checkResponse(response *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return nil // the receiver has accepted it, even if the rest of its answer is lost
	}
	if err != nil {
		data = nil
	}
	reason := strings.Join(strings.Fields(strings.ToValidUTF8(string(data), "?")), " ")
	return &responseError{
		code: response.StatusCode, reason: truncate(reason, maxReason), retryAfter: retryAfter(response.Header.Get("Retry-After"), time.Now()),
	}
}

// retryAfter parses the header: seconds or a date.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(0, min(date.Sub(now), maxRetryAfter))
	}
	return 0
}

func (c *client) close() { c.http.CloseIdleConnections() }
