package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
	_, err = root.Stat(name) // an existing entry may be a link that leads elsewhere
	return err
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
