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
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// maxHookOutput is how many bytes of what a failed command said are told.
const maxHookOutput = 1 << 10

// hook is a postStart or preStop handler of a running container.
type hook struct {
	pod       *v1.Pod
	container *v1.Container
	handler   *v1.LifecycleHandler
	id        string
	ips       []netip.Addr
}

// runHook runs the handler to its end or until ctx ends.
func (r *Runtime) runHook(ctx context.Context, h hook) error {
	switch {
	case h.handler.Exec != nil:
		output, code, err := r.execSync(ctx, timeoutOf(ctx), h.id, h.handler.Exec.Command)
		if err == nil && code != 0 {
			err = fmt.Errorf("command '%s' exited with %d", strings.Join(h.handler.Exec.Command, " "), code)
		}
		if err != nil {
			return fmt.Errorf("Exec lifecycle hook (%v) for Container %q in Pod %q failed - error: %w, message: %q",
				h.handler.Exec.Command, h.container.Name, describe(h.pod), err, output[:min(len(output), maxHookOutput)])
		}
		return nil
	case h.handler.HTTPGet != nil:
		if err := r.runHTTPHook(ctx, h); err != nil {
			return fmt.Errorf("HTTP lifecycle hook (%s) for Container %q in Pod %q failed - error: %w",
				h.handler.HTTPGet.Path, h.container.Name, describe(h.pod), err)
		}
		return nil
	case h.handler.Sleep != nil:
		return r.runSleepHook(ctx, time.Duration(h.handler.Sleep.Seconds)*time.Second)
	default:
		return errors.New("lifecycle: the handler has neither exec, httpGet nor sleep")
	}
}

func (r *Runtime) runSleepHook(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		r.metrics.hookSleepsBroke.Inc()
		return fmt.Errorf("the container had to end before its sleep hook did: %w", ctx.Err())
	}
}

// runHTTPHook asks once. Any answer will do, as for the kubelet: the status code is between the hook and its server.
func (r *Runtime) runHTTPHook(ctx context.Context, h hook) error {
	target, err := hookURL(h)
	if err != nil {
		return err
	}
	client := hookClient(h)
	err = get(ctx, client, target, h.handler.HTTPGet.HTTPHeaders, true)
	if err == nil || !strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return err
	}
	target.Scheme = "http"
	if plainErr := get(ctx, client, target, h.handler.HTTPGet.HTTPHeaders, false); plainErr != nil {
		return errors.Join(err, plainErr)
	}
	r.metrics.hookHTTPFallbacks.Inc()
	r.warnPod(h.pod, eventHTTPFallback, "request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", target.Host)
	return nil
}

// hookClient makes requests as far as a pod's hook may: not to the node's own addresses by a name that the spec gives,
// and nowhere else than where the spec says, however often the server sends it on.
func hookClient(h hook) *http.Client {
	dialer := &net.Dialer{}
	if h.handler.HTTPGet.Host != "" && !h.pod.Spec.HostNetwork {
		dialer.Control = refuseNodeAddresses
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:       dialer.DialContext,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // pods have no certificate that the node could know
			DisableKeepAlives: true, MaxResponseHeaderBytes: 128 << 10,
		},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if next.URL.Hostname() != via[0].URL.Hostname() || len(via) >= maxHookRedirects {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

const maxHookRedirects = 10

// refuseNodeAddresses sees the address that a name was resolved to, so that no name leads around it. Probes are refused
// the same.
func refuseNodeAddresses(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if ip := to.Addr().Unmap(); ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() {
		return fmt.Errorf("%s is refused: a pod with a network of its own must not reach the node's loopback and link-local "+
			"addresses by its hooks; leave host empty, or set hostNetwork", ip)
	}
	return nil
}

// get asks once, and reads some of the answer. What is not private goes without what the headers keep secret.
func get(ctx context.Context, client *http.Client, target *url.URL, headers []v1.HTTPHeader, private bool) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	for _, header := range headers {
		switch name := http.CanonicalHeaderKey(header.Name); {
		case name == "Host":
			request.Host = header.Value
		case name == "Authorization" && !private: // never in the clear
		default:
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
	const enough = 10 << 10
	_, _ = io.CopyN(io.Discard, response.Body, enough)
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
		return nil, errors.New("httpGet: the pod has no address")
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

func portNumber(port intstr.IntOrString, named []v1.ContainerPort) (int, error) {
	if port.Type == intstr.Int {
		return port.IntValue(), nil
	}
	for _, one := range named {
		if one.Name == port.StrVal {
			return int(one.ContainerPort), nil
		}
	}
	number, err := strconv.Atoi(port.StrVal)
	if err != nil {
		return 0, fmt.Errorf("httpGet.port: the container has no port named %q", port.StrVal)
	}
	return number, nil
}
