package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup/host"
	"github.com/heraldnode/herald/cgroup/usage"
	"github.com/heraldnode/herald/internal/unixsocket"
)

// Config configures a Server. Fields without a default are required.
type Config struct {
	// Root is the absolute path of the state directory. It is created with mode 0700 and used by one server at a time.
	Root string

	// Socket is the absolute path of the unix socket to listen on, created with mode 0600. Other listeners are not
	// supported: any caller can run commands as the agent's user.
	Socket string

	// StreamSocket is the absolute path of the unix socket, also with mode 0600, for the streams of Exec, Attach and PortForward.
	// Their URLs are http://unix/PATH: clients connect to this socket instead of the host "unix". Defaults to Socket with
	// ".streams" appended.
	StreamSocket string

	// Shim is the command that starts a shim. Two arguments are appended. The program must call ShimMain before anything
	// else if IsShim reports true. Usually {"/proc/self/exe"}, which stays valid when the program's file is replaced.
	Shim []string

	// Slice is a systemd slice, like herald-pods.slice, below which each container gets a scope. It requires root and a running
	// systemd. Defaults to none: containers stay in the server's cgroup and share its limits.
	Slice string

	// PodsRoot is the directory below which the agent writes the files of pod volumes. Read-only mounts from there are
	// accepted. Defaults to none.
	PodsRoot string

	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	if !filepath.IsAbs(c.Root) {
		errs = append(errs, fmt.Errorf("process.Config: Root must be an absolute path, got %q", c.Root))
	}
	if err := unixsocket.CheckPath(c.Socket); err != nil {
		errs = append(errs, fmt.Errorf("process.Config: Socket %q %w", c.Socket, err))
	}
	if c.StreamSocket == "" {
		c.StreamSocket = c.Socket + ".streams"
	}
	if err := unixsocket.CheckPath(c.StreamSocket); err != nil {
		errs = append(errs, fmt.Errorf("process.Config: StreamSocket %q %w", c.StreamSocket, err))
	}
	if len(c.Shim) == 0 {
		errs = append(errs, errors.New("process.Config: Shim is required"))
	}
	if c.PodsRoot != "" && !filepath.IsAbs(c.PodsRoot) {
		errs = append(errs, fmt.Errorf("process.Config: PodsRoot must be an absolute path, got %q", c.PodsRoot))
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(errs...)
}

// Server is the runtime. All methods except Run implement the CRI. gRPC calls them from any goroutine while Run runs.
//
// A container changes its state in one place only: monitor reads the shim's records whenever the shim writes one or
// exits. CRI calls cause such changes and wait for them.
type Server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	config Config
	host   hostInfo
	events eventBroadcaster
	// cgroups reads the cgroups of the scopes of containers.
	cgroups usage.Reader
	streams *streamServer

	monitors sync.WaitGroup // one goroutine or more per running container; they end with Run
	stopped  chan struct{}  // closed when Run ends

	mu         sync.Mutex // guards all below, and the fields of sandboxes and containers that say so
	sandboxes  map[string]*sandbox
	containers map[string]*container
	names      map[string]string // sandbox or container name -> ID, reserved before creation and until removal
}

// New returns a Server. It validates the configuration and has no side effects.
func New(config Config) (*Server, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		config: config, stopped: make(chan struct{}),
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{}, names: map[string]string{},
	}
	s.streams = newStreamServer(s)
	return s, nil
}

// Run loads the existing containers and serves until ctx ends. Containers keep running. Run fails at once if another
// server uses the same root. It must be called only once.
func (s *Server) Run(ctx context.Context) error {
	lock, err := s.lockRoot(ctx)
	if err != nil {
		return fmt.Errorf("process runtime: %w", err)
	}
	defer lock.Close()
	defer s.monitors.Wait()
	defer close(s.stopped)
	if s.host, err = readHostInfo(s.config.PodsRoot); err != nil {
		return fmt.Errorf("process runtime: %w", err)
	}
	if s.cgroups.V2, err = host.IsV2(host.Mount); err != nil {
		return fmt.Errorf("process runtime: %w", err)
	}
	if err := s.load(); err != nil {
		return fmt.Errorf("process runtime: %w", err)
	}
	streams, err := listen(ctx, s.config.StreamSocket)
	if err != nil {
		return fmt.Errorf("process runtime: listen on %s: %w", s.config.StreamSocket, err)
	}
	defer streams.Close()
	listener, err := listen(ctx, s.config.Socket)
	if err != nil {
		return fmt.Errorf("process runtime: listen on %s: %w", s.config.Socket, err)
	}
	return s.serve(ctx, listener, streams)
}

