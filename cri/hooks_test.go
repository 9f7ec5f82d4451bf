package cri_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

func TestPRB23_ExecTimeout(t *testing.T) {
	slow := func(_ context.Context, execute func() (any, error)) (any, error) {
		time.Sleep(5 * time.Second)
		return execute()
	}
	tests := map[string]struct {
		fault fault
		want  error
	}{
		"slow start":  {slow, nil},
		"no response": {hangs, context.DeadlineExceeded},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				c := h.startPod(newPod())
				ctx, cancel := context.WithTimeout(h.Context(), time.Second)
				defer cancel()
				h.fake.inject("ExecSync", test.fault)
				started := time.Now()
				if _, _, err := h.Exec(ctx, c.ID, []string{"true"}); !errors.Is(err, test.want) {
					h.Errorf("got error %v, want %v", err, test.want)
				}
				if took := time.Since(started); took > 15*time.Second {
					h.Errorf("got duration %s", took)
				}
			})
		})
	}
}

func TestPostStart_Failure(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hi"}}}}
		})
		h.fake.exitCode = 9
		err := h.startFirst(h.Context(), pod)
		want := `Exec lifecycle hook ([hi]) for Container "web" in Pod "shop_prod(uid-1)" failed - error: command 'hi' exited with 9, message: "outerr"`
		if waitingReason(err) != "PostStartHookError" || err.Error() != want {
			h.Errorf("got %s: %v", waitingReason(err), err)
		}
		if c := h.onlyContainer(pod); c.State != observed.Exited {
			h.Errorf("got container state %v", c.State)
		}
		events := h.events()
		if diff := cmp.Diff([]string{
			"Warning FailedPostStartHook spec.containers{web}: PostStartHook failed",
			"Normal Killing spec.containers{web}: FailedPostStartHook",
		}, events[len(events)-2:]); diff != "" {
			h.Error(diff)
		}
	})
}

// tcpSocket is accepted by the API server, and no agent runs it: the hook fails, as with the kubelet.
func TestPostStart_TCPSocket(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}}}
		})
		if err := h.startFirst(h.Context(), pod); waitingReason(err) != "PostStartHookError" || !strings.Contains(err.Error(), "invalid handler") {
			h.Errorf("got %s: %v", waitingReason(err), err)
		}
		if c := h.onlyContainer(pod); c.State != observed.Exited {
			h.Errorf("got container state %v, want exited", c.State)
		}
		if want := "Warning FailedPostStartHook spec.containers{web}: PostStartHook failed"; !slices.Contains(h.events(), want) {
			h.Errorf("got events %q, want %s", h.events(), want)
		}
	})
}

func TestPreStop_TCPSocket(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}}}
		})
		c := h.startPod(pod)
		if err := h.StopContainer(h.Context(), pod, plan.Stop{ID: c.ID, Container: &pod.Spec.Containers[0], Grace: 30 * time.Second}); err != nil {
			h.Fatal(err)
		}
		if want := "Warning FailedPreStopHook spec.containers{web}: PreStopHook failed"; !slices.Contains(h.events(), want) {
			h.Errorf("got events %q, want %s", h.events(), want)
		}
	})
}

func TestExecHook_OutputTruncated(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hi"}}}}
		})
		h.fake.exitCode, h.fake.output = 9, strings.Repeat("x", 1<<20)
		err := h.startFirst(h.Context(), pod)
		if err == nil || len(err.Error()) > 2000 {
			h.Errorf("got error %v, want one of at most 2000 bytes", err)
		}
	})
}

// newHookServer returns a server and its port. It needs a real socket, which a bubble does not support.
func newHookServer(t *testing.T, handler http.HandlerFunc) (*httptest.Server, int) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server, server.Listener.Addr().(*net.TCPAddr).Port
}

