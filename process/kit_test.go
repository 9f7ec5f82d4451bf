package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/process"
)

// limit is how long a test may take, however busy the machine is.
const limit = 5 * time.Minute

// world is a runtime in a folder of its own, with a client. Its server can be stopped, killed and started again; when the
// test ends, everything is removed through the CRI, and no process of it may be left.
type world struct {
	t            *testing.T
	ctx          context.Context //nolint:containedctx // a test's world ends with the test
	root, socket string
	pods, logs   string
	runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
	stop   func() // ends the server, nil: none runs
	apart  int    // the PID of the server that runs as a process of its own
}

// newWorld starts a server inside of the test.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := newIdleWorld(t)
	w.start()
	return w
}

func newIdleWorld(t *testing.T) *world {
	t.Helper()
	folder, err := os.MkdirTemp("", "process") //nolint:usetesting // its path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	w := &world{
		t: t, ctx: ctx, root: filepath.Join(folder, "root"), socket: filepath.Join(folder, "s"),
		pods: filepath.Join(folder, "pods"), logs: filepath.Join(folder, "logs"),
	}
	connection, err := grpc.NewClient("unix://"+w.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(16<<20)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1.5, MaxDelay: 10 * time.Millisecond}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	w.RuntimeServiceClient, w.images = runtimeapi.NewRuntimeServiceClient(connection), runtimeapi.NewImageServiceClient(connection)
	t.Cleanup(w.end)
	return w
}

func (w *world) config() process.Config {
	w.t.Helper()
	shim, err := shimCommand()
	if err != nil {
		w.t.Fatal(err)
	}
	return process.Config{Root: w.root, Socket: w.socket, Shim: shim, PodsRoot: w.pods}
}

// start runs a server as a part of the test.
func (w *world) start() {
	w.t.Helper()
	server, err := process.New(w.config())
	if err != nil {
		w.t.Fatal(err)
	}
	w.serve(server)
}

func (w *world) serve(server *process.Server) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) // until the clean-up stops it
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the server ended: %v", err)
		}
	}
	w.awaitServer()
}

// startApart runs a server as a process of its own; what it returns kills it.
func (w *world) startApart() (kill func()) {
	w.t.Helper()
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", serverWord, w.root, w.socket)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.apart = cmd.Process.Pid
	w.stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error is the kill
		w.stop = nil
	}
	w.awaitServer()
	return w.stop
}

// awaitServer asks again when it asked the server before.
func (w *world) awaitServer() {
	w.t.Helper()
	_, err := w.Version(w.ctx, &runtimeapi.VersionRequest{})
	for status.Code(err) == codes.Unavailable && w.ctx.Err() == nil {
		_, err = w.Version(w.ctx, &runtimeapi.VersionRequest{})
	}
	if err != nil {
		w.t.Fatalf("the server does not answer: %v", err)
	}
}

// restart stops the server, lets something happen, and starts another.
func (w *world) restart(meanwhile func()) {
	w.t.Helper()
	w.stop()
	meanwhile()
	w.start()
}

// end removes everything and looks for what is left.
func (w *world) end() {
	ctx, cancel := context.WithTimeout(context.Background(), limit) // the test may have used up its own
	defer cancel()
	w.ctx = ctx
	if w.stop == nil {
		w.start()
	}
	boxes, err := w.ListPodSandbox(w.ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		w.t.Error(err)
	}
	for _, box := range boxes.GetItems() {
		if _, err := w.RemovePodSandbox(w.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box.GetId()}); err != nil {
			w.t.Error(err)
		}
	}
	w.wantProcesses(0)
	w.stop()
	for _, kind := range []string{"sandboxes", "containers"} {
		if left, err := os.ReadDir(filepath.Join(w.root, kind)); err != nil || len(left) > 0 {
			w.t.Errorf("left in %s: %v, error %v", kind, left, err)
		}
	}
	if _, err := os.Lstat(w.socket); !os.IsNotExist(err) {
		w.t.Errorf("the socket is left: %v", err)
	}
}

// wantProcesses fails unless that many processes run in containers of this world: in its environment each has the folder
// of its own root.
func (w *world) wantProcesses(want int) {
	w.t.Helper()
	if have := w.processes(); len(have) != want {
		w.t.Errorf("%d processes in containers, want %d: %v", len(have), want, have)
	}
}

func (w *world) processes() (found []string) {
	w.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, one := range all {
		variables, err := os.ReadFile(filepath.Join(one, "environ"))
		if err == nil && bytes.Contains(variables, []byte("HERALD_ROOT="+w.root)) {
			command, _ := os.ReadFile(filepath.Join(one, "cmdline"))
			found = append(found, one+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}

func (w *world) sandboxConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "shop", Uid: "uid-" + name},
		LogDirectory: filepath.Join(w.logs, name), Labels: map[string]string{"pod": name}, Annotations: map[string]string{"a": name},
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{
				Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER,
			},
		}},
	}
}

