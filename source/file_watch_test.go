package source_test

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/source"
)

func TestCFG12_PollingWithoutWatch(t *testing.T) {
	dir := t.TempDir()
	sink := startSource(t, newFile(t, dir, func(c *source.FileConfig) {
		c.Period = 10 * time.Millisecond
		c.NewWatcher = func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }
	}))
	sink.waitPods(t, "")
	sink.waitProblem(t, "cannot be watched, changes are found only every 10ms: open: too many open files; "+
		"raise fs.inotify.max_user_instances or the limit of open files")
	write(t, dir+"/a.yaml", "web 1")
	sink.waitPods(t, "web-1")
	remove(t, dir+"/a.yaml")
	sink.waitPods(t, "")
}

func TestCFG13_MissingDirectory(t *testing.T) {
	dir := t.TempDir() + "/manifests"
	sink := startSource(t, newFile(t, dir))
	sink.waitPods(t, "")
	sink.waitProblem(t, dir+": does not exist; no static pods are read")
	mkdir(t, dir)
	sink.waitNoProblem(t)
	write(t, dir+"/a.yaml", "web 1")
	sink.waitPods(t, "web-1")
}

func TestCFG13_RemovedDirectory(t *testing.T) {
	dir := t.TempDir() + "/manifests"
	mkdir(t, dir)
	write(t, dir+"/a.yaml", "web 1")
	sink := startSource(t, newFile(t, dir))
	sink.waitPods(t, "web-1")
	rename(t, dir, dir+".away")
	sink.waitProblem(t, dir+": cannot be opened: no such file or directory; its pods are kept (1)")
	rename(t, dir+".away", dir)
	sink.waitNoProblem(t)
	remove(t, dir)
	sink.waitProblem(t, "its pods are kept (1)")
	if sets, pods, _ := sink.state(); sets != 1 || pods != "web-1" {
		t.Fatalf("got %d sets, the last %q; want 1, web-1", sets, pods)
	}
	mkdir(t, dir)
	sink.waitPods(t, "") // an existing empty directory has no pods
	write(t, dir+"/a.yaml", "web 2")
	sink.waitPods(t, "web-2")
}

func TestCFG22_SingleFileReplaced(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir+"/pod.manifest", "web 1")
	write(t, dir+"/other.yaml", "other 1")
	sink := startSource(t, newFile(t, path))
	sink.waitPods(t, "web-1")
	replaceAtomically(t, path, "web 2")
	sink.waitPods(t, "web-2")
	replaceAtomically(t, path, "web 3")
	sink.waitPods(t, "web-3")
	write(t, path, "web 4")
	sink.waitPods(t, "web-4")
	remove(t, path)
	sink.waitPods(t, "")
	sink.waitProblem(t, path+": does not exist")
	write(t, path, "web 5")
	sink.waitPods(t, "web-5")
	if diff := cmp.Diff([]string{"web-1", "web-2", "web-3", "web-4", "", "web-5"}, sink.history); diff != "" {
		t.Fatalf("sets (-want +got):\n%s", diff)
	}
}

func TestCFG22_DirectoryOfSingleFileRemoved(t *testing.T) {
	dir := t.TempDir() + "/config"
	mkdir(t, dir)
	write(t, dir+"/pod.yaml", "web 1")
	f := newFile(t, dir+"/pod.yaml")
	f.Scan()
	remove(t, dir)
	if got := f.Scan(); uids(got.Pods) != "web-1" || len(got.Problems) != 1 {
		t.Fatalf("got pods %q, problems %v; want web-1, one problem", uids(got.Pods), got.Problems)
	}
}

func TestF19_WatchRetried(t *testing.T) {
	dir := t.TempDir()
	var opened atomic.Int32
	sink := startSource(t, newFile(t, dir, func(c *source.FileConfig) {
		c.NewWatcher = func() (*fsnotify.Watcher, error) {
			if opened.Add(1) == 1 {
				return nil, syscall.ENOSPC
			}
			return fsnotify.NewWatcher()
		}
	}))
	sink.waitProblem(t, "no space left on device; raise fs.inotify.max_user_watches")
	sink.waitNoProblem(t)
	write(t, dir+"/a.yaml", "web 1")
	sink.waitPods(t, "web-1")
}

func TestF19_WatchError(t *testing.T) {
	for name, failure := range map[string]error{"overflow": fsnotify.ErrEventOverflow, "broken": errors.New("broken")} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mkdir(t, dir+"/sub")
			target := backdate(t, write(t, dir+"/sub/target", "web 1"))
			symlink(t, target, dir+"/a.yaml") // the target is not watched
			watchers := make(chan *fsnotify.Watcher, 10)
			sink := startSource(t, newFile(t, dir, func(c *source.FileConfig) {
				c.NewWatcher = func() (*fsnotify.Watcher, error) {
					w, err := fsnotify.NewWatcher()
					watchers <- w
					return w, err
				}
			}))
			sink.waitPods(t, "web-1")
			sink.waitReports(t, 2) // one at the start, one when the watch started
			watcher := <-watchers
			write(t, target, "web 2")
			watcher.Errors <- failure
			sink.waitPods(t, "web-2")
		})
	}
}

