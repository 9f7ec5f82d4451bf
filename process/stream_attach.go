package process

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// attachStreams connects a client with the streams of a container, which its shim keeps, until the container exits, the client
// leaves, or the client's input ends without stdinOnce. It gets no output from before.
func (s *Server) attachStreams(client context.Context, containerID string, streams standardStreams) error {
	c, err := s.findContainer(containerID)
	if err != nil {
		return err
	}
	if streams.tty != c.config.GetTty() {
		return fmt.Errorf("tty is %v, but it is %v for container %q", streams.tty, c.config.GetTty(), c.record.ID)
	}
	conn, err := dialAttach(client, s.containerDir(c.record.ID))
	if err != nil {
		return fmt.Errorf("connect to the shim: %w", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(client)
	defer cancel(nil)
	defer s.stopStreams(cancel)()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	a := &attachment{conn: conn, streams: streams}
	if err := a.open(); err != nil {
		return err
	}
	err = a.copyOutput()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStopping):
		return cause
	case cause != nil:
		return nil // nobody is left to hear
	default:
		return err
	}
}

// attachment is a client that is attached to a container, in the server.
type attachment struct {
	conn    net.Conn
	streams standardStreams
	mu      sync.Mutex // keeps messages whole
}

// Write sends one message.
func (a *attachment) Write(frame []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conn.Write(frame)
}

// open tells the shim what the client wants, and copies the client's input. The copies end with the client's connection.
func (a *attachment) open() error {
	options, err := json.Marshal(attachOptions{
		Stdin: a.streams.stdin != nil, Stdout: a.streams.stdout != nil, Stderr: a.streams.stderr != nil,
	})
	if err != nil {
		return err
	}
	if err := writeFrame(a, openChannel, options); err != nil {
		return fmt.Errorf("write to the shim: %w", err)
	}
	if a.streams.stdin != nil {
		go func() {
			_, _ = io.Copy(frameWriter{a, stdinChannel}, a.streams.stdin)
			_ = writeFrame(a, stdinChannel, nil)
		}()
	}
	if a.streams.resize != nil {
		go a.sendSizes(a.streams.resize)
	}
	return nil
}

func (a *attachment) sendSizes(sizes <-chan remotecommand.TerminalSize) {
	for size := range sizes {
		content := binary.BigEndian.AppendUint16(nil, size.Width)
		_ = writeFrame(a, resizeChannel, binary.BigEndian.AppendUint16(content, size.Height))
	}
}

// copyOutput copies the output of the container until the shim ends the connection.
func (a *attachment) copyOutput() error {
	for buffer := make([]byte, maxFrame); ; {
		channel, content, err := readFrame(a.conn, buffer)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read from the shim: %w", err)
		}
		to := a.streams.stdout
		if channel == stderrChannel {
			to = a.streams.stderr
		}
		if to == nil {
			continue
		}
		if _, err := to.Write(content); err != nil {
			return err
		}
	}
}
