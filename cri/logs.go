package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/cri/criconfig"
)

// openLogRoot opens LogDir as a root and returns the name of the log relative to it. A pod that mounts LogDir can replace
// directories and files by links: operations through the root never leave it.
func (r *Runtime) openLogRoot(log string) (root *os.Root, name string, err error) {
	name, err = filepath.Rel(r.config.LogDir, log)
	if err != nil || !filepath.IsLocal(name) {
		return nil, "", fmt.Errorf("log %s is outside of %s", log, r.config.LogDir)
	}
	root, err = os.OpenRoot(r.config.LogDir)
	return root, name, err
}

// createLogDir creates a directory for logs, which the runtime writes to by path.
func (r *Runtime) createLogDir(dir string) error {
	const mode = 0o755 // readable for log shippers
	if err := os.MkdirAll(r.config.LogDir, mode); err != nil {
		return err
	}
	root, name, err := r.openLogRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(name, mode); err != nil {
		return err
	}
	created, err := openNoLinks(root, name, os.O_RDONLY) // an existing entry may be a link that leads elsewhere
	if err != nil {
		return err
	}
	return created.Close()
}

// openNoLinks opens an existing file below root. Unlike root.OpenFile, it does not follow links to other files below root, which
// are those of other pods, and a pipe does not block it.
func openNoLinks(root *os.Root, name string, flags int) (*os.File, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	path := filepath.Join(root.Name(), name)
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
		Flags: uint64(flags) | unix.O_NONBLOCK | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "openat2", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// removePlantedLog removes what is in the place of a log that the runtime is about to open, unless it is a log: the runtime
// opens it by its path, follows links and appends to other files.
func (r *Runtime) removePlantedLog(root *os.Root, log string) error {
	info, err := root.Lstat(log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || isSingleFile(info) {
		return err
	}
	if err := root.RemoveAll(log); err != nil {
		return err
	}
	r.config.Logger.Warn("Removed planted file in the place of a container log", "log", log, "mode", info.Mode().String())
	return nil
}

// isSingleFile reports whether the entry is a regular file without another name.
func isSingleFile(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return info.Mode().IsRegular() && ok && stat.Nlink == 1
}

// prepareLog prepares the place of the container's log. Runtimes open the log when they create or when they start the
// container, so it precedes both.
func (s *containerStart) prepareLog() error {
	if err := s.createLogDir(filepath.Dir(s.logPath())); err != nil {
		return fmt.Errorf("create log directory of the container: %w", err)
	}
	root, name, err := s.openLogRoot(s.logPath())
	if err != nil {
		return err
	}
	defer root.Close()
	return s.removePlantedLog(root, name)
}

func (s *containerStart) logPath() string {
	return filepath.Join(s.generator.PodLogDir(s.pod), criconfig.ContainerLogPath(s.container.Name, s.start.RestartCount))
}

// linkLog creates the symlink in ContainerLogDir. No component depends on it, so an error is only logged.
func (s *containerStart) linkLog(id string) {
	if s.config.ContainerLogDir == "" {
		return
	}
	link := filepath.Join(s.config.ContainerLogDir, s.pod.Name+"_"+s.pod.Namespace+"_"+s.container.Name+"-"+id+".log")
	err := os.MkdirAll(s.config.ContainerLogDir, 0o755)
	if err == nil {
		err = os.Symlink(s.logPath(), link)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		s.logger().Warn("Failed to create log symlink", "link", link, "err", err)
	}
}

// unlinkLogs removes the symlinks of the containers.
func (r *Runtime) unlinkLogs(ids []string) error {
	if r.config.ContainerLogDir == "" {
		return nil
	}
	var errs []error
	for _, id := range ids {
		links, err := filepath.Glob(filepath.Join(r.config.ContainerLogDir, "*-"+id+".log"))
		errs = append(errs, err)
		for _, link := range links {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}
