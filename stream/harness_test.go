package stream_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	streamingcommand "k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/stream"
)

// hangTimeout ends a test that hangs.
const hangTimeout = 2 * time.Minute

// process is what a command in a container is started with.
type process struct {
	container      string
	args           []string
	stdin          io.Reader
	stdout, stderr io.WriteCloser
	tty            bool
	resize         <-chan streamingcommand.TerminalSize
}

// command is what a test runs instead of a process.
type command func(process) error

// exited is the error of a command that ended by itself (STR-21).
type exited int

func (e exited) Error() string   { return "command exited" }
func (e exited) String() string  { return e.Error() }
func (e exited) Exited() bool    { return true }
func (e exited) ExitStatus() int { return int(e) }

// containers runs the commands of streams, below the streaming server that containerd and CRI-O have too.
type containers struct {
	commands map[string]command // by their first argument; attach runs "main"
	forward  func(sandbox string, port int32, conn io.ReadWriteCloser) error
}

func (c *containers) run(p process) error {
	run, found := c.commands[p.args[0]]
	if !found {
		return exited(127)
	}
	return run(p)
}

// Exec implements streaming.Runtime.
//
//nolint:revive // its signature
func (c *containers) Exec(
	_ context.Context, id string, args []string, in io.Reader, out, err io.WriteCloser, tty bool,
	resize <-chan streamingcommand.TerminalSize,
) error {
	return c.run(process{id, args, in, out, err, tty, resize})
}

// Attach implements streaming.Runtime.
//
//nolint:revive // its signature
func (c *containers) Attach(
	_ context.Context, id string, in io.Reader, out, err io.WriteCloser, tty bool, resize <-chan streamingcommand.TerminalSize,
) error {
	return c.run(process{id, []string{"main"}, in, out, err, tty, resize})
}

func (c *containers) PortForward(_ context.Context, sandbox string, port int32, conn io.ReadWriteCloser) error {
	return c.forward(sandbox, port, conn)
}

// fakeRuntime is the CRI part of a runtime.
type fakeRuntime struct {
	streams streaming.Server

	mu       sync.Mutex       // guards the fields below
	requests []any            // in order
	errs     map[string]error // by container or sandbox
	url      string           // replaces that of a stream
}

func (f *fakeRuntime) record(id string, request any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, request)
	return f.errs[id]
}

func (f *fakeRuntime) recorded() []any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]any(nil), f.requests...)
}

func (f *fakeRuntime) StreamExec(_ context.Context, request *runtimeapi.ExecRequest) (string, error) {
	if err := f.record(request.ContainerId, request); err != nil {
		return "", err
	}
	response, err := f.streams.GetExec(request)
	return f.replace(response.GetUrl()), err
}

func (f *fakeRuntime) StreamAttach(_ context.Context, request *runtimeapi.AttachRequest) (string, error) {
	if err := f.record(request.ContainerId, request); err != nil {
		return "", err
	}
	response, err := f.streams.GetAttach(request)
	return f.replace(response.GetUrl()), err
}

func (f *fakeRuntime) StreamPortForward(_ context.Context, request *runtimeapi.PortForwardRequest) (string, error) {
	if err := f.record(request.PodSandboxId, request); err != nil {
		return "", err
	}
	response, err := f.streams.GetPortForward(request)
	return f.replace(response.GetUrl()), err
}

func (f *fakeRuntime) replace(location string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.url != "" {
		return f.url
	}
	return location
}

func (f *fakeRuntime) Exec(_ context.Context, id observed.ContainerID, args []string) ([]byte, int, error) {
	if err := f.record(id.ID, args); err != nil {
		return nil, 0, err
	}
	if args[0] == "false" {
		return []byte("failed"), 1, nil
	}
	return []byte(strings.Join(args, "|")), 0, nil
}

// cache is the node's own state of pods. A new observation takes newer.
type cache struct {
	mu           sync.Mutex // guards the fields below
	pod, newer   *observed.Pod
	err          error
	observations int
}

func (c *cache) Get(podid.UID) *observed.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pod
}

func (c *cache) GetNewerThan(context.Context, podid.UID, time.Time) (*observed.Pod, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observations++
	if c.newer != nil {
		c.pod = c.newer
	}
	return c.pod, c.err
}

// harness is a proxy between a real HTTP server and a real streaming server.
type harness struct {
	*containers
	runtime *fakeRuntime
	cache   *cache
	pod     *v1.Pod
	proxy   *stream.Proxy
	server  *httptest.Server
	config  stream.Config
}

func newHarness(t *testing.T, change ...func(*harness)) *harness {
	t.Helper()
	h := &harness{
		containers: &containers{commands: map[string]command{}},
		runtime:    &fakeRuntime{errs: map[string]error{}},
		cache: &cache{pod: &observed.Pod{
			UID: "uid", Sandboxes: []observed.Sandbox{{ID: "sandbox", Ready: true}},
			Containers: []observed.Container{
				{Name: "main", ID: observed.ContainerID{Runtime: "test", ID: "new"}, State: observed.Running, RestartCount: 1},
				{Name: "main", ID: observed.ContainerID{Runtime: "test", ID: "old"}, State: observed.Exited},
				{Name: "init", ID: observed.ContainerID{Runtime: "test", ID: "init"}, State: observed.Exited},
				{Name: "debugger", ID: observed.ContainerID{Runtime: "test", ID: "debugger"}, State: observed.Running},
			},
		}},
		pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid"},
			Spec: v1.PodSpec{
				Containers:     []v1.Container{{Name: "main"}},
				InitContainers: []v1.Container{{Name: "init"}},
				EphemeralContainers: []v1.EphemeralContainer{
					{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debugger", TTY: true}},
				},
			},
		},
	}
	h.runtime.streams = startStreamingServer(t, h.containers)
	h.config = stream.Config{
		Runtime: h.runtime, PodCache: h.cache,
		Pod: func(namespace, name string) (*v1.Pod, bool) {
			return h.pod, namespace == h.pod.Namespace && name == h.pod.Name
		},
	}
	for _, apply := range change {
		apply(h)
	}
	var err error
	if h.proxy, err = stream.New(h.config); err != nil {
		t.Fatal(err)
	}
	h.server = httptest.NewServer(h)
	t.Cleanup(h.server.Close)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hangTimeout)
		defer cancel()
		if err := h.proxy.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return h
}

// startStreamingServer serves streams as a runtime does.
func startStreamingServer(t *testing.T, runtime streaming.Runtime) streaming.Server {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String(), Path: "/"}
	streams, err := streaming.NewServer(config, runtime)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: streams, ReadHeaderTimeout: hangTimeout}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return streams
}

// ServeHTTP has the kubelet's paths.
func (h *harness) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(path.Clean(r.URL.Path), "/"), "/")
	target := stream.Target{Namespace: parts[1], Pod: parts[2]}
	if parts[0] == "portForward" {
		if len(parts) > 3 {
			target.UID = "uid-" + "of-path"
		}
		h.proxy.ServePortForward(w, r, target)
		return
	}
	target.Container = parts[3]
	switch parts[0] {
	case "exec":
		h.proxy.ServeExec(w, r, target)
	case "attach":
		h.proxy.ServeAttach(w, r, target)
	case "run":
		h.proxy.ServeRun(w, r, target)
	}
}

// url returns the URL of a path with a query.
func (h *harness) url(t *testing.T, path, query string) *url.URL {
	t.Helper()
	location, err := url.Parse(h.server.URL + path + "?" + query)
	if err != nil {
		t.Fatal(err)
	}
	return location
}

func httptestHTTP2(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}
