package cri

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// removeOldLogs removes the log folders of pods of which the runtime holds nothing and that nobody wants.
func (r *Runtime) removeOldLogs(pods []*observed.Pod, wanted func(podid.UID) bool, now time.Time) error {
	held := map[podid.UID]bool{}
	for _, pod := range pods {
		held[pod.UID] = true
	}
	entries, err := os.ReadDir(r.config.LogDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var failures []error
	for _, entry := range entries {
		uid, ours := loggedPod(entry)
		if ours && !held[uid] && !wanted(uid) && !isNew(entry, now) {
			failures = append(failures, os.RemoveAll(filepath.Join(r.config.LogDir, entry.Name())))
		}
	}
	return errors.Join(failures...)
}

// loggedPod is whose logs are in the folder <namespace>_<pod>_<uid>. Anything else was put there by others.
func loggedPod(entry fs.DirEntry) (podid.UID, bool) {
	parts := strings.Split(entry.Name(), "_")
	return podid.UID(parts[len(parts)-1]), entry.IsDir() && len(parts) == 3 && parts[2] != ""
}

// isNew also takes what it cannot ask for new: it is gone, or the next round sees it.
func isNew(entry fs.DirEntry, now time.Time) bool {
	info, err := entry.Info()
	return err != nil || info.ModTime().After(now.Add(-settling))
}

// removeDanglingLinks removes links to logs that are gone. While a log is rotated it is gone for a moment, so links of
// containers that may still write are left alone.
func (r *Runtime) removeDanglingLinks(pods []*observed.Pod, now time.Time) error {
	if r.config.ContainerLogDir == "" {
		return nil
	}
	entries, err := os.ReadDir(r.config.ContainerLogDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var failures []error
	for _, entry := range entries {
		link := filepath.Join(r.config.ContainerLogDir, entry.Name())
		if r.dangles(link) && !isNew(entry, now) && !mayBeWritten(pods, entry.Name()) {
			failures = append(failures, os.Remove(link))
		}
	}
	return errors.Join(failures...)
}

func mayBeWritten(pods []*observed.Pod, link string) bool {
	for _, pod := range pods {
		for _, c := range pod.Containers {
			if c.State != observed.Exited && strings.HasSuffix(link, "-"+c.ID.ID+".log") {
				return true
			}
		}
	}
	return false
}

// dangles reports whether it is a link to one of our logs that is not there.
func (r *Runtime) dangles(link string) bool {
	target, err := os.Readlink(link)
	if err != nil || !strings.HasPrefix(target, filepath.Clean(r.config.LogDir)+"/") {
		return false
	}
	_, err = os.Lstat(target)
	return errors.Is(err, fs.ErrNotExist)
}