func TestF19_DirectoryReplaced(t *testing.T) {
	root := t.TempDir()
	dir := root + "/a/manifests"
	mkdir(t, root+"/a")
	mkdir(t, dir)
	write(t, dir+"/web.yaml", "web 0")
	sink := startSource(t, newFile(t, dir))
	sink.waitPods(t, "web-0")
	for _, version := range []string{"1", "2", "3"} {
		mkdir(t, root+"/b")
		mkdir(t, root+"/b/manifests")
		write(t, root+"/b/manifests/web.yaml", "web "+version)
		rename(t, root+"/a", root+"/"+version)
		rename(t, root+"/b", root+"/a")
		sink.waitPods(t, "web-"+version)
		write(t, dir+"/web.yaml", "web "+version+"b")
		sink.waitPods(t, "web-"+version+"b")
	}
}

func TestF19_DirectoryRecreated(t *testing.T) {
	dir := t.TempDir() + "/manifests"
	mkdir(t, dir)
	sink := startSource(t, newFile(t, dir))
	sink.waitPods(t, "")
	for _, version := range []string{"1", "2", "3"} {
		sink.mu.Lock()
		reports := sink.reports
		sink.mu.Unlock()
		remove(t, dir)
		mkdir(t, dir)
		sink.waitReports(t, reports+1)
		write(t, dir+"/web.yaml", "web "+version)
		sink.waitPods(t, "web-"+version)
		remove(t, dir+"/web.yaml")
		sink.waitPods(t, "")
	}
}

func TestF19_ReplacementFoundByPoll(t *testing.T) {
	root := t.TempDir()
	for _, version := range []string{"1", "2"} {
		mkdir(t, root+"/"+version)
		mkdir(t, root+"/"+version+"/manifests")
		write(t, root+"/"+version+"/manifests/web.yaml", "web "+version)
	}
	symlink(t, "1", root+"/link") // replacing it sends no notification: neither the directory nor its parent changes
	watchers := make(chan struct{}, 10)
	sink := startSource(t, newFile(t, root+"/link/manifests", func(c *source.FileConfig) {
		c.Period = 50 * time.Millisecond
		c.NewWatcher = func() (*fsnotify.Watcher, error) {
			watchers <- struct{}{}
			return fsnotify.NewWatcher()
		}
	}))
	sink.waitPods(t, "web-1")
	<-watchers
	symlink(t, "2", root+"/next")
	rename(t, root+"/next", root+"/link")
	sink.waitPods(t, "web-2")
	select {
	case <-watchers:
	case <-time.After(30 * time.Second):
		t.Fatal("got the watch of the old directory, want a new one")
	}
}

func TestFile_UnmountedDirectory(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, dir+"/mounted")
	write(t, dir+"/mounted/a.yaml", "web 1")
	symlink(t, dir+"/mounted", dir+"/manifests")
	f := newFile(t, dir+"/manifests")
	f.Scan()
	other := mkdirOnOtherFileSystem(t, dir)
	remove(t, dir+"/manifests")
	symlink(t, other, dir+"/manifests")
	want := dir + "/manifests: is empty and on a different file system than before, as after an unmount; " +
		"its pods are kept (1)"
	for range 2 {
		if got := f.Scan(); uids(got.Pods) != "web-1" || problemText(got.Problems) != want {
			t.Fatalf("got pods %q, problems %q; want web-1, the unmount", uids(got.Pods), problemText(got.Problems))
		}
	}
	write(t, other+"/b.yaml", "db 1")
	if got := f.Scan(); uids(got.Pods) != "db-1" || len(got.Problems) > 0 {
		t.Fatalf("got pods %q, problems %v; want db-1, none", uids(got.Pods), got.Problems)
	}
}

// mkdirOnOtherFileSystem creates an empty directory on another file system than that of dir.
func mkdirOnOtherFileSystem(t *testing.T, dir string) string {
	t.Helper()
	device := func(path string) uint64 {
		var stat syscall.Stat_t
		if err := syscall.Stat(path, &stat); err != nil {
			return 0
		}
		return uint64(stat.Dev) //nolint:unconvert // its type differs between operating systems
	}
	for _, root := range []string{"/dev/shm", "/run", "/var/tmp"} {
		if other := device(root); other == 0 || other == device(dir) {
			continue
		}
		path, err := os.MkdirTemp(root, "herald-test-") //nolint:usetesting // TempDir is on the same file system
		if err == nil {
			t.Cleanup(func() { os.RemoveAll(path) })
			return path
		}
	}
	t.Skip("needs a second writable file system")
	return ""
}
