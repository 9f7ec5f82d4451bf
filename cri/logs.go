package cri

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

func (s *starting) logFile() string {
	return filepath.Join(s.config.podLogDir(s.pod), containerLog(s.container.Name, s.start.RestartCount))
}

// linkLog gives log shippers the link that they look for. Nothing depends on it, so a failure is only logged.
func (s *starting) linkLog(id string) {
	if s.config.ContainerLogDir == "" {
		return
	}
	link := filepath.Join(s.config.ContainerLogDir,
		s.pod.Name+"_"+s.pod.Namespace+"_"+s.container.Name+"-"+id+".log")
	err := os.MkdirAll(s.config.ContainerLogDir, 0o755)
	if err == nil {
		err = os.Symlink(s.logFile(), link)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		s.config.Logger.Warn("no link to a container's log was made", "link", link, "error", err)
	}
}

// unlinkLogs removes the links that containers of these IDs have.
func (r *Runtime) unlinkLogs(ids []string) error {
	if r.config.ContainerLogDir == "" {
		return nil
	}
	var failed []error
	for _, id := range ids {
		links, err := filepath.Glob(filepath.Join(r.config.ContainerLogDir, "*-"+id+".log"))
		failed = append(failed, err)
		for _, link := range links {
			failed = append(failed, os.Remove(link))
		}
	}
	return errors.Join(failed...)
}
