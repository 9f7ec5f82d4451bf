// Package client asks an agent about its pods.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/server"
)

// AddressVariable is the environment variable that names an agent where no flag does.
const AddressVariable = "HERALD_SERVER"

// UnreachableError says that no agent answers, or not any more, and what to do about it.
type UnreachableError struct {
	Address string
	Err     error
}

func (e *UnreachableError) Error() string {
	if errors.Is(e.Err, io.EOF) || errors.Is(e.Err, io.ErrUnexpectedEOF) {
		return fmt.Sprintf("the agent at %s has ended", e.Address)
	}
	remedy := "Is 'herald run' running? Another address is named with --server or " + AddressVariable
	var slow net.Error
	switch {
	case errors.Is(e.Err, fs.ErrPermission):
		remedy = "A socket answers its owner only: ask as the user that runs the agent, for instance with sudo"
	case errors.As(e.Err, &slow) && slow.Timeout():
		return fmt.Sprintf("the agent at %s does not answer in time\n"+
			"Is it stopped, or the machine overloaded? More time is given with --request-timeout", e.Address)
	}
	return fmt.Sprintf("no agent answers at %s: %v\n%s", e.Address, plain(e.Err), remedy)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// plain is the cause that the machine gave, without the wrapping that repeats the address.
func plain(err error) error {
	var cause syscall.Errno
	if errors.As(err, &cause) {
		return cause
	}
	return err
}

// Client asks one agent. Any goroutine may use it.
type Client struct {
	address, host string
	http          http.Client
}

// dialTimeout is how long an agent on this machine may take to take a call.
const dialTimeout = 5 * time.Second

// CheckAddress says why there can be no agent at that address.
func CheckAddress(address string) error { return server.CheckAddress(hostOf(address)) }

func hostOf(address string) string {
	return strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/")
}

// New makes a client of the agent at unix:///path or 127.0.0.1:port, which may take that long until it begins to answer; 0: as
// long as it likes.
func New(address string, patience time.Duration) *Client {
	c := &Client{address: address, host: hostOf(address)}
	dialer := &net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, ResponseHeaderTimeout: patience}
	if socket, isSocket := strings.CutPrefix(address, "unix://"); isSocket {
		c.host = "localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	c.http.Transport = transport
	return c
}

func (c *Client) get(ctx context.Context, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.host+path, nil)
	if err != nil {
		return nil, fmt.Errorf("%q is no address: want unix:///path or 127.0.0.1:port", c.address)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, &UnreachableError{c.address, err}
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		why, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		said := table.Printable(answer.Status + ": " + strings.TrimSpace(string(why)))
		return nil, fmt.Errorf("the agent at %s answers %s", c.address, said)
	}
	return answer.Body, nil
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
		return nil, fmt.Errorf("what answers at %s is no agent, or has ended: %w", c.address, err)
	}
	return list.Items, nil
}

// Change is what happened to a pod.
type Change struct {
	Type   watch.EventType
	Object v1.Pod
}

// Watch calls back with the pods that there are, and then with every change, until ctx ends, the agent does or the callback
// fails.
func (c *Client) Watch(ctx context.Context, each func(Change) error) error {
	body, err := c.get(ctx, "/pods?watch=true")
	if err != nil {
		return err
	}
	defer body.Close()
	for lines := json.NewDecoder(body); ; {
		var next Change
		if err := lines.Decode(&next); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return &UnreachableError{c.address, err}
		}
		if err := each(next); err != nil {
			return err
		}
	}
}

// DefaultAddress is the agent that is asked when none is named.
func DefaultAddress(otherwise string) string {
	if address := os.Getenv(AddressVariable); address != "" {
		return address
	}
	return otherwise
}