// StreamSocket returns the path of the socket for streams.
func (s *Server) StreamSocket() string { return s.config.StreamSocket }

// lockRoot creates the root directory and locks it until the returned file is closed.
func (s *Server) lockRoot(ctx context.Context) (*os.File, error) {
	for _, dir := range []string{s.config.Root, s.sandboxDir(""), s.containerDir("")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if info, err := os.Stat(s.config.Root); err != nil || info.Mode().Perm()&0o077 != 0 {
		return nil, errors.Join(err, fmt.Errorf("directory %s must be accessible by its owner only (chmod 700)", s.config.Root))
	}
	lock, err := os.OpenFile(filepath.Join(s.config.Root, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(ctx, lock); err != nil {
		return nil, errors.Join(fmt.Errorf("directory %s is used by another server: %w", s.config.Root, err), lock.Close())
	}
	return lock, nil
}

// A child that a killed server has forked but that has not executed the shim yet still holds the server's lock.
const (
	lockTimeout       = 2 * time.Second
	lockRetryInterval = 20 * time.Millisecond
)

func flock(ctx context.Context, lock *os.File) error {
	for deadline := time.Now().Add(lockTimeout); ; {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(lockRetryInterval)
	}
}

func (s *Server) sandboxDir(id string) string {
	return filepath.Join(s.config.Root, "sandboxes", id)
}

func (s *Server) containerDir(id string) string {
	return filepath.Join(s.config.Root, "containers", id)
}

// listen replaces a socket that a killed server left, and nothing else. The mode is set before the socket has a name, so
// other users can never connect.
func listen(ctx context.Context, path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("the file exists and is not a socket: %v", info.Mode())
	case err == nil:
		err = os.Remove(path)
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var chmodErr error
		err := raw.Control(func(fd uintptr) { chmodErr = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, chmodErr)
	}}
	return config.Listen(ctx, "unix", path)
}

// maxMessageSize is the limit of containerd and of the kubelet's client.
const maxMessageSize = 16 << 20

func (s *Server) serve(ctx context.Context, listener, streams net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	streamsServed := make(chan error, 1)
	go func() {
		defer cancel() // neither is served without the other
		streamsServed <- s.streams.run(ctx, streams)
	}()
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.MaxRecvMsgSize(maxMessageSize), grpc.MaxSendMsgSize(maxMessageSize))
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	runtimeapi.RegisterImageServiceServer(server, s)
	stop := context.AfterFunc(ctx, server.Stop)
	defer server.Stop() // waits for all handlers
	err := server.Serve(listener)
	if wasStopped := !stop(); wasStopped {
		err = nil
	} else {
		err = fmt.Errorf("process runtime: serve %s: %w", s.config.Socket, err)
	}
	cancel()
	if streamErr := <-streamsServed; streamErr != nil {
		err = errors.Join(err, fmt.Errorf("process runtime: serve %s: %w", s.config.StreamSocket, streamErr))
	}
	return err
}

// runtimeName is the scheme of container IDs in a pod's status.
const runtimeName = "process"

// Version reports the version of this module that the program was built with.
func (s *Server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version:     "0.1.0", // the version of the kubelet's API, the same in every runtime
		RuntimeName: runtimeName, RuntimeVersion: moduleVersion(), RuntimeApiVersion: "v1",
	}, nil
}

const modulePath = "github.com/heraldnode/herald"

func moduleVersion() string {
	const unknown = "v0.0.0"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	for _, module := range append(info.Deps, &info.Main) {
		if module.Path == modulePath && module.Version != "" && module.Version != "(devel)" {
			return module.Version
		}
	}
	return unknown
}

// Status always reports ready: the runtime depends only on the host.
func (s *Server) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true},
		{Type: runtimeapi.NetworkReady, Status: true},
	}}}, nil
}

// UpdateRuntimeConfig ignores the pod CIDR: every pod uses the host network.
func (s *Server) UpdateRuntimeConfig(
	context.Context, *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// RuntimeConfig reports the cgroupfs driver, which needs no other service. No cgroup is created.
func (s *Server) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS},
	}, nil
}

// UpdateContainerResources is rejected: process groups have no resource limits.
func (s *Server) UpdateContainerResources(
	_ context.Context, request *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return nil, status.Errorf(codes.InvalidArgument,
		"spec.containers[*].resources of container %q must not change: %s (CRI field linux)", request.GetContainerId(), reasonNoLimits)
}
