package bench

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

// probedServer answers every connection the same way, on one thread that keeps its own account, so that what it costs can
// be told from what asking costs.
type probedServer struct {
	port         int32
	socket       int
	served, used atomic.Int64 // connections, and nanoseconds of processor time
	ended        chan struct{}
}

func newProbedServer() (*probedServer, error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a server to probe: %w", err)
	}
	s := &probedServer{socket: socket, ended: make(chan struct{})}
	if err := s.listen(); err != nil {
		_ = syscall.Close(socket)
		return nil, fmt.Errorf("make a server to probe: %w", err)
	}
	go s.serve()
	return s, nil
}

func (s *probedServer) listen() error {
	if err := syscall.Bind(s.socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if err := syscall.Listen(s.socket, 4096); err != nil {
		return err
	}
	bound, err := syscall.Getsockname(s.socket)
	if err != nil {
		return err
	}
	s.port = int32(bound.(*syscall.SockaddrInet4).Port)
	return nil
}

func (s *probedServer) serve() {
	defer close(s.ended)
	runtime.LockOSThread() // and never unlocked: the thread ends with its account
	var request [4096]byte
	for {
		conn, _, err := syscall.Accept(s.socket)
		if err == syscall.EINTR || err == syscall.ECONNABORTED {
			continue
		}
		if err != nil {
			return
		}
		if n, err := syscall.Read(conn, request[:]); err == nil && n > 0 {
			_, _ = syscall.Write(conn, []byte(okAnswer))
		}
		_ = syscall.Close(conn)
		s.used.Store(int64(threadTime()))
		s.served.Add(1)
	}
}

func threadTime() time.Duration {
	const thisThread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	if err := syscall.Getrusage(thisThread, &usage); err != nil {
		panic(fmt.Sprintf("bench: ask for the processor time of this thread: %v", err))
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// await waits until that many connections were served.
func (s *probedServer) await(served int64) error {
	for range 6000 {
		if s.served.Load() >= served {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("%d of %d probes in half a minute", s.served.Load(), served)
}

// close ends the server: a socket that is shut down accepts nobody.
func (s *probedServer) close() {
	_ = syscall.Shutdown(s.socket, syscall.SHUT_RDWR)
	<-s.ended
	_ = syscall.Close(s.socket)
}
