package stream

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/moby/spdystream/spdy"
)

// frames knows the boundaries of what a runtime sends, so that the node can append a frame to a stream that it copies: one that tells
// the client that the command did not end by itself.
type frames interface {
	// next returns the length of the next frame with its header. It consumes nothing.
	next(runtime *bufio.Reader) (int64, error)
	// last returns what ends the stream with the status, or nil if the client expects none.
	last(cause error) []byte
	// copyInput copies from the client to the runtime.
	copyInput(runtime io.Writer, client io.Reader) error
}

// framesOf returns the frames of a runtime's response to exec or attach.
func framesOf(response *http.Response) frames {
	if strings.EqualFold(response.Header.Get(headerUpgrade), webSocketScheme) {
		return webSocketFrames{response.Header.Get(headerProtocol)}
	}
	return &spdyFrames{version: response.Header.Get(headerVersion)}
}

// statusOf returns the status of a stream that ended for the cause: JSON in version 4, text before (STR-14).
func statusOf(version string, cause error) []byte {
	if strings.HasPrefix(version, "v4.") {
		return internalError(cause)
	}
	return []byte(cause.Error())
}

const (
	spdyHeaderSize = 8
	spdyControl    = 0x80 // in the first byte
	spdySynStream  = 1
	spdyFin        = 1
	// maxOpening limits the frames in which a stream for errors is looked for. Clients open all streams first.
	maxOpening = 64
	// maxSynStream limits a frame that opens a stream.
	maxSynStream = 64 << 10
)

// spdyFrames are those of SPDY. Its data frames are not compressed, so that one can be appended.
type spdyFrames struct {
	version     string
	errorStream atomic.Uint32 // 0 until the client has opened it
}

func spdyLength(header []byte) int64 {
	return int64(binary.BigEndian.Uint32(header[4:]) & 0xffffff)
}

func (s *spdyFrames) next(runtime *bufio.Reader) (int64, error) {
	header, err := runtime.Peek(spdyHeaderSize)
	if err != nil {
		return 0, err
	}
	return spdyHeaderSize + spdyLength(header), nil
}

func (s *spdyFrames) last(cause error) []byte {
	id := s.errorStream.Load()
	if id == 0 {
		return nil
	}
	status := statusOf(s.version, cause)
	frame := binary.BigEndian.AppendUint32(nil, id)
	frame = binary.BigEndian.AppendUint32(frame, spdyFin<<24|uint32(len(status)))
	return append(frame, status...)
}

// copyInput reads the first frames of the client to learn which stream is for errors.
func (s *spdyFrames) copyInput(runtime io.Writer, client io.Reader) error {
	var opening bytes.Buffer
	decoder, err := spdy.NewFramer(io.Discard, &opening)
	if err != nil {
		return err
	}
	for i := 0; i < maxOpening && s.errorStream.Load() == 0; i++ {
		frame := make([]byte, spdyHeaderSize, 512)
		if _, err := io.ReadFull(client, frame); err != nil {
			return ignoreEOF(err)
		}
		length := spdyLength(frame)
		if frame[0]&spdyControl == 0 || binary.BigEndian.Uint16(frame[2:]) != spdySynStream || length > maxSynStream {
			if _, err := io.Copy(runtime, io.MultiReader(bytes.NewReader(frame), io.LimitReader(client, length))); err != nil {
				return err
			}
			continue
		}
		frame = append(frame, make([]byte, length)...)
		if _, err := io.ReadFull(client, frame[spdyHeaderSize:]); err != nil {
			return ignoreEOF(err)
		}
		if !s.observe(decoder, &opening, frame) {
			i = maxOpening
		}
		if _, err := runtime.Write(frame); err != nil {
			return err
		}
	}
	_, err = io.Copy(runtime, client)
	return err
}

// observe decodes a frame that opens a stream. It returns false if that cannot be done for any frame that follows.
func (s *spdyFrames) observe(decoder *spdy.Framer, opening *bytes.Buffer, frame []byte) bool {
	opening.Write(frame)
	decoded, err := decoder.ReadFrame()
	if err != nil {
		return false
	}
	if opened, ok := decoded.(*spdy.SynStreamFrame); ok && opened.Headers.Get("streamType") == streamTypes[errorChannel] {
		s.errorStream.Store(uint32(opened.StreamId))
	}
	return true
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// webSocketFrames are those of a web socket with channels. A server does not mask its frames.
type webSocketFrames struct{ protocol string }

const (
	webSocketText   = 0x81 // a whole message of text
	webSocketBinary = 0x82
	webSocketClose  = 0x88
	webSocketNormal = 1000 // status of a close frame
	webSocketMask   = 0x80
	length16        = 126 // the length follows in two bytes
	length64        = 127 // the length follows in eight bytes
)

func (webSocketFrames) next(runtime *bufio.Reader) (int64, error) {
	header, err := runtime.Peek(2)
	if err != nil {
		return 0, err
	}
	switch length := header[1] &^ webSocketMask; length {
	case length16:
		if header, err = runtime.Peek(4); err != nil {
			return 0, err
		}
		return 4 + int64(binary.BigEndian.Uint16(header[2:])), nil
	case length64:
		if header, err = runtime.Peek(10); err != nil {
			return 0, err
		}
		return 10 + int64(binary.BigEndian.Uint64(header[2:])&(1<<62-1)), nil
	default:
		return 2 + int64(length), nil
	}
}

func (w webSocketFrames) last(cause error) []byte {
	status := statusOf(w.protocol, cause)
	kind, message := byte(webSocketBinary), append([]byte{errorChannel}, status...)
	if strings.Contains(w.protocol, "base64.") {
		kind, message = webSocketText, []byte("3"+base64.StdEncoding.EncodeToString(status))
	}
	frame := []byte{kind, byte(len(message))}
	if len(message) >= length16 {
		frame = binary.BigEndian.AppendUint16([]byte{kind, length16}, uint16(len(message)))
	}
	frame = append(frame, message...)
	return binary.BigEndian.AppendUint16(append(frame, webSocketClose, 2), webSocketNormal)
}

func (webSocketFrames) copyInput(runtime io.Writer, client io.Reader) error {
	_, err := io.Copy(runtime, client)
	return err
}

// noFrames are those of a port-forward, which needs no status: bytes that can be cut anywhere.
type noFrames struct{}

func (noFrames) next(runtime *bufio.Reader) (int64, error) {
	if _, err := runtime.Peek(1); err != nil {
		return 0, err
	}
	return int64(runtime.Buffered()), nil
}

func (noFrames) last(error) []byte { return nil }

func (noFrames) copyInput(runtime io.Writer, client io.Reader) error {
	_, err := io.Copy(runtime, client)
	return err
}
