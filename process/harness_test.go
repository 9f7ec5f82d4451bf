package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/process"
)

// carelessArg makes the test binary a parent that ignores the exits of its children: carelessArg SCRIPT.
const carelessArg = "test-careless-parent"

// serverArg makes the test binary a server that can be killed: serverArg ROOT SOCKET.
const serverArg = "test-server"

func TestMain(m *testing.M) {
	if process.IsShim() {
		process.ShimMain()
	}
	if len(os.Args) > 1 && os.Args[1] == "process-shim" {
		os.Exit(2) // not a valid call of a shim
	}
	if len(os.Args) == 4 && os.Args[1] == serverArg {
		if err := serve(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == carelessArg {
		ossignal.Ignore(syscall.SIGCHLD)
		_ = exec.CommandContext(context.Background(), "sh", "-c", os.Args[2]).Run() // nobody knows how it exited
		fmt.Println("exited")
		time.Sleep(testTimeout)
		os.Exit(0)
	}
	// The library of streams waits for a second with an error of closing that nobody reads.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}

func serve(root, socket string) error {
	shim, err := shimCommand()
	if err != nil {
		return err
	}
	server, err := process.New(process.Config{Root: root, Socket: socket, Shim: shim})
	if err != nil {
		return err
	}
	return server.Run(context.Background())
}

// shimCommand returns the test binary, without the second that the race detector takes at exit.
func shimCommand() ([]string, error) {
	program, err := os.Executable()
	return []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", program}, err
}

// testTimeout limits a test on a busy machine.
const testTimeout = 5 * time.Minute

// harness is a runtime in its own directory, with a client. Its server can be stopped, killed and restarted. At the end of
// the test everything is removed through the CRI, and no process may be left.
type harness struct {
	t            *testing.T
	ctx          context.Context //nolint:containedctx // the harness ends with its test
	root, socket string
	pods, logs   string
	runtimeapi.RuntimeServiceClient
	images    runtimeapi.ImageServiceClient
	stop      func() // stops the server; nil if none runs
	serverPID int    // of a server started by startServerProcess
}

// newHarness returns a harness with a server in the test process.
func newHarness(t *testing.T) *harness {
	t.Helper()
	h := newStoppedHarness(t)
	h.startServer()
	return h
}

// newStoppedHarness returns a harness without a server.
func newStoppedHarness(t *testing.T) *harness {
	t.Helper()
	dir, err := os.MkdirTemp("", "process") //nolint:usetesting // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	h := &harness{
		t: t, ctx: ctx, root: filepath.Join(dir, "root"), socket: filepath.Join(dir, "s"),
		pods: filepath.Join(dir, "pods"), logs: filepath.Join(dir, "logs"),
	}
	connection, err := grpc.NewClient("unix://"+h.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(16<<20)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1.5, MaxDelay: 10 * time.Millisecond}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	h.RuntimeServiceClient, h.images = runtimeapi.NewRuntimeServiceClient(connection), runtimeapi.NewImageServiceClient(connection)
	t.Cleanup(h.end)
	return h
}

func (h *harness) config() process.Config {
	h.t.Helper()
	shim, err := shimCommand()
	if err != nil {
		h.t.Fatal(err)
	}
	return process.Config{Root: h.root, Socket: h.socket, Shim: shim, PodsRoot: h.pods}
}

// startServer runs a server in the test process.
func (h *harness) startServer() {
	h.t.Helper()
	server, err := process.New(h.config())
	if err != nil {
		h.t.Fatal(err)
	}
	h.serve(server)
}

func (h *harness) serve(server *process.Server) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) // until the cleanup stops it
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	h.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			h.t.Errorf("server failed: %v", err)
		}
	}
	h.waitForServer()
}

// startServerProcess runs a server in its own process. The returned function kills it.
func (h *harness) startServerProcess() (kill func()) {
	h.t.Helper()
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", serverArg, h.root, h.socket)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.serverPID = cmd.Process.Pid
	h.stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error is the kill
		h.stop = nil
	}
	h.waitForServer()
	return h.stop
}

// waitForServer retries while the connection to the previous server is still open.
func (h *harness) waitForServer() {
	h.t.Helper()
	_, err := h.Version(h.ctx, &runtimeapi.VersionRequest{})
	for status.Code(err) == codes.Unavailable && h.ctx.Err() == nil {
		_, err = h.Version(h.ctx, &runtimeapi.VersionRequest{})
	}
	if err != nil {
		h.t.Fatalf("server does not respond: %v", err)
	}
}

// restart stops the server, calls meanwhile, and starts another server.
func (h *harness) restart(meanwhile func()) {
	h.t.Helper()
	h.stop()
	meanwhile()
	h.startServer()
}

