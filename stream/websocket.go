package stream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Channels of a web socket (STR-12).
const (
	stdinChannel = iota
	stdoutChannel
	stderrChannel
	errorChannel
	resizeChannel
	channelCount
)

const (
	// remotePingPeriod keeps the runtime from ending a stream that is idle while its client is alive.
	remotePingPeriod = time.Minute
	// statusTimeout is how long the client may take to receive the status.
	statusTimeout = 10 * time.Second
	// maxStatus limits the status that a runtime sends.
	maxStatus = 1 << 20
)

// Versions of the protocol of exec and attach on both sides.
const (
	protocolV4 = "v4.channel.k8s.io"
	protocolV5 = "v5.channel.k8s.io"
)

var errNoStatus = errors.New("the runtime ended the stream without a status")

// streamTypes are the values of SPDY's header streamType, by channel.
var streamTypes = [channelCount]string{"stdin", "stdout", "stderr", "error", "resize"}

// isV5 reports whether the client offers version 5, in which it can close stdin alone.
func isV5(header http.Header) bool {
	return isWebSocket(header) && slices.Contains(webSocketProtocols(header), protocolV5)
}

// translate ends a v5 web socket and continues with SPDY v4, since runtimes do not serve v5 (STR-9).
func (p *Proxy) translate(w http.ResponseWriter, r *http.Request, stream remote) error {
	upgraded, err := p.dial(r.Context(), stream.url, http.MethodPost, spdyHeader(protocolV4))
	if err != nil {
		return err
	}
	connection, err := spdy.NewClientConnectionWithPings(upgraded, remotePingPeriod)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	streams, err := openStreams(connection, stream.options)
	if err != nil {
		return err
	}
	ctx, client, err := p.hijack(r.Context(), w)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	socket := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{protocolV5: {Binary: true, Channels: channels(stream.options)}})
	_, channels, err := socket.Open(hijackedWriter{client}, r.WithContext(klog.NewContext(ctx, logr.Discard())))
	if err != nil {
		return nil // the handshake has responded
	}
	defer func() { _ = socket.Close() }()
	s := &translation{socket: socket, channels: channels, streams: streams}
	s.run(ctx)
	return nil
}

// openStreams opens the streams that the runtime expects.
func openStreams(connection httpstream.Connection, o options) (streams [channelCount]httpstream.Stream, err error) {
	isWanted := [channelCount]bool{
		stdinChannel: o.stdin, stdoutChannel: o.stdout, stderrChannel: o.stderr, errorChannel: true, resizeChannel: o.tty,
	}
	for _, channel := range []int{errorChannel, stdinChannel, stdoutChannel, stderrChannel, resizeChannel} {
		if !isWanted[channel] {
			continue
		}
		streams[channel], err = connection.CreateStream(http.Header{"Streamtype": {streamTypes[channel]}})
		if err != nil {
			return streams, err
		}
	}
	return streams, nil
}

// channels returns the direction of each channel.
func channels(o options) []wsstream.ChannelType {
	types := make([]wsstream.ChannelType, channelCount)
	types[errorChannel] = wsstream.WriteChannel
	if o.stdin {
		types[stdinChannel] = wsstream.ReadChannel
	}
	if o.stdout {
		types[stdoutChannel] = wsstream.WriteChannel
	}
	if o.stderr {
		types[stderrChannel] = wsstream.WriteChannel
	}
	if o.tty {
		types[resizeChannel] = wsstream.ReadChannel
	}
	return types
}

// translation is a web socket and a SPDY connection with the same streams. Streams that were not asked for are nil.
type translation struct {
	socket   *wsstream.Conn
	channels []io.ReadWriteCloser
	streams  [channelCount]httpstream.Stream
	status   sync.Once
}

// run copies until the runtime has sent a status or ctx ends.
func (t *translation) run(ctx context.Context) {
	_, _ = t.channels[t.firstOutput()].Write(nil) // says that the stream is open, as other servers do
	stop := context.AfterFunc(ctx, func() {
		t.sendStatus(internalError(causeOf(ctx)))
		_ = t.socket.Close()
		for _, stream := range t.streams {
			if stream != nil {
				_ = stream.Reset()
			}
		}
	})
	defer stop()
	go t.copyInput(stdinChannel)
	go t.copyInput(resizeChannel)
	var output sync.WaitGroup
	for _, channel := range []int{stdoutChannel, stderrChannel} {
		if stream := t.streams[channel]; stream != nil {
			output.Go(func() {
				if _, err := io.Copy(t.channels[channel], stream); err != nil {
					_, _ = io.Copy(io.Discard, stream) // a frame that nobody reads would block the other streams
				}
			})
		}
	}
	status, err := io.ReadAll(io.LimitReader(t.streams[errorChannel], maxStatus))
	output.Wait() // the status follows all output (STR-15)
	if err != nil || len(status) == 0 {
		status = internalError(errNoStatus)
	}
	t.sendStatus(status)
}

// copyInput copies from the client until it closes the channel, and closes the stream then: a message with 255 and the channel ends stdin
// alone.
func (t *translation) copyInput(channel int) {
	stream := t.streams[channel]
	if stream == nil {
		return
	}
	go func() { _, _ = io.Copy(io.Discard, stream) }() // nothing but the end of the stream
	if _, err := io.Copy(stream, t.channels[channel]); err != nil {
		_, _ = io.Copy(io.Discard, t.channels[channel]) // the command reads no more; the client's other messages must still arrive
	}
	_ = stream.Close()
}

// firstOutput returns the lowest channel that the client reads.
func (t *translation) firstOutput() int {
	for _, channel := range []int{stdoutChannel, stderrChannel} {
		if t.streams[channel] != nil {
			return channel
		}
	}
	return errorChannel
}

// sendStatus sends one status, the last message of a stream (STR-14).
func (t *translation) sendStatus(status []byte) {
	t.status.Do(func() {
		t.socket.SetWriteDeadline(statusTimeout)
		_, _ = t.channels[errorChannel].Write(status)
	})
}

// internalError returns the status of a stream that did not end with its command. Without one, clients would assume exit code 0.
func internalError(cause error) []byte {
	status, err := json.Marshal(metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError,
		Message: "Internal error occurred: " + cause.Error(),
	})
	if err != nil {
		panic(err) // strings and a number
	}
	return status
}
