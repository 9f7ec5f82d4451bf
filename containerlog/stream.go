package containerlog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/containerlog/entry"
	"github.com/heraldnode/herald/podid"
)

// Stream is an open log. Only one goroutine may use it.
type Stream struct {
	logs     *Logs
	location *location
	segments []*segment // to be read, oldest first; the last one is the log, the others are rotated
	decoder  *entry.Decoder
	isFollow bool
	uid      podid.UID
	id       string // of the container

	buffers *buffers // nil while nothing is read
	rest    int      // bytes of buffers.input that are not decoded yet
	rotation
}

// buffers are the memory of a stream. Followers that wait have none.
type buffers struct {
	input, output []byte
}

// Open finds the log that the options ask for and opens it. The options name the container. An error is of type *Error; nothing that
// was asked for is known to be there before Open has returned (LOG-14).
func (l *Logs) Open(ctx context.Context, pod *v1.Pod, options *v1.PodLogOptions) (*Stream, error) {
	if err := CheckContainer(pod, options.Container); err != nil {
		return nil, err
	}
	instance, err := chooseInstance(pod, options.Container, options.Previous)
	if err != nil {
		return nil, err
	}
	location, file, err := l.locate(ctx, pod, options.Container, instance)
	if err != nil {
		return nil, err
	}
	decoding := decoderOptions(options, time.Now())
	s := &Stream{
		logs: l, location: location, segments: []*segment{{file: file, name: location.name, size: -1}}, decoder: entry.NewDecoder(decoding),
		isFollow: options.Follow, uid: podid.UID(pod.UID), id: instance.id.ID,
	}
	if err = s.selectSegments(ctx, options.TailLines, decoding); err == nil {
		err = s.checkFormat()
	}
	if err != nil {
		s.Close()
		l.config.Logger.Warn("Failed to read log",
			"pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "container", options.Container, "err", err)
		return nil, &Error{http.StatusInternalServerError, "failed to read log of container: " + err.Error()}
	}
	return s, nil
}

// checkFormat returns an error if the first entry that will be read is not one of a log (LOG-21). The error does not show it.
func (s *Stream) checkFormat() error {
	reader, err := s.segments[0].reader()
	if err != nil {
		return err
	}
	const maxFirst = 4 << 10
	first, err := io.ReadAll(io.LimitReader(reader, maxFirst))
	if err != nil {
		return err
	}
	line, _, isWhole := bytes.Cut(first, []byte("\n"))
	if !isWhole && len(first) < maxFirst { // being written
		return nil
	}
	return entry.CheckFormat(line)
}

// Close releases the files. It must be called once.
func (s *Stream) Close() {
	for _, segment := range s.segments {
		_ = segment.file.Close()
	}
	_ = s.location.dir.Close()
	s.release()
}

// Copy writes the log to w and calls flush, which may be nil, at the beginning and after each write. It returns nil at the end of the
// log, or of the container if the log is followed. After an error a part of the log may have been written: the connection must be
// aborted, so that the client does not take it for all (LOG-31).
func (s *Stream) Copy(ctx context.Context, w io.Writer, flush func() error) error {
	if flush == nil {
		flush = func() error { return nil }
	}
	if err := flush(); err != nil { // clients wait for the header (LOG-32)
		return err
	}
	sink := &sink{ctx: ctx, w: w, flush: flush}
	defer s.logDropped()
	for {
		if err := s.startSegment(); err != nil {
			return err
		}
		isLast := len(s.segments) == 1
		if s.isFollow && isLast {
			return s.follow(sink)
		}
		err := s.copySegment(sink)
		if err == nil {
			err = s.finishSegment(sink)
		}
		if err != nil || isLast || s.decoder.Full() {
			return err
		}
		s.nextSegment()
	}
}

// sink is where a log is written to.
type sink struct {
	ctx   context.Context //nolint:containedctx // lives as long as a call of Copy
	w     io.Writer
	flush func() error
}

func (s *sink) write(output []byte) error {
	if len(output) == 0 {
		return s.ctx.Err()
	}
	if _, err := s.w.Write(output); err != nil {
		return err
	}
	return s.flush()
}

// startSegment begins to read the first segment.
func (s *Stream) startSegment() error {
	segment := s.segments[0]
	if !s.isFollow && segment.size < 0 && !segment.isCompressed() {
		info, err := segment.file.Stat()
		if err != nil {
			return err
		}
		segment.size = info.Size() // ends even if the container writes faster than the client reads
	}
	s.rest = 0
	s.rotation = rotation{}
	if segment.position > 0 && s.isFollow {
		s.head = segment.head()
	}
	s.decoder.StartFile(segment.position, segment.starts)
	return nil
}

// nextSegment closes the first segment.
func (s *Stream) nextSegment() {
	_ = s.segments[0].file.Close()
	s.segments = s.segments[1:]
}

// copySegment copies what the first segment has.
func (s *Stream) copySegment(sink *sink) error {
	reader, err := s.segments[0].reader()
	if err != nil {
		return err
	}
	for !s.decoder.Full() {
		s.acquire()
		n, err := reader.Read(s.buffers.input[s.rest:])
		s.observe(s.segments[0].position, s.buffers.input[s.rest:s.rest+n])
		s.rest += n
		s.segments[0].position += int64(n)
		if n > 0 {
			if err := s.decode(sink, false); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// finishSegment decodes an entry without an end.
func (s *Stream) finishSegment(sink *sink) error {
	if s.rest == 0 {
		return nil
	}
	return s.decode(sink, true)
}

// decode decodes and writes what was read.
func (s *Stream) decode(sink *sink, isEnd bool) error {
	output, consumed, err := s.decoder.Decode(s.buffers.output[:0], s.buffers.input[:s.rest], isEnd)
	s.buffers.output = output
	s.rest = copy(s.buffers.input, s.buffers.input[consumed:s.rest])
	return errors.Join(sink.write(output), err)
}

// acquire provides buffers with room for input.
func (s *Stream) acquire() {
	if s.buffers == nil {
		s.buffers = s.logs.buffers.Get().(*buffers)
	}
	if s.rest == len(s.buffers.input) { // an entry of Docker's format, whose size is limited
		s.buffers = &buffers{input: append(s.buffers.input, make([]byte, s.decoder.MaxEntry()-s.rest)...)}
	}
}

// release gives the buffers back unless they have content.
func (s *Stream) release() {
	if s.buffers != nil && s.rest == 0 {
		if len(s.buffers.input) == entry.MaxEntry {
			s.logs.buffers.Put(s.buffers)
		}
		s.buffers = nil
	}
}

func (s *Stream) logDropped() {
	if dropped := s.decoder.Dropped(); dropped > 0 {
		s.logs.config.Logger.Warn("Dropped log entries that are not in the format of the log", "podUID", s.uid, "containerID", s.id,
			"file", s.location.name, "entries", dropped)
	}
}
