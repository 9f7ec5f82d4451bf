package process

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Messages between the server and the shim of a container that a client is attached to. Each has a channel, a length and content.
const (
	openChannel   = 'o' // first, from the server: an attachOptions
	stdinChannel  = 'i' // from the server; without content: the client's input has ended
	resizeChannel = 's' // from the server: width and height
	stdoutChannel = '1' // from the shim
	stderrChannel = '2' // from the shim
)

const (
	frameHeader = 5
	// maxFrame bounds what a broken peer can make the other allocate.
	maxFrame = 64 << 10
)

// attachOptions are the streams that a client asked for.
type attachOptions struct {
	Stdin  bool `json:"stdin,omitempty"`
	Stdout bool `json:"stdout,omitempty"`
	Stderr bool `json:"stderr,omitempty"`
}

// writeFrame writes a message at once. The content has at most maxFrame bytes.
func writeFrame(w io.Writer, channel byte, content []byte) error {
	frame := make([]byte, frameHeader, frameHeader+len(content))
	frame[0] = channel
	binary.BigEndian.PutUint32(frame[1:], uint32(len(content))) //nolint:gosec // at most maxFrame
	_, err := w.Write(append(frame, content...))
	return err
}

// readFrame reads a message. The content is valid until the next call with the same buffer.
func readFrame(r io.Reader, buffer []byte) (channel byte, content []byte, err error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(header[1:])
	if length > maxFrame {
		return 0, nil, fmt.Errorf("message of %d bytes", length)
	}
	content = buffer[:length]
	_, err = io.ReadFull(r, content)
	return header[0], content, err
}

// frameWriter sends what is written as messages of a channel.
type frameWriter struct {
	to      io.Writer
	channel byte
}

func (w frameWriter) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		part := rest[:min(len(rest), maxFrame)]
		if err := writeFrame(w.to, w.channel, part); err != nil {
			return len(data) - len(rest), err
		}
		rest = rest[len(part):]
	}
	return len(data), nil
}
