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

func TestCFG12PollingHealsLostNotifications(t *testing.T) {
	dir := t.TempDir()
	sink := start(t, newFile(t, dir, func(c *source.FileConfig) {
		c.Period = 10 * time.Millisecond
		c.NewWatcher = func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }
	}))
	sink.waitPods(t, "")
	sink.waitProblem(t, "changes are seen every 10ms only, because they cannot be watched: open: too many open files; "+
		"raise fs.inotify.max_user_instances or the limit of open files")
	write(t, dir+"/a.yaml", "web 1")
	sink.waitPods(t, "web-1")
	remove(t, dir+"/a.yaml")
	sink.waitPods(t, "")
}

func TestCFG13AMissingDirectoryIsANodeWithoutStaticPodsUntilItAppears(t *testing.T) {
	dir := t.TempDir() + "/manifests"
	sink := start(t, newFile(t, dir))
	sink.waitPods(t, "")
	sink.waitProblem(t, dir+": does not exist, so no pod comes from it")
	mkdir(t, dir)
	sink.waitNoProblem(t)
	write(t, dir+"/a.yaml", "web 1")
	sink.waitPods(t, "web-1")
}

func TestCFG13ADirectoryThatVanishesKeepsItsPods(t *testing.T) {
	dir := t.TempDir() + "/manifests"
	mkdir(t, dir)
	write(t, dir+"/a.yaml", "web 1")
	sink := start(t, newFile(t, dir))
	sink.waitPods(t, "web-1")
	rename(t, dir, dir+".away")
	sink.waitProblem(t, dir+": cannot be opened: no such file or directory; its pods stay as they are (1)")
	rename(t, dir+".away", dir)
	sink.waitNoProblem(t)
	remove(t, dir)
	sink.waitProblem(t, "its pods stay as they are (1)")
	if sets, pods, _ := sink.told(); sets != 1 || pods != "web-1" {
		t.Fatalf("%d sets, the last %q; want the first one only", sets, pods)
	}
	mkdir(t, dir)
	sink.waitPods(t, "") // an empty directory is an answer
	write(t, dir+"/a.yaml", "web 2")
	sink.waitPods(t, "web-2")
}

func TestCFG22ASingleFileSurvivesAtomicReplacesAndIsStillWatched(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir+"/pod.manifest", "web 1")
	write(t, dir+"/other.yaml", "other 1")
	sink := start(t, newFile(t, path))
	sink.waitPods(t, "web-1")
	install(t, path, "web 2")
	sink.waitPods(t, "web-2")
	install(t, path, "web 3")
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

func TestCFG22ASingleFileWhoseFolderVanishesKeepsItsPods(t *testing.T) {
	dir := t.TempDir() + "/config"
	mkdir(t, dir)
	write(t, dir+"/pod.yaml", "web 1")
	f := newFile(t, dir+"/pod.yaml")
	f.Scan()
	remove(t, dir)
	if got := f.Scan(); names(got.Pods) != "web-1" || len(got.Problems) != 1 {
		t.Fatalf("pods %q, problems %v", names(got.Pods), got.Problems)
	}
}

func TestF19AWatchThatFailsIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	var opened atomic.Int32
	sink := start(t, newFile(t, dir, func(c *source.FileConfig) {
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

func TestF19AnOverflowOrABrokenWatchMakesTheDirectoryBeReadAgain(t *testing.T) {
	for name, failure := range map[string]error{"overflow": fsnotify.ErrEventOverflow, "broken": errors.New("broken")} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mkdir(t, dir+"/below")
			target := aged(t, write(t, dir+"/below/target", "web 1"))
			symlink(t, target, dir+"/a.yaml") // changes of the target are not notified
			watchers := make(chan *fsnotify.Watcher, 10)
			sink := start(t, newFile(t, dir, func(c *source.FileConfig) {
				c.NewWatcher = func() (*fsnotify.Watcher, error) {
					w, err := fsnotify.NewWatcher()
					watchers <- w
					return w, err
				}
			}))
			sink.waitPods(t, "web-1")
			sink.waitReports(t, 2) // one at the start, one when the watch began
			watcher := <-watchers
			write(t, target, "web 2")
			watcher.Errors <- failure
			sink.waitPods(t, "web-2")
		})
	}
}

