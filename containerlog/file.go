package containerlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/nolinks"
	"github.com/heraldnode/herald/podid"
)

// location is where the log of an instance is. The directory is open: nothing can be put in its place.
type location struct {
	dir  *os.File
	path string // of the directory
	name string
}

// errPlanted means that a file in the place of a log is none.
var errPlanted = errors.New("not a log: a link, or not a regular file")

// open opens a file of the log's directory.
func (l *location) open(name string) (*os.File, error) {
	file, err := nolinks.OpenAt(l.dir, name, os.O_RDONLY)
	if errors.Is(err, unix.ELOOP) {
		return nil, errPlanted
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !isSingleFile(info) {
		err = errPlanted
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// isSingleFile reports whether it is a regular file without another name, which could be that of another log.
func isSingleFile(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return info.Mode().IsRegular() && ok && stat.Nlink <= 1
}

// locate finds and opens the log of an instance. The file counts, not the runtime: the log of a container that was removed is
// served as long as it is there (LOG-14, LOG-15). If it is gone, the code is that of the kubelet for a log that it cannot read: of a 404,
// kube-apiserver drops the message.
func (l *Logs) locate(ctx context.Context, pod *v1.Pod, container string, i instance) (*location, *os.File, error) {
	attempt := l.observedAttempt(podid.UID(pod.UID), i)
	path := l.config.Paths.LogPath(pod, container, attempt)
	location, file, err := l.openLog(path)
	if err == nil {
		return location, file, nil
	}
	if reported, pathErr := l.config.Paths.ContainerLogPath(ctx, i.id.ID); pathErr == nil && reported != "" && reported != path {
		if location, file, err = l.openLog(reported); err == nil {
			return location, file, nil
		}
	}
	if older := l.newestAttempt(filepath.Dir(path), attempt); i.isGuess && older >= 0 {
		if location, file, err = l.openLog(l.config.Paths.LogPath(pod, container, older)); err == nil {
			return location, file, nil
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		l.config.Logger.Warn("Failed to open log", "pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "container", container, "err", err)
	}
	return nil, nil, &Error{http.StatusBadRequest, fmt.Sprintf("unable to retrieve container logs for %s: %s", i.id, reasonOf(err))}
}

// reasonOf describes for a client why a log cannot be opened, without paths of the node.
func reasonOf(err error) string {
	var path *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "its log file is gone"
	case errors.Is(err, errPlanted):
		return errPlanted.Error()
	case errors.As(err, &path):
		return "its log file cannot be opened: " + path.Err.Error()
	default:
		return "its log file cannot be opened"
	}
}

// observedAttempt returns the restart count of the instance.
func (l *Logs) observedAttempt(uid podid.UID, i instance) int {
	if l.config.Pods == nil {
		return i.attempt
	}
	for _, container := range l.config.Pods.Get(uid).Containers {
		if container.ID.ID == i.id.ID {
			return container.RestartCount
		}
	}
	return i.attempt
}

// openDir opens a directory below Dir.
func (l *Logs) openDir(path string) (*os.File, error) {
	name, err := filepath.Rel(l.config.Dir, path)
	if err != nil || !filepath.IsLocal(name) {
		return nil, fmt.Errorf("log directory %s is outside of %s", path, l.config.Dir)
	}
	root, err := os.OpenRoot(l.config.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return nolinks.Open(root, name, os.O_RDONLY|unix.O_DIRECTORY)
}

func (l *Logs) openLog(path string) (*location, *os.File, error) {
	dir, err := l.openDir(filepath.Dir(path))
	if err != nil {
		return nil, nil, err
	}
	location := &location{dir: dir, path: filepath.Dir(path), name: filepath.Base(path)}
	file, err := location.open(location.name)
	if err != nil {
		return nil, nil, errors.Join(err, dir.Close())
	}
	return location, file, nil
}

// newestAttempt returns the newest instance that has a log and is older than the attempt, or -1.
func (l *Logs) newestAttempt(path string, attempt int) int {
	dir, err := l.openDir(path)
	if err != nil {
		return -1
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	newest := -1
	for _, name := range names {
		digits, isLog := strings.CutSuffix(name, ".log")
		if number, err := strconv.Atoi(digits); isLog && err == nil && number < attempt {
			newest = max(newest, number)
		}
	}
	return newest
}