func TestHTTPHook_FallsBackToHTTP(t *testing.T) {
	var received []string
	_, port := newHookServer(t, func(response http.ResponseWriter, request *http.Request) {
		received = append(received, request.Host+request.URL.Path+" "+request.Header.Get("Authorization"))
		response.WriteHeader(http.StatusTeapot)
	})
	h := newHarness(t, t.TempDir())
	pod := newPod(func(pod *v1.Pod) {
		pod.Spec.HostNetwork = true
		pod.Spec.Containers[0].Ports = []v1.ContainerPort{{Name: "http", ContainerPort: int32(port)}}
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
			Path: "/started", Port: intstr.FromString("http"), Scheme: v1.URISchemeHTTPS,
			HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: "secret"}, {Name: "host", Value: "shop.test"}},
		}}}
	})
	if c := h.startPod(pod); c.State != observed.Running {
		t.Errorf("got container state %v", c.State)
	}
	if diff := cmp.Diff([]string{"shop.test/started "}, received); diff != "" {
		t.Error("want a fallback to HTTP without credentials:", diff)
	}
	want := fmt.Sprintf("Warning LifecycleHTTPFallback : request to HTTPS lifecycle hook 127.0.0.1:%d got HTTP response, "+
		"retry with HTTP succeeded", port)
	if events := h.events(); events[len(events)-1] != want {
		t.Errorf("got events %q", events)
	}
}

func TestHTTPHook_NodeAddresses(t *testing.T) {
	reached := 0
	_, port := newHookServer(t, func(http.ResponseWriter, *http.Request) { reached++ })
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", "169.254.169.254", "100.100.100.200", "fd00:ec2::254", "192.0.0.192"} {
		h := newHarness(t, t.TempDir())
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
				Host: strings.Trim(host, "[]"), Port: intstr.FromInt(port),
			}}}
		})
		err := h.startFirst(h.Context(), pod)
		if err == nil || !strings.Contains(err.Error(), "is not allowed") {
			t.Errorf("%s: got error %v", host, err)
		}
	}
	if reached > 0 {
		t.Errorf("got %d requests, want none", reached)
	}
}

func TestHTTPHook_RedirectToOtherHost(t *testing.T) {
	reached := 0
	other, _ := newHookServer(t, func(http.ResponseWriter, *http.Request) { reached++ })
	otherURL := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	_, port := newHookServer(t, http.RedirectHandler(otherURL, http.StatusFound).ServeHTTP)
	h := newHarness(t, t.TempDir())
	h.startPod(newPod(func(pod *v1.Pod) {
		pod.Spec.HostNetwork = true
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt(port)}}}
	}))
	if reached > 0 {
		t.Error("got a request to another host")
	}
}

// TestHTTPHook_RoutableNodeAddress sends a hook to the node by one of its own addresses that other machines can reach.
func TestHTTPHook_RoutableNodeAddress(t *testing.T) {
	host := routableAddress(t)
	for _, allowed := range []bool{false, true} {
		reached := 0
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		server.Listener.Close()
		server.Listener = listener
		server.Start()
		t.Cleanup(server.Close)
		h := newHarness(t, t.TempDir(), func(c *cri.Config) { c.AllowNodeAddresses = allowed })
		err = h.startFirst(h.Context(), newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
				Host: host, Port: intstr.FromInt(listener.Addr().(*net.TCPAddr).Port),
			}}}
		}))
		if (err == nil) != allowed || (reached > 0) != allowed {
			t.Errorf("allowed %v: got error %v, %d requests", allowed, err, reached)
		}
	}
}

// routableAddress returns an address of this machine that is neither loopback nor link-local.
func routableAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if ip := address.(*net.IPNet).IP; ip.IsGlobalUnicast() {
			return ip.String()
		}
	}
	t.Skip("this machine has loopback and link-local addresses only")
	return ""
}

// TestExec_OutputLimit runs commands that return as much as a runtime passes on.
func TestExec_OutputLimit(t *testing.T) {
	h := newHarness(t, t.TempDir())
	c := h.startPod(newPod())
	for size, allowed := range map[int]bool{3 << 20: true, 16 << 20: false} {
		h.fake.output = strings.Repeat("x", size)
		output, _, err := h.Exec(h.Context(), c.ID, []string{"yes"})
		switch {
		case allowed && (err != nil || len(output) < size):
			t.Errorf("%d bytes: got %d bytes, error %v", size, len(output), err)
		case !allowed && (err == nil || !strings.Contains(err.Error(), "the output must not exceed 4 MiB")):
			t.Errorf("%d bytes: got %d bytes, error %v", size, len(output), err)
		}
	}
}
