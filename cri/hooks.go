package cri

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/internal/nodeaddress"
)

const (
	maxHookOutput    = 1 << 10   // bytes of a failed command's output in the error
	maxHookHeaders   = 128 << 10 // bytes of response headers
	maxHookBody      = 10 << 10  // bytes of response body
	maxHookRedirects = 10
)

// hook is a postStart or preStop handler of a running container.
type hook struct {
	pod         *v1.Pod
	container   *v1.Container
	handler     *v1.LifecycleHandler
	containerID string
	ips         []netip.Addr
}

// runHook runs the handler until it completes or ctx ends.
func (r *Runtime) runHook(ctx context.Context, h hook) error {
	switch {
	case h.handler.Exec != nil:
		return r.runExecHook(ctx, h)
	case h.handler.HTTPGet != nil:
		if err := r.runHTTPHook(ctx, h); err != nil {
			return fmt.Errorf("HTTP lifecycle hook (%s) for Container %q in Pod %q failed - error: %w",
				h.handler.HTTPGet.Path, h.container.Name, criconfig.FormatPod(h.pod), err)
		}
		return nil
	case h.handler.Sleep != nil:
		return r.runSleepHook(ctx, time.Duration(h.handler.Sleep.Seconds)*time.Second)
	default: // tcpSocket, which the API server accepts and no agent runs
		return errors.New("invalid handler: it must have exec, httpGet or sleep")
	}
}

func (r *Runtime) runExecHook(ctx context.Context, h hook) error {
	command := h.handler.Exec.Command
	output, exitCode, err := r.execSync(ctx, timeoutSeconds(ctx), h.containerID, command)
	if err == nil && exitCode != 0 {
		err = fmt.Errorf("command '%s' exited with %d", strings.Join(command, " "), exitCode)
	}
	if err != nil {
		return fmt.Errorf("Exec lifecycle hook (%v) for Container %q in Pod %q failed - error: %w, message: %q",
			command, h.container.Name, criconfig.FormatPod(h.pod), err, output[:min(len(output), maxHookOutput)])
	}
	return nil
}

func (r *Runtime) runSleepHook(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		r.metrics.interruptedSleepHooks.Inc()
		return fmt.Errorf("container terminated before sleep hook finished: %w", ctx.Err())
	}
}

// runHTTPHook sends one request. As for the kubelet, any response is a success, whatever its status code.
func (r *Runtime) runHTTPHook(ctx context.Context, h hook) error {
	target, err := hookURL(h)
	if err != nil {
		return err
	}
	client := newHookClient(h, r.config.AllowNodeAddresses)
	err = sendHookRequest(ctx, client, target, h.handler.HTTPGet.HTTPHeaders)
	if !errors.Is(err, http.ErrSchemeMismatch) {
		return err
	}
	target.Scheme = "http"
	if httpErr := sendHookRequest(ctx, client, target, withoutAuthorization(h.handler.HTTPGet.HTTPHeaders)); httpErr != nil {
		return errors.Join(err, httpErr)
	}
	r.metrics.hookHTTPFallbacks.Inc()
	r.warnPod(h.pod, eventHTTPFallback, "request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", target.Host)
	return nil
}

// newHookClient returns a client with the limits of a pod's hook: it neither reaches the node or a metadata service by a
// host of the spec, unless that is allowed, nor follows a redirect to another host.
func newHookClient(h hook, allowNodeAddresses bool) *http.Client {
	dialer := &net.Dialer{}
	if h.handler.HTTPGet.Host != "" && !h.pod.Spec.HostNetwork && !allowNodeAddresses {
		dialer.Control = nodeaddress.Control
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:       dialer.DialContext,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the node has no way to know a pod's certificate
			DisableKeepAlives: true, MaxResponseHeaderBytes: maxHookHeaders,
		},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if next.URL.Hostname() != via[0].URL.Hostname() || len(via) >= maxHookRedirects {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

// withoutAuthorization returns the headers for a request without TLS: credentials are never sent in plain text.
func withoutAuthorization(headers []v1.HTTPHeader) []v1.HTTPHeader {
	var rest []v1.HTTPHeader
	for _, header := range headers {
		if http.CanonicalHeaderKey(header.Name) != "Authorization" {
			rest = append(rest, header)
		}
	}
	return rest
}

func sendHookRequest(ctx context.Context, client *http.Client, target *url.URL, headers []v1.HTTPHeader) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	for _, header := range headers {
		if name := http.CanonicalHeaderKey(header.Name); name == "Host" {
			request.Host = header.Value
		} else {
			request.Header.Add(name, header.Value)
		}
	}
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", "kube-lifecycle/1.36")
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxHookBody)
	return response.Body.Close()
}

func hookURL(h hook) (*url.URL, error) {
	action := h.handler.HTTPGet
	port, err := portNumber(action.Port, h.container.Ports)
	if err != nil {
		return nil, err
	}
	host := action.Host
	switch {
	case host != "":
	case len(h.ips) > 0:
		host = h.ips[0].String()
	case h.pod.Spec.HostNetwork:
		host = "127.0.0.1"
	default:
		return nil, errors.New("httpGet: the pod has no IP address")
	}
	target, err := url.Parse(action.Path)
	if err != nil {
		return nil, fmt.Errorf("httpGet.path: %w", err)
	}
	target.Scheme = strings.ToLower(string(action.Scheme))
	if target.Scheme == "" {
		target.Scheme = "http"
	}
	target.Host = net.JoinHostPort(host, strconv.Itoa(port))
	return target, nil
}

func portNumber(port intstr.IntOrString, containerPorts []v1.ContainerPort) (int, error) {
	if port.Type == intstr.Int {
		return port.IntValue(), nil
	}
	for _, containerPort := range containerPorts {
		if containerPort.Name == port.StrVal {
			return int(containerPort.ContainerPort), nil
		}
	}
	number, err := strconv.Atoi(port.StrVal)
	if err != nil {
		return 0, fmt.Errorf("httpGet.port: the container has no port named %q", port.StrVal)
	}
	return number, nil
}