func (w *world) sandbox(name string) string {
	w.t.Helper()
	response, err := w.RunPodSandbox(w.ctx, &runtimeapi.RunPodSandboxRequest{Config: w.sandboxConfig(name)})
	if err != nil {
		w.t.Fatal(err)
	}
	return response.GetPodSandboxId()
}

// shell is a container that runs a script.
func shell(name, script string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: "host"},
		Command: []string{"sh", "-c"}, Args: []string{script}, LogPath: name + "/0.log",
		Labels: map[string]string{"container": name}, Annotations: map[string]string{"io.kubernetes.container.hash": "1"},
	}
}

func (w *world) create(sandbox string, config *runtimeapi.ContainerConfig) string {
	w.t.Helper()
	response, err := w.CreateContainer(w.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox, Config: config})
	if err != nil {
		w.t.Fatal(err)
	}
	return response.GetContainerId()
}

func (w *world) begin(id string) {
	w.t.Helper()
	if _, err := w.StartContainer(w.ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) run(sandbox string, config *runtimeapi.ContainerConfig) string {
	w.t.Helper()
	id := w.create(sandbox, config)
	w.begin(id)
	return id
}

func (w *world) halt(id string, grace int64) {
	w.t.Helper()
	if _, err := w.StopContainer(w.ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: grace}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) status(id string) *runtimeapi.ContainerStatus {
	w.t.Helper()
	response, err := w.ContainerStatus(w.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		w.t.Fatal(err)
	}
	return response.GetStatus()
}

func (w *world) wantState(id string, want runtimeapi.ContainerState) {
	w.t.Helper()
	if have := w.status(id).GetState(); have != want {
		w.t.Fatalf("container is in state %v, want %v", have, want)
	}
}

// info is what a verbose status says.
type info struct {
	PID, ShimPID int
	Root         string
}

func (w *world) info(id string) (have info) {
	w.t.Helper()
	response, err := w.ContainerStatus(w.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(response.GetInfo()["info"]), &have); err != nil {
		w.t.Fatal(err)
	}
	return have
}

// ended waits for the container to end, by the events of the runtime.
func (w *world) ended(id string) *runtimeapi.ContainerStatus {
	w.t.Helper()
	listener := w.listen()
	for {
		if have := w.status(id); have.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			return have
		}
		listener.next()
	}
}

// listener hears events from its making on.
type listener struct {
	w      *world
	stream grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]
}

func (w *world) listen() listener {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	w.t.Cleanup(cancel)
	stream, err := w.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err == nil {
		_, err = stream.Header()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return listener{w: w, stream: stream}
}

func (l listener) next() *runtimeapi.ContainerEventResponse {
	l.w.t.Helper()
	event, err := l.stream.Recv()
	if err != nil {
		l.w.t.Fatal(err)
	}
	return event
}

func (w *world) exec(id string, timeout int64, script string) (*runtimeapi.ExecSyncResponse, error) {
	return w.ExecSync(w.ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Timeout: timeout, Cmd: []string{"sh", "-c", script}})
}

// logLines is the log without its times, which must be right.
func logLines(t *testing.T, file string) (lines []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		at, rest, _ := strings.Cut(line, " ")
		if _, err := time.Parse(time.RFC3339Nano, at); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("line %q: %v", line, err)
		}
		lines = append(lines, strings.TrimSuffix(rest, "\n"))
	}
	return lines
}

// signpost is a FIFO by which a script says that it has come to a certain place.
type signpost struct {
	t    *testing.T
	file *os.File
}

func newSignpost(t *testing.T) signpost {
	t.Helper()
	path := filepath.Join(t.TempDir(), "signpost")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return signpost{t: t, file: file}
}

// say is the script's part.
func (s signpost) say(word string) string { return "echo " + word + " > " + s.file.Name() + "; " }

// hear waits for a line.
func (s signpost) hear() string {
	s.t.Helper()
	_ = s.file.SetReadDeadline(time.Now().Add(limit))
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := io.ReadFull(s.file, one); err != nil {
			s.t.Fatalf("after %q: %v", line, err)
		}
		if one[0] == '\n' {
			return string(line)
		}
		line = append(line, one[0])
	}
}

// send is for a script that reads from the signpost.
func (s signpost) send(word string) {
	s.t.Helper()
	if _, err := s.file.WriteString(word + "\n"); err != nil {
		s.t.Fatal(err)
	}
}

func (s signpost) hearPID() int {
	s.t.Helper()
	pid, err := strconv.Atoi(s.hear())
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

// awaitLine waits until the file's last line is that one; the shim writes it right after it was said.
func awaitLine(t *testing.T, file, want string) {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); runtime.Gosched() {
		if data, err := os.ReadFile(file); err == nil && strings.HasSuffix(string(data), want+"\n") {
			return
		}
	}
	t.Fatalf("%s never ends with %q", file, want)
}
