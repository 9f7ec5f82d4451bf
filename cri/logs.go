package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/internal/nolinks"
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
	created, err := nolinks.Open(root, name, os.O_RDONLY) // an existing entry may be a link that leads elsewhere
	if err != nil {
		return err
	}
	return created.Close()
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
	return s.LogPath(s.pod, s.container.Name, s.start.RestartCount)
}

// LogPath returns the path of the log of an instance of a container. attempt is the restart count of the instance.
func (r *Runtime) LogPath(pod *v1.Pod, container string, attempt int) string {
	return filepath.Join(r.generator.PodLogDir(pod), criconfig.ContainerLogPath(container, attempt))
}

// ContainerLogPath returns the path of the container's log as the runtime reports it.
func (r *Runtime) ContainerLogPath(ctx context.Context, id string) (string, error) {
	response, err := r.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return "", fmt.Errorf("cri: get log path of container %s: %w", id, err)
	}
	return response.GetStatus().GetLogPath(), nil
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
