// Package client queries the local server of an agent.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/server"
)

// AddressVariable is the environment variable with the default address of the agent.
const AddressVariable = "HERALD_SERVER"

// DefaultAddress returns the address in AddressVariable, or fallback if it is not set.
func DefaultAddress(fallback string) string { return cmp.Or(os.Getenv(AddressVariable), fallback) }

// CheckAddress returns an error if the address is not valid for New.
func CheckAddress(address string) error { return server.CheckAddress(trimURL(address)) }

func trimURL(address string) string {
	return strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/")
}

// UnreachableError reports that the agent could not be reached or closed the connection, and how to fix it.
type UnreachableError struct {
	Address string
	Err     error
}

func (e *UnreachableError) Error() string {
	var netErr net.Error
	switch {
	case errors.Is(e.Err, io.EOF) || errors.Is(e.Err, io.ErrUnexpectedEOF):
		return fmt.Sprintf("the agent at %s closed the connection", e.Address)
	case errors.Is(e.Err, fs.ErrPermission):
		return fmt.Sprintf("cannot connect to the agent at %s: %v\n"+
			"Only the owner of the socket has access: run this command as the user that runs the agent, for example with sudo",
			e.Address, rootCause(e.Err))
	case errors.As(e.Err, &netErr) && netErr.Timeout():
		return fmt.Sprintf("the agent at %s did not respond in time\n"+
			"The agent may be stopped or the machine overloaded; use --request-timeout to wait longer", e.Address)
	default:
		return fmt.Sprintf("cannot connect to the agent at %s: %v\n"+
			"Is 'herald run' running? Use --server or %s to set another address", e.Address, rootCause(e.Err), AddressVariable)
	}
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// rootCause returns the system error without the wrappers that repeat the address.
func rootCause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// Client queries one agent. It is safe for concurrent use.
type Client struct {
	address, host string
	http          http.Client
}

// dialTimeout bounds how long a local agent takes to accept a connection.
const dialTimeout = 5 * time.Second

// New returns a client of the agent at unix:///path or 127.0.0.1:port. The timeout bounds the wait for response headers; zero
// means no timeout.
func New(address string, timeout time.Duration) *Client {
	c := &Client{address: address, host: trimURL(address)}
	dialer := &net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, ResponseHeaderTimeout: timeout}
	if socket, isSocket := strings.CutPrefix(address, "unix://"); isSocket {
		c.host = "localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	c.http.Transport = transport
	return c
}

// Proxy returns a handler that forwards requests to the agent as they are, and streams its responses. An agent that does not answer is
// status 502.
func (c *Client) Proxy() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", c.host, c.host
			r.Out.Header.Del("Origin")
		},
		Transport: c.http.Transport, FlushInterval: -1,
		ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, (&UnreachableError{c.address, err}).Error(), http.StatusBadGateway)
		},
	}
}

// ResponseError is a response of the agent that reports a failure.
type ResponseError struct {
	// Code is the HTTP status.
	Code int
	text string
}

func (e *ResponseError) Error() string { return e.text }

// IsNotFound reports that the agent does not have what was asked for.
func IsNotFound(err error) bool {
	var response *ResponseError
	return errors.As(err, &response) && response.Code == http.StatusNotFound
}

func (c *Client) newResponseError(response *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err == nil && status.Kind == "Status" && status.Message != "" {
		return &ResponseError{response.StatusCode, table.Printable(status.Message)}
	}
	const maxText = 1 << 10
	text := table.Printable(response.Status + ": " + strings.TrimSpace(string(body[:min(len(body), maxText)])))
	text = fmt.Sprintf("the agent at %s responded with %s", c.address, text)
	if response.StatusCode == http.StatusNotFound {
		text += "; is it older than this command?"
	}
	return &ResponseError{response.StatusCode, text}
}

func (c *Client) get(ctx context.Context, path string) (io.ReadCloser, error) {
	return c.do(ctx, http.MethodGet, path, nil)
}

func (c *Client) do(ctx context.Context, method, path string, content io.Reader) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+c.host+path, content)
	if err != nil {
		return nil, fmt.Errorf("invalid address %q: must be unix:///path or 127.0.0.1:port", c.address)
	}
	if content != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, &UnreachableError{c.address, err}
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, c.newResponseError(response)
	}
	return response.Body, nil
}

// Pods lists the pods of the node, sorted by namespace and name.
func (c *Client) Pods(ctx context.Context) ([]v1.Pod, error) {
	body, err := c.get(ctx, "/pods")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var list v1.PodList
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return nil, fmt.Errorf("invalid response from %s, which may not be an agent: %w", c.address, err)
	}
	return list.Items, nil
}

// PodEvent is a change of a pod.
type PodEvent struct {
	Type   watch.EventType
	Object v1.Pod
}

// Watch calls handle with an Added event for each existing pod and then with every change. It returns nil when ctx ends, and
// an error when the connection is closed or handle fails.
func (c *Client) Watch(ctx context.Context, handle func(PodEvent) error) error {
	body, err := c.get(ctx, "/pods?watch=true")
	if err != nil {
		return err
	}
	defer body.Close()
	for decoder := json.NewDecoder(body); ; {
		var event PodEvent
		if err := decoder.Decode(&event); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return &UnreachableError{c.address, err}
		}
		if err := handle(event); err != nil {
			return err
		}
	}
}
