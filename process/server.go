package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Server is the runtime. Its methods other than Run are those of the CRI, for gRPC to call from any goroutine while Run
// runs.
//
// A container changes its state in one place, see watch: what the files say is read again whenever its shim says so or
// ends. The CRI's calls cause such changes and wait for them.
type Server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	config Config
	facts  facts
	events events

	// watches are the goroutines that look after running containers; they end with Run.
	watches sync.WaitGroup
	stopped chan struct{} // closed when Run ends

	mu         sync.Mutex // guards what follows, and the fields of sandboxes and containers that say so
	sandboxes  map[string]*sandbox
	containers map[string]*container
	names      map[string]string // of sandboxes and containers -> ID, from before they are made until they are removed
}

// New checks the configuration and touches nothing.
func New(config Config) (*Server, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Server{
		config: config, stopped: make(chan struct{}),
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{}, names: map[string]string{},
	}, nil
}

// Run takes up the containers that it finds and serves until ctx ends; containers go on. It fails at once when another
// server holds the folder. A Server runs once.
func (s *Server) Run(ctx context.Context) error {
	lock, err := s.takeRoot(ctx)
	if err != nil {
		return fmt.Errorf("process runtime: %w", err)
	}
	defer lock.Close()
	defer s.watches.Wait()
	defer close(s.stopped)
	if s.facts, err = gatherFacts(s.config.PodsRoot); err != nil {
		return fmt.Errorf("process runtime: %w", err)
	}
	if err := s.load(); err != nil {
		return fmt.Errorf("process runtime: %w", err)
	}
	listener, err := listen(ctx, s.config.Socket)
	if err != nil {
		return fmt.Errorf("process runtime: listen on %s: %w", s.config.Socket, err)
	}
	return s.serve(ctx, listener)
}

func (s *Server) serve(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.MaxRecvMsgSize(largestMessage), grpc.MaxSendMsgSize(largestMessage))
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	runtimeapi.RegisterImageServiceServer(server, s)
	stop := context.AfterFunc(ctx, server.Stop)
	defer server.Stop() // returns when all calls have
	err := server.Serve(listener)
	if asked := !stop(); asked {
		return nil
	}
	return fmt.Errorf("process runtime: serve %s: %w", s.config.Socket, err)
}

// largestMessage is that of containerd and of the kubelet's client: two outputs of a command, and what surrounds them.
const largestMessage = 16 << 20

// takeRoot makes the folder and holds it until the file that it returns is closed.
func (s *Server) takeRoot(ctx context.Context) (*os.File, error) {
	for _, folder := range []string{s.config.Root, s.sandboxFolder(""), s.containerFolder("")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
	}
	if info, err := os.Stat(s.config.Root); err != nil || info.Mode().Perm()&0o077 != 0 {
		return nil, errors.Join(err, fmt.Errorf("folder %s must be for its owner alone: chmod 700 it, or name another", s.config.Root))
	}
	lock, err := os.OpenFile(filepath.Join(s.config.Root, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := takeLock(ctx, lock); err != nil {
		return nil, errors.Join(fmt.Errorf("folder %s is held by another server: %w", s.config.Root, err), lock.Close())
	}
	return lock, nil
}

// A shim that a killed server was about to start has that server's lock until it is a program of its own.
const (
	lockPatience = 2 * time.Second
	betweenLocks = 20 * time.Millisecond
)

func takeLock(ctx context.Context, lock *os.File) error {
	for limit := time.Now().Add(lockPatience); ; {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || ctx.Err() != nil || time.Now().After(limit) {
			return err
		}
		time.Sleep(betweenLocks)
	}
}

func (s *Server) sandboxFolder(id string) string {
	return filepath.Join(s.config.Root, "sandboxes", id)
}
func (s *Server) containerFolder(id string) string {
	return filepath.Join(s.config.Root, "containers", id)
}

// listen takes the place of a socket that a killed server left, and of nothing else. The mode is set before the socket
// has a name, so that at no moment another user may connect.
func listen(ctx context.Context, path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("there is something that is not a socket: %v", info.Mode())
	case err == nil:
		err = os.Remove(path)
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var mode error
		err := raw.Control(func(fd uintptr) { mode = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, mode)
	}}
	return config.Listen(ctx, "unix", path)
}
