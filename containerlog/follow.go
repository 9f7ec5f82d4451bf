package containerlog

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/containerlog/entry"
	"github.com/heraldnode/herald/observed"
)

// rotation is what a follower knows about the file that it reads.
type rotation struct {
	head []byte // its beginning, as far as it was read
	// replacedAt is when content was first seen in another file under the name of the log. For a moment runtimes may still write to this
	// one: what is left of a line, or the other stream.
	replacedAt time.Time
}

// observe records the beginning of the file from what was read at a position.
func (r *rotation) observe(position int64, content []byte) {
	if position == int64(len(r.head)) && position < headSize {
		r.head = append(r.head, content[:min(len(content), headSize-len(r.head))]...)
	}
}

// follow copies the log until the container has ended and everything was read (LOG-28, LOG-29).
func (s *Stream) follow(sink *sink) error {
	follower := s.logs.watcher.subscribe(s.location.path, s.uid)
	defer s.logs.watcher.unsubscribe(follower)
	timer := time.NewTimer(s.logs.config.poll)
	defer timer.Stop()
	for {
		hasEnded := s.hasEnded() // before the last read
		if err := s.restartIfTruncated(); err != nil {
			return err
		}
		if err := s.copySegment(sink); err != nil || s.decoder.Full() {
			return err
		}
		switch isChanged, err := s.checkFile(hasEnded); {
		case err != nil:
			return err
		case isChanged:
			if err := s.finishSegment(sink); err != nil {
				return err
			}
			s.nextSegment()
			if err := s.startSegment(); err != nil {
				return err
			}
			continue
		case hasEnded:
			return s.finishSegment(sink)
		}
		s.release()
		timer.Reset(s.logs.config.poll)
		select {
		case <-sink.ctx.Done():
			return sink.ctx.Err()
		case <-s.logs.watcher.stopped:
			return ErrStopped
		case <-follower.signal:
		case <-timer.C:
		}
	}
}

// hasEnded reports whether the container has exited or is gone. Nothing is asked of the runtime. A container that was not observed
// yet counts as running.
func (s *Stream) hasEnded() bool {
	if s.logs.config.Pods == nil {
		return false
	}
	pod := s.logs.config.Pods.Get(s.uid)
	for i := range pod.Containers {
		if pod.Containers[i].ID.ID == s.id {
			return pod.Containers[i].State == observed.Exited
		}
	}
	return !pod.At.IsZero()
}

// checkFile is called at the end of the file. It reports whether there is a next one, and adds it to the segments.
func (s *Stream) checkFile(hasEnded bool) (bool, error) {
	current := s.segments[0]
	if current.isCompressed() {
		return s.addNext(current)
	}
	info, err := current.file.Stat()
	if err != nil {
		return false, err
	}
	var named unix.Stat_t
	isThere := unix.Fstatat(int(s.location.dir.Fd()), s.location.name, &named, unix.AT_SYMLINK_NOFOLLOW) == nil
	stat, _ := info.Sys().(*syscall.Stat_t)
	switch {
	case isThere && stat != nil && named.Ino == stat.Ino && named.Dev == stat.Dev:
		s.replacedAt = time.Time{}
		return false, nil
	case hasEnded:
	case !isThere || named.Size == 0:
		return false, nil // renamed, and the runtime has not written to a new one yet
	case s.replacedAt.IsZero():
		s.replacedAt = time.Now()
		return false, nil
	case time.Since(s.replacedAt) < s.logs.config.poll:
		return false, nil
	}
	return s.addNext(current)
}

// restartIfTruncated begins at the beginning if the file has become shorter, or has another beginning: it was copied and truncated.
func (s *Stream) restartIfTruncated() error {
	current := s.segments[0]
	if current.isCompressed() {
		return nil
	}
	info, err := current.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() >= current.position {
		head := current.head()
		if bytes.HasPrefix(head, s.head) {
			return nil
		}
	}
	current.position, current.starts = 0, entry.Starts{}
	return s.startSegment()
}

// addNext adds the file after the current one to the segments, if there is one: the next rotated file if several rotations went by,
// or the log.
func (s *Stream) addNext(current *segment) (bool, error) {
	names, err := s.location.rotated()
	if err != nil {
		return false, err
	}
	for _, name := range s.after(current, names) {
		next, err := s.location.openRotated(name)
		if err == nil {
			s.segments = append(s.segments, next)
			return true, nil
		}
	}
	file, err := s.location.open(s.location.name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errPlanted):
		return false, nil
	case err != nil:
		return false, err
	}
	if info, err := file.Stat(); err == nil && isSame(current.file, info) { // rolled back meanwhile
		return false, file.Close()
	}
	s.segments = append(s.segments, &segment{file: file, name: s.location.name, size: -1})
	return true, nil
}

// after returns the rotated files that are newer than the current one, oldest first. The current one may be among them under a new
// name, or compressed, or may have been removed.
func (s *Stream) after(current *segment, names []string) []string {
	head := s.head
	if len(head) == 0 {
		head = current.head()
	}
	began := headTime(head)
	var newer []string
	for _, name := range names {
		candidate, err := s.location.openRotated(name)
		if err != nil {
			continue
		}
		info, err := candidate.file.Stat()
		isCurrent := err == nil && isSame(current.file, info) || len(head) > 0 && bytes.HasPrefix(candidate.head(), head)
		isOlder := !headTime(candidate.head()).After(began)
		_ = candidate.file.Close()
		switch {
		case isCurrent:
			newer = nil
		case isOlder && len(newer) == 0:
		default:
			newer = append(newer, name)
		}
	}
	return newer
}

func isSame(file *os.File, info os.FileInfo) bool {
	own, err := file.Stat()
	return err == nil && os.SameFile(own, info)
}