func TestF19ADirectoryThatIsReplacedIsWatchedAgain(t *testing.T) {
	root := t.TempDir()
	dir := root + "/a/manifests"
	mkdir(t, root+"/a")
	mkdir(t, dir)
	write(t, dir+"/web.yaml", "web 0")
	sink := start(t, newFile(t, dir))
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

func TestF19ADirectoryThatIsMadeAnewIsWatchedAgainEvenWithTheSameInode(t *testing.T) {
	dir := t.TempDir() + "/manifests"
	mkdir(t, dir)
	sink := start(t, newFile(t, dir))
	sink.waitPods(t, "")
	for _, version := range []string{"1", "2", "3"} {
		sink.mu.Lock()
		looks := sink.reports
		sink.mu.Unlock()
		remove(t, dir)
		mkdir(t, dir)
		sink.waitReports(t, looks+1)
		write(t, dir+"/web.yaml", "web "+version)
		sink.waitPods(t, "web-"+version)
		remove(t, dir+"/web.yaml")
		sink.waitPods(t, "")
	}
}

func TestF19AnotherDirectoryAtThePathIsWatchedAnewWhenAPollFindsIt(t *testing.T) {
	root := t.TempDir()
	for _, version := range []string{"1", "2"} {
		mkdir(t, root+"/"+version)
		mkdir(t, root+"/"+version+"/manifests")
		write(t, root+"/"+version+"/manifests/web.yaml", "web "+version)
	}
	symlink(t, "1", root+"/link") // swapping it is not notified: neither the directory nor its parent changes
	watchers := make(chan struct{}, 10)
	sink := start(t, newFile(t, root+"/link/manifests", func(c *source.FileConfig) {
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
		t.Fatal("the watch is still on the old directory")
	}
}

func TestAnUnmountedDirectoryKeepsItsPods(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, dir+"/mounted")
	write(t, dir+"/mounted/a.yaml", "web 1")
	symlink(t, dir+"/mounted", dir+"/manifests")
	f := newFile(t, dir+"/manifests")
	f.Scan()
	below := elsewhere(t, dir)
	remove(t, dir+"/manifests")
	symlink(t, below, dir+"/manifests")
	want := dir + "/manifests: is empty and on another file system than before, as after an unmount; " +
		"its pods stay as they are (1)"
	for range 2 {
		if got := f.Scan(); names(got.Pods) != "web-1" || texts(got.Problems) != want {
			t.Fatalf("pods %q, problems %q", names(got.Pods), texts(got.Problems))
		}
	}
	write(t, below+"/b.yaml", "db 1")
	if got := f.Scan(); names(got.Pods) != "db-1" || len(got.Problems) > 0 {
		t.Fatalf("pods %q, problems %v", names(got.Pods), got.Problems)
	}
}

// elsewhere makes an empty directory on another file system than dir's.
func elsewhere(t *testing.T, dir string) string {
	t.Helper()
	device := func(path string) uint64 {
		var stat syscall.Stat_t
		if err := syscall.Stat(path, &stat); err != nil {
			return 0
		}
		return uint64(stat.Dev) //nolint:unconvert // its type is another one on other systems
	}
	for _, root := range []string{"/dev/shm", "/run", "/var/tmp"} {
		if other := device(root); other == 0 || other == device(dir) {
			continue
		}
		path, err := os.MkdirTemp(root, "herald-test-") //nolint:usetesting // it must not be where TempDir makes them
		if err == nil {
			t.Cleanup(func() { os.RemoveAll(path) })
			return path
		}
	}
	t.Skip("this machine has one file system only")
	return ""
}
