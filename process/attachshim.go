package process

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// followerTimeout is how long a client may take no output before it is disconnected. The container waits for it until then.
const followerTimeout = 10 * time.Second

// attachments are the clients that are attached to a container, in its shim. They survive neither the shim nor the server: a
// restarted server connects anew.
type attachments struct {
	// stdin is the write end of the container's input, and terminal its terminal; nil without one. They are set before serve.
	stdin, terminal *os.File
	stdinOnce       bool
	input           sync.Mutex // keeps the parts of several clients whole

	mu        sync.Mutex // guards followers
	followers map[*follower]struct{}
}

// follower is a client that gets the container's output.
type follower struct {
	conn    net.Conn
	options attachOptions
	mu      sync.Mutex // keeps messages whole
}

// listenAttach listens on a socket in the container's directory. The path of the directory may be too long for a socket.
func listenAttach(dir string) (net.Listener, error) {
	return inDir(dir, func(dir string) (net.Listener, error) {
		return listen(context.Background(), filepath.Join(dir, attachFile))
	})
}

// dialAttach connects to the shim of the container in that directory.
func dialAttach(ctx context.Context, dir string) (net.Conn, error) {
	return inDir(dir, func(dir string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", filepath.Join(dir, attachFile))
	})
}

// inDir calls use with a short name of the directory.
func inDir[T any](dir string, use func(dir string) (T, error)) (result T, err error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return result, fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	return use(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// serve accepts clients until the shim exits.
func (a *attachments) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			a.serveClient(conn)
		}()
	}
}

// serveClient reads the messages of a client until it leaves or detaches.
func (a *attachments) serveClient(conn net.Conn) {
	f := &follower{conn: conn}
	buffer := make([]byte, maxFrame)
	channel, content, err := readFrame(conn, buffer)
	if err != nil || channel != openChannel || json.Unmarshal(content, &f.options) != nil {
		return
	}
	a.add(f)
	defer a.remove(f)
	if f.options.Stdin {
		defer a.endInput()
	}
	for {
		channel, content, err := readFrame(conn, buffer)
		switch {
		case err != nil:
			return
		case channel == stdinChannel && len(content) > 0:
			a.writeInput(content)
		case channel == stdinChannel:
			if !a.endInput() {
				return
			}
		case channel == resizeChannel && len(content) == 4 && a.terminal != nil:
			setTerminalSize(a.terminal, remotecommand.TerminalSize{
				Width: binary.BigEndian.Uint16(content), Height: binary.BigEndian.Uint16(content[2:]),
			})
		}
	}
}

// writeInput waits until the container reads. It drops input for a container without one.
func (a *attachments) writeInput(data []byte) {
	if a.stdin == nil {
		return
	}
	a.input.Lock()
	defer a.input.Unlock()
	_, _ = a.stdin.Write(data) // fails once the container has closed its input
}

// endInput is called when the input of a client has ended. It closes the container's input for good with stdinOnce, and then reports
// true: the client still gets the output. A terminal is never closed.
func (a *attachments) endInput() (closed bool) {
	if !a.stdinOnce || a.terminal != nil || a.stdin == nil {
		return false
	}
	_ = a.stdin.Close()
	return true
}

func (a *attachments) add(f *follower) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.followers[f] = struct{}{}
}

func (a *attachments) remove(f *follower) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.followers, f)
}

// writer returns a writer that sends a stream of the container to all clients that asked for it. It never fails.
func (a *attachments) writer(channel byte) io.Writer { return outputWriter{a, channel} }

type outputWriter struct {
	attachments *attachments
	channel     byte
}

func (w outputWriter) Write(data []byte) (int, error) {
	w.attachments.mu.Lock()
	var followers []*follower
	for f := range w.attachments.followers {
		if f.options.Stdout && w.channel == stdoutChannel || f.options.Stderr && w.channel == stderrChannel {
			followers = append(followers, f)
		}
	}
	w.attachments.mu.Unlock()
	for _, f := range followers {
		f.send(w.channel, data)
	}
	return len(data), nil
}

// send disconnects a client that does not take the data in time.
func (f *follower) send(channel byte, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.conn.SetWriteDeadline(time.Now().Add(followerTimeout))
	if _, err := (frameWriter{f.conn, channel}).Write(data); err != nil {
		_ = f.conn.Close() // ends serveClient
	}
}
