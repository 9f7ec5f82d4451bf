package cri

import (
	"errors"
	"fmt"
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

// makeLogFolder makes a folder for logs, which the runtime writes to by its path.
func (c *Config) makeLogFolder(folder string) error {
	const mode = 0o755 // for who ships logs
	if err := os.MkdirAll(c.LogDir, mode); err != nil {
		return err
	}
	root, name, err := c.openLogs(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(name, mode); err != nil {
		return err
	}
	_, err = root.Stat(name) // what was there already may lead elsewhere
	return err
}

// openLogs opens the folder of all logs, and tells the name that a log has in it. A pod that has the folder mounted
// can put links in the place of folders and files: what is done through the root never leaves it.
func (c *Config) openLogs(log string) (root *os.Root, name string, err error) {
	name, err = filepath.Rel(c.LogDir, log)
	if err != nil || !filepath.IsLocal(name) {
		return nil, "", fmt.Errorf("log %s is not below %s", log, c.LogDir)
	}
	root, err = os.OpenRoot(c.LogDir)
	return root, name, err
}