// end removes everything and checks that nothing is left.
func (h *harness) end() {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout) // the test may have used up its own
	defer cancel()
	h.ctx = ctx
	if h.stop == nil {
		h.startServer()
	}
	sandboxes, err := h.ListPodSandbox(h.ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		h.t.Error(err)
	}
	for _, sandbox := range sandboxes.GetItems() {
		if _, err := h.RemovePodSandbox(h.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox.GetId()}); err != nil {
			h.t.Error(err)
		}
	}
	h.wantProcesses(0)
	h.stop()
	for _, kind := range []string{"sandboxes", "containers"} {
		if left, err := os.ReadDir(filepath.Join(h.root, kind)); err != nil || len(left) > 0 {
			h.t.Errorf("%s: got entries %v, error %v, want none", kind, left, err)
		}
	}
	if _, err := os.Lstat(h.socket); !os.IsNotExist(err) {
		h.t.Errorf("socket still exists: %v", err)
	}
}

// wantProcesses fails unless that many processes run in containers of this harness. Their environment contains a path below
// its root.
func (h *harness) wantProcesses(want int) {
	h.t.Helper()
	if got := h.processes(); len(got) != want {
		h.t.Errorf("got %d container processes, want %d: %v", len(got), want, got)
	}
}

func (h *harness) processes() (found []string) {
	h.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, proc := range all {
		variables, err := os.ReadFile(filepath.Join(proc, "environ"))
		if err == nil && bytes.Contains(variables, []byte("HERALD_ROOT="+h.root)) {
			command, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
			found = append(found, proc+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}

func (h *harness) sandboxConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "shop", Uid: "uid-" + name},
		LogDirectory: filepath.Join(h.logs, name), Labels: map[string]string{"pod": name}, Annotations: map[string]string{"a": name},
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{
				Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER,
			},
		}},
	}
}

func (h *harness) sandbox(name string) string {
	h.t.Helper()
	response, err := h.RunPodSandbox(h.ctx, &runtimeapi.RunPodSandboxRequest{Config: h.sandboxConfig(name)})
	if err != nil {
		h.t.Fatal(err)
	}
	return response.GetPodSandboxId()
}

// shell returns the config of a container that runs a script.
func shell(name, script string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: "host"},
		Command: []string{"sh", "-c"}, Args: []string{script}, LogPath: name + "/0.log",
		Labels: map[string]string{"container": name}, Annotations: map[string]string{"io.kubernetes.container.hash": "1"},
	}
}

func (h *harness) create(sandbox string, config *runtimeapi.ContainerConfig) string {
	h.t.Helper()
	response, err := h.CreateContainer(h.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox, Config: config})
	if err != nil {
		h.t.Fatal(err)
	}
	return response.GetContainerId()
}

func (h *harness) startContainer(id string) {
	h.t.Helper()
	if _, err := h.StartContainer(h.ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) run(sandbox string, config *runtimeapi.ContainerConfig) string {
	h.t.Helper()
	id := h.create(sandbox, config)
	h.startContainer(id)
	return id
}

func (h *harness) stopContainer(id string, grace int64) {
	h.t.Helper()
	if _, err := h.StopContainer(h.ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: grace}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) status(id string) *runtimeapi.ContainerStatus {
	h.t.Helper()
	response, err := h.ContainerStatus(h.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		h.t.Fatal(err)
	}
	return response.GetStatus()
}

func (h *harness) wantState(id string, want runtimeapi.ContainerState) {
	h.t.Helper()
	if got := h.status(id).GetState(); got != want {
		h.t.Fatalf("got state %v, want %v", got, want)
	}
}

// info is the content of a verbose status.
type info struct {
	PID, ShimPID int
	Root         string
}

func (h *harness) info(id string) (got info) {
	h.t.Helper()
	response, err := h.ContainerStatus(h.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(response.GetInfo()["info"]), &got); err != nil {
		h.t.Fatal(err)
	}
	return got
}

// waitForExit waits for the container to exit, using the runtime's events.
func (h *harness) waitForExit(id string) *runtimeapi.ContainerStatus {
	h.t.Helper()
	events := h.subscribe()
	for {
		if got := h.status(id); got.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			return got
		}
		events.next()
	}
}

// eventStream receives the events after its creation.
type eventStream struct {
	h      *harness
	stream grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]
}

func (h *harness) subscribe() eventStream {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.ctx)
	h.t.Cleanup(cancel)
	stream, err := h.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err == nil {
		_, err = stream.Header()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return eventStream{h: h, stream: stream}
}

func (s eventStream) next() *runtimeapi.ContainerEventResponse {
	s.h.t.Helper()
	event, err := s.stream.Recv()
	if err != nil {
		s.h.t.Fatal(err)
	}
	return event
}

func (h *harness) exec(id string, timeout int64, script string) (*runtimeapi.ExecSyncResponse, error) {
	return h.ExecSync(h.ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Timeout: timeout, Cmd: []string{"sh", "-c", script}})
}

func (h *harness) remove(id string) {
	h.t.Helper()
	if _, err := h.RemoveContainer(h.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) stopPod(id string) {
	h.t.Helper()
	list, err := h.ListContainers(h.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id}})
	if err != nil || len(list.GetContainers()) != 1 {
		h.t.Fatalf("got %v, error %v, want one container", list, err)
	}
	request := &runtimeapi.StopPodSandboxRequest{PodSandboxId: list.GetContainers()[0].GetPodSandboxId()}
	if _, err := h.StopPodSandbox(h.ctx, request); err != nil {
		h.t.Fatal(err)
	}
}
