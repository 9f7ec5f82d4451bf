package containerlog

import (
	"context"
	"io"
	"os"
	"slices"
	"time"

	"github.com/heraldnode/herald/containerlog/entry"
)

// selectSegments selects the files to read and where to begin. Unlike the kubelet, requests for the last lines or for those since
// a time continue into rotated files (LOG-27). Others get the log that is being written only.
func (s *Stream) selectSegments(ctx context.Context, tailLines *int64, options entry.Options) error {
	if tailLines != nil {
		return s.selectTail(ctx, entry.NewTail(*tailLines, options.Omit))
	}
	if options.Since.IsZero() || !s.isAfter(s.segments[0], options.Since) {
		return nil
	}
	return s.eachRotated(func(rotated *segment) (isNeeded, isLast bool, err error) {
		return true, !s.isAfter(rotated, options.Since), nil
	})
}

// isAfter reports whether all entries of the segment are at or after this time, so that there may be more in an older file. An empty
// file says nothing.
func (s *Stream) isAfter(segment *segment, since time.Time) bool {
	first := headTime(segment.head())
	return first.IsZero() || first.After(since)
}

// selectTail makes the segments begin with the last lines.
func (s *Stream) selectTail(ctx context.Context, tail *entry.Tail) error {
	position := func(segment *segment) (isNeeded bool, err error) {
		err = s.logs.withContent(ctx, segment, func(content io.ReaderAt, size int64) error {
			starts, first, end, err := findTail(content, size, tail)
			segment.starts, segment.position = starts, first
			isNeeded = first < end
			if !s.isFollow {
				segment.size = end
			}
			return err
		})
		return isNeeded, err
	}
	if _, err := position(s.segments[0]); err != nil || tail.Done() {
		return err
	}
	return s.eachRotated(func(rotated *segment) (isNeeded, isLast bool, err error) {
		isNeeded, err = position(rotated)
		return isNeeded, tail.Done(), err
	})
}

// eachRotated calls use with the rotated files, newest first, until it returns true for the last one. It prepends those that are
// needed to the segments. A rotated file that cannot be read ends the log: what is older would leave a gap.
func (s *Stream) eachRotated(use func(rotated *segment) (isNeeded, isLast bool, err error)) error {
	names, err := s.location.rotated()
	if err != nil {
		return err
	}
	live, err := s.segments[0].file.Stat()
	if err != nil {
		return err
	}
	for _, name := range slices.Backward(names) {
		rotated, err := s.location.openRotated(name)
		if err != nil {
			break
		}
		if info, err := rotated.file.Stat(); err != nil || os.SameFile(info, live) { // rotated right now
			_ = rotated.file.Close()
			continue
		}
		isNeeded, isLast, err := use(rotated)
		if err != nil || !isNeeded {
			_ = rotated.file.Close()
		} else {
			s.segments = slices.Insert(s.segments, 0, rotated)
		}
		if err != nil || isLast {
			break
		}
	}
	return nil
}
