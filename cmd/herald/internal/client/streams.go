package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Container names a container of a pod.
type Container struct{ Namespace, Pod, Name string }

func (c Container) path(resource string) string {
	path := "/" + resource + "/" + url.PathEscape(c.Namespace) + "/" + url.PathEscape(c.Pod)
	if c.Name != "" {
		path += "/" + url.PathEscape(c.Name)
	}
	return path
}

// StreamOptions are the streams of a command. Those that are nil are not used; a terminal has no stderr.
type StreamOptions = remotecommand.StreamOptions

// TerminalSize is the size of a terminal.
type TerminalSize = remotecommand.TerminalSize

// ExitCode returns the exit code of a command that failed.
func ExitCode(err error) (code int, hasExited bool) {
	var exit exec.CodeExitError
	if errors.As(err, &exit) {
		return exit.Code, true
	}
	return 0, false
}

// Exec runs a command in a container.
func (c *Client) Exec(ctx context.Context, container Container, command []string, options StreamOptions) error {
	parameters := streamParameters(options)
	parameters["command"] = command
	return c.stream(ctx, container.path("exec"), parameters, options)
}

// Attach connects the streams with those of a container.
func (c *Client) Attach(ctx context.Context, container Container, options StreamOptions) error {
	return c.stream(ctx, container.path("attach"), streamParameters(options), options)
}

// streamParameters returns the parameters of the kubelet.
func streamParameters(options StreamOptions) url.Values {
	parameters := url.Values{}
	for name, isSet := range map[string]bool{
		"input": options.Stdin != nil, "output": options.Stdout != nil, "error": options.Stderr != nil, "tty": options.Tty,
	} {
		if isSet {
			parameters.Set(name, "1")
		}
	}
	return parameters
}

func (c *Client) stream(ctx context.Context, path string, parameters url.Values, options StreamOptions) error {
	transport, err := c.upgrader()
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewSPDYExecutorForTransports(
		transport, clientspdy.NewUpgraderForStreaming(transport), http.MethodPost, c.streamURL(path, parameters))
	if err != nil {
		return err
	}
	ctx = klog.NewContext(ctx, logr.Discard()) // it logs that a command did not read all its input
	return executor.StreamWithContext(ctx, options)
}

func (c *Client) streamURL(path string, parameters url.Values) *url.URL {
	return &url.URL{Scheme: "http", Host: c.host, Path: path, RawQuery: parameters.Encode()}
}

// upgrader returns a transport for one stream.
func (c *Client) upgrader() (*spdy.SpdyRoundTripper, error) {
	return spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: c.http.Transport})
}

// Forwarding is a set of local ports that are forwarded to ports of a pod.
type Forwarding struct {
	Namespace, Pod string
	// Addresses are those to listen on. Ports are of the form [LOCAL:]REMOTE.
	Addresses, Ports []string
	// Out gets a line for each port and connection, ErrOut one for each error.
	Out, ErrOut io.Writer
}

// ForwardPorts forwards connections until ctx ends, the pod ends, or a connection fails.
func (c *Client) ForwardPorts(ctx context.Context, f Forwarding) error {
	transport, err := c.upgrader()
	if err != nil {
		return err
	}
	path := Container{Namespace: f.Namespace, Pod: f.Pod}.path("portForward")
	dialer := clientspdy.NewDialerForStreaming(
		clientspdy.NewUpgraderForStreaming(transport), &http.Client{Transport: transport}, http.MethodPost, c.streamURL(path, nil))
	forwarder, err := portforward.NewOnAddressesForStreaming(dialer, f.Addresses, f.Ports, ctx.Done(), nil, f.Out, f.ErrOut)
	if err != nil {
		return err
	}
	// The forwarder reports errors of connections to this list only.
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(_ context.Context, err error, message string, _ ...any) {
		if err != nil {
			message = err.Error()
		}
		fmt.Fprintln(f.ErrOut, message)
	}}
	return forwarder.ForwardPorts()
}
