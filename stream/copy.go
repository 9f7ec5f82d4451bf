package stream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// copyBuffer is the size of the buffers of a direction.
	copyBuffer = 32 << 10
	// frameTimeout is how long the rest of a frame may take when the node ends a stream.
	frameTimeout = time.Second
)

// copier copies between a client and a runtime that speak the same protocol.
type copier struct {
	client net.Conn
	remote *backend
	frames frames
}

// run copies in both directions until one side ends or ctx does. Everything that the runtime sent reaches the client (STR-15). If ctx
// ends first, the client is told why.
func (c *copier) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		_ = c.client.SetWriteDeadline(time.Now().Add(statusTimeout))
		_ = c.remote.SetReadDeadline(time.Unix(1, 0)) // wakes copyOutput
	})
	defer stop()
	var input sync.WaitGroup
	input.Go(func() {
		if err := c.frames.copyInput(c.remote, c.client); err != nil {
			_, _ = io.Copy(io.Discard, c.client) // the runtime reads no more, but may still send
		}
		_ = c.remote.Close() // the client has left
	})
	c.copyOutput(ctx)
	_ = c.client.Close()
	_ = c.remote.Close()
	input.Wait()
}

// copyOutput copies whole frames.
func (c *copier) copyOutput(ctx context.Context) {
	client := bufio.NewWriterSize(c.client, copyBuffer)
	for {
		length, err := c.frames.next(c.remote.reader)
		switch {
		case err == nil:
			err = c.copyFrame(ctx, client, length)
		case ctx.Err() != nil: // between two frames
			_, _ = client.Write(c.frames.last(causeOf(ctx)))
		}
		if err != nil {
			_ = client.Flush()
			return
		}
		if c.remote.reader.Buffered() == 0 && client.Flush() != nil {
			return
		}
	}
}

// copyFrame copies so many bytes. When ctx ends, the rest of a frame has frameTimeout to arrive.
func (c *copier) copyFrame(ctx context.Context, client io.Writer, length int64) error {
	for isExtended := false; length > 0; {
		copied, err := io.CopyN(client, c.remote.reader, length)
		length -= copied
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil && !isExtended:
			isExtended = true
			_ = c.remote.SetReadDeadline(time.Now().Add(frameTimeout))
		default:
			return err
		}
	}
	if ctx.Err() != nil {
		_ = c.remote.SetReadDeadline(time.Unix(1, 0))
	}
	return nil
}

// causeOf returns why a stream ends.
func causeOf(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return errShutdown // a server ends its requests
}
