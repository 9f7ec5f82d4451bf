package nodeserver

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"syscall"
)

// serveLogs serves the files of the log directory. Links that leave it, pipes and devices are not opened: a pod that mounts /var/log
// could otherwise let a client read any file of the node, or block (SRV-33).
func (s *Server) serveLogs(w http.ResponseWriter, r *http.Request) {
	root, err := os.OpenRoot(s.config.Debugging.LogDir)
	if err != nil {
		writeError(w, http.StatusInternalServerError, fmt.Sprintf("open the log directory: %v", err))
		return
	}
	defer root.Close()
	http.StripPrefix(strings.TrimSuffix(pathLogs, "/"), http.FileServerFS(regularFiles{root})).ServeHTTP(w, r)
}

// regularFiles are the files and directories below a root.
type regularFiles struct{ root *os.Root }

// Open implements fs.FS.
func (f regularFiles) Open(name string) (fs.File, error) {
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// serveProfile serves the profiles of the process.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	switch strings.TrimPrefix(r.URL.Path, pathProfiles) {
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}
