package source_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/source/manifest"
)

// createFunc creates something other than a manifest at a path.
type createFunc func(t *testing.T, path string)

func createSymlink(target string) createFunc {
	return func(t *testing.T, path string) {
		t.Helper()
		symlink(t, target, path)
	}
}

func createDirectory(t *testing.T, path string) {
	t.Helper()
	mkdir(t, path)
}

func createPipe(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
}

func createSocket(t *testing.T, path string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
}

// createFile creates a sparse file of that size.
func createFile(size int64) createFunc {
	return func(t *testing.T, path string) {
		t.Helper()
		write(t, path, "")
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
}

func TestF20_NotAManifest(t *testing.T) {
	tests := map[string]struct {
		create createFunc
		want   string
	}{
		"directory":          {createDirectory, "is a directory, not a regular file"},
		"named pipe":         {createPipe, "is a named pipe, not a regular file"},
		"socket":             {createSocket, "is a socket, not a regular file"},
		"device":             {createSymlink("/dev/zero"), "is a device, not a regular file"},
		"symlink loop":       {createSymlink("x.yaml"), "too many levels of symbolic links"},
		"dangling symlink":   {createSymlink("/nowhere/at/all"), "no such file or directory"},
		"too large":          {createFile(1 << 40), "is larger than 1048576 bytes, the maximum size of a manifest"},
		"one byte too large": {createFile(manifest.MaxBytes + 1), "is larger than 1048576 bytes, the maximum size of a manifest"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir+"/good.yaml", "db 1")
			write(t, dir+"/x.yaml", "web 1")
			f := newFile(t, dir)
			f.Scan()
			remove(t, dir+"/x.yaml")
			test.create(t, dir+"/x.yaml")
			listing := f.Scan()
			if got := uids(listing.Pods); got != "db-1 web-1" {
				t.Errorf("got pods %q, want the last valid ones", got)
			}
			if got := problemText(listing.Problems); !strings.HasPrefix(got, dir+"/x.yaml: ") || !strings.Contains(got, test.want) {
				t.Errorf("problems: got %q, want %q", got, test.want)
			}
			remove(t, dir+"/x.yaml")
			if listing := f.Scan(); uids(listing.Pods) != "db-1" || len(listing.Problems) > 0 {
				t.Errorf("removed: got pods %q, problems %v; want db-1, none", uids(listing.Pods), listing.Problems)
			}
		})
	}
}

func TestF20_PipeReplacesFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/x.yaml", "web 1")
	f := newFile(t, dir)
	f.Scan()
	ctx, stop := context.WithCancel(t.Context())
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for ctx.Err() == nil {
			if err := syscall.Mkfifo(dir+"/.next", 0o644); err != nil {
				t.Error(err)
				return
			}
			rename(t, dir+"/.next", dir+"/x.yaml")
			replaceAtomically(t, dir+"/x.yaml", "web 1")
		}
	})
	for range 2000 {
		if got := uids(f.Scan().Pods); got != "web-1" {
			t.Errorf("got pods %q, want web-1", got)
			break
		}
	}
	stop()
	swapping.Wait()
}

func TestFile_PathIsPipe(t *testing.T) {
	path := t.TempDir() + "/pipe"
	createPipe(t, path)
	listing := newFile(t, path).Scan()
	if listing.Known || problemText(listing.Problems) != path+": is a named pipe, not a regular file" {
		t.Fatalf("got %+v, want unknown pods and a problem", listing)
	}
}

func TestFile_ProjectedVolume(t *testing.T) {
	dir := t.TempDir()
	version := func(name, content string) {
		mkdir(t, dir+"/"+name)
		write(t, dir+"/"+name+"/web.yaml", content)
		symlink(t, name, dir+"/..data_tmp")
		rename(t, dir+"/..data_tmp", dir+"/..data")
	}
	version("..2024_1", "web 1")
	symlink(t, "..data/web.yaml", dir+"/web.yaml")
	sink := startSource(t, newFile(t, dir))
	single := startSource(t, newFile(t, dir+"/web.yaml"))
	sink.waitPods(t, "web-1")
	single.waitPods(t, "web-1")
	version("..2024_2", "web 2")
	sink.waitPods(t, "web-2")
	single.waitPods(t, "web-2")
	sink.waitNoProblem(t)
}

func TestFile_DanglingSymlink(t *testing.T) {
	dir := t.TempDir()
	target := write(t, dir+"/target", "web 1")
	symlink(t, target, dir+"/pod.yaml")
	f := newFile(t, dir+"/pod.yaml")
	f.Scan()
	remove(t, target)
	if got := f.Scan(); uids(got.Pods) != "web-1" || len(got.Problems) != 1 {
		t.Fatalf("got pods %q, problems %v; want web-1, one problem", uids(got.Pods), got.Problems)
	}
	if got := newFile(t, dir+"/pod.yaml").Scan(); got.Known {
		t.Fatal("new agent: got known, want unknown")
	}
	remove(t, dir+"/pod.yaml")
	if got := f.Scan(); len(got.Pods) > 0 {
		t.Fatalf("got pods %q, want none", uids(got.Pods))
	}
}

func TestFile_SymlinkedDirectory(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, dir+"/1")
	write(t, dir+"/1/web.yaml", "web 1")
	mkdir(t, dir+"/2")
	write(t, dir+"/2/web.yaml", "web 2")
	symlink(t, "1", dir+"/manifests")
	sink := startSource(t, newFile(t, dir+"/manifests"))
	sink.waitPods(t, "web-1")
	symlink(t, "2", dir+"/next")
	rename(t, dir+"/next", dir+"/manifests")
	sink.waitPods(t, "web-2")
	write(t, dir+"/2/web.yaml", "web 3")
	sink.waitPods(t, "web-3")
}

func TestFile_DirectoryReplacesFileBeingWritten(t *testing.T) {
	dir := t.TempDir()
	backdate(t, write(t, dir+"/good.yaml", "db 1"))
	stop := writeContinuously(t, dir+"/x.yaml", "web 1")
	sink := startSource(t, newFile(t, dir, func(c *source.FileConfig) { c.Settle = 300 * time.Millisecond }))
	sink.waitReports(t, 1)
	stop()
	remove(t, dir+"/x.yaml")
	mkdir(t, dir+"/x.yaml")
	sink.waitPods(t, "db-1")
	sink.waitProblem(t, "is a directory")
}

func TestFile_TooManyEntries(t *testing.T) {
	if testing.Short() {
		t.Skip("creates 20001 files")
	}
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1")
	f := newFile(t, dir)
	f.Scan()
	for i := range 20_001 {
		if err := os.Link(dir+"/a.yaml", fmt.Sprintf("%s/.%d", dir, i)); err != nil {
			t.Fatal(err)
		}
	}
	listing := f.Scan()
	if uids(listing.Pods) != "web-1" || !strings.Contains(problemText(listing.Problems), "has more than 20000 entries") {
		t.Fatalf("got pods %q, problems %v; want web-1, too many entries", uids(listing.Pods), listing.Problems)
	}
}

func FuzzDirectory(f *testing.F) {
	f.Add([]byte("web 1\n"), []byte("db 1"), uint8(0))
	f.Add([]byte{}, []byte("\x00\xff"), uint8(1))
	f.Add([]byte("web 1"), []byte("web 2"), uint8(2))
	f.Add([]byte(realManifest("web", "registry.example/web:1")), []byte("a: &a [*a]"), uint8(3))
	f.Fuzz(func(t *testing.T, first, second []byte, fault uint8) {
		dir := t.TempDir()
		file := newFile(t, dir, func(c *source.FileConfig) { c.Decode = nil })
		write(t, dir+"/a.yaml", string(first))
		before := file.Scan()
		write(t, dir+"/b.yaml", string(second))
		switch fault % 6 {
		case 1:
			rename(t, dir+"/b.yaml", dir+"/a.yaml")
		case 2:
			remove(t, dir+"/a.yaml")
			symlink(t, "b.yaml", dir+"/a.yaml")
		case 3:
			remove(t, dir+"/a.yaml")
			mkdir(t, dir+"/a.yaml")
		case 4:
			remove(t, dir+"/a.yaml")
		case 5:
			write(t, dir+"/a.yaml", string(second[:len(second)/2]))
		}
		after := file.Scan()
		seen := map[string]bool{}
		for _, p := range after.Pods {
			if name := p.Namespace + "/" + p.Name; seen[name] {
				t.Fatalf("got two pods %s, want one", name)
			}
			seen[p.Namespace+"/"+p.Name] = true
		}
		if len(before.Pods) > 0 && len(after.Pods) == 0 && len(after.Problems) > 0 && fault%6 == 3 {
			t.Fatalf("got no pods after an invalid edit, want the last valid ones: %v", after.Problems)
		}
		remove(t, dir+"/a.yaml")
		remove(t, dir+"/b.yaml")
		if left := file.Scan(); len(left.Pods) > 0 || len(left.Problems) > 0 {
			t.Fatalf("empty directory: got %+v, want nothing", left)
		}
	})
}

// permissionChange changes owner or mode of a path below dir.
type permissionChange func(t *testing.T, dir string)

func chmod(path string, mode os.FileMode) permissionChange {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := os.Chmod(dir+path, mode); err != nil {
			t.Fatal(err)
		}
	}
}

// chown changes user and group of a path. A group other than root's gets write access.
func chown(path string, uid, gid int) permissionChange {
	return func(t *testing.T, dir string) {
		t.Helper()
		if os.Geteuid() != 0 {
			t.Skip("needs root to change owners")
		}
		if err := os.Chown(dir+path, uid, gid); err != nil {
			t.Fatal(err)
		}
		if gid != 0 {
			chmod(path, 0o775)(t, dir)
		}
	}
}

func TestFile_UnsafePermissions(t *testing.T) {
	tests := map[string]struct {
		change permissionChange
		want   string // DIR stands for the directory; "" if it is allowed
	}{
		"world-writable file": {
			chmod("/m/a.yaml", 0o666), "DIR/m/a.yaml: is world-writable (mode 0666), so any user could start pods (chmod o-w DIR/m/a.yaml)",
		},
		"world-writable directory": {
			chmod("/m", 0o777),
			"DIR/m: is world-writable (mode 0777), so any user could start pods (chmod o-w DIR/m); its pods are kept (2)",
		},
		"sticky directory":      {chmod("/m", os.ModeSticky|0o777), "DIR/m: is world-writable (mode 1777)"},
		"world-writable target": {chmod("/m/..v/1/b", 0o666), "DIR/m/b.yaml: is world-writable (mode 0666)"},
		"world-writable target directory": {
			chmod("/m/..v/1", 0o777),
			"DIR/m/b.yaml: links to DIR/m/..v/1, which is world-writable (mode 0777), so any user could start pods (chmod o-w DIR/m/..v/1)",
		},
		"world-writable intermediate directory": {
			chmod("/m/..v", 0o777),
			"DIR/m/b.yaml: links to DIR/m/..v, which is world-writable (mode 0777), so any user could start pods (chmod o-w DIR/m/..v)",
		},
		"file of another user": {
			chown("/m/a.yaml", 1234, 0),
			"DIR/m/a.yaml: is owned by user 1234, not by root or the agent's user 0 (chown 0 DIR/m/a.yaml)",
		},
		"directory of another user": {chown("/m", 1234, 0), "DIR/m: is owned by user 1234"},
		"directory of another group": {
			chown("/m", 0, 1234),
			"DIR/m: is writable by group 1234 (mode 0775), so its members could start pods (chmod g-w DIR/m)",
		},
		"own group":      {chmod("/m", 0o775), ""},
		"world-readable": {chmod("/m/a.yaml", 0o444), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { checkPermissions(t, test.change, test.want) })
	}
}

func checkPermissions(t *testing.T, change permissionChange, want string) {
	t.Helper()
	dir := t.TempDir()
	mkdir(t, dir+"/m")
	mkdir(t, dir+"/m/..v")
	mkdir(t, dir+"/m/..v/1")
	write(t, dir+"/m/a.yaml", "web 1")
	symlink(t, write(t, dir+"/m/..v/1/b", "db 1"), dir+"/m/b.yaml")
	f := newFile(t, dir+"/m")
	if got := uids(f.Scan().Pods); got != "db-1 web-1" {
		t.Fatalf("before: got pods %q, want db-1 web-1", got)
	}
	change(t, dir)
	listing := f.Scan()
	got := strings.ReplaceAll(problemText(listing.Problems), dir, "DIR")
	if !strings.Contains(got, want) || (got == "") != (want == "") {
		t.Errorf("problems: got %q, want %q", got, want)
	}
	if got := uids(listing.Pods); got != "db-1 web-1" {
		t.Errorf("got pods %q, want the last valid ones", got)
	}
	permissive := newFile(t, dir+"/m", func(c *source.FileConfig) { c.AllowUnsafePermissions = true })
	if listing := permissive.Scan(); len(listing.Problems) > 0 || len(listing.Pods) != 2 {
		t.Errorf("AllowUnsafePermissions: got %+v, want 2 pods", listing)
	}
	if strings.HasPrefix(want, "DIR/m: ") {
		if fresh := newFile(t, dir+"/m").Scan(); fresh.Known || len(fresh.Pods) > 0 {
			t.Errorf("new agent: got %+v, want unknown pods", fresh)
		}
	}
	for _, path := range []string{"/m", "/m/a.yaml", "/m/..v", "/m/..v/1", "/m/..v/1/b"} {
		chmod(path, 0o755)(t, dir)
		if os.Geteuid() == 0 {
			chown(path, 0, 0)(t, dir)
		}
	}
	if listing := f.Scan(); len(listing.Problems) > 0 || uids(listing.Pods) != "db-1 web-1" {
		t.Errorf("repaired: got %+v, want 2 pods", listing)
	}
}

func TestFile_UnsafeParent(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir+"/pod.yaml", "web 1")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	want := path + ": is in " + dir + ", which is world-writable (mode 0777), so any user could start pods (chmod o-w " + dir +
		"); its pods are unknown"
	if got := newFile(t, path).Scan(); got.Known || problemText(got.Problems) != want {
		t.Fatalf("got %+v, want %q", got, want)
	}
}

func TestFile_SymlinkOutside(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, dir+"/m")
	write(t, dir+"/m/a.yaml", "web 1")
	out := write(t, dir+"/out.yaml", "db 1")
	for name, target := range map[string]string{"absolute.yaml": out, "relative.yaml": "../out.yaml"} {
		symlink(t, target, dir+"/m/"+name)
		link := dir + "/m/" + name
		want := link + ": links to " + out + ", outside the manifest directory (cp --remove-destination " + out + " " + link + ")"
		if got := newFile(t, dir+"/m").Scan(); uids(got.Pods) != "web-1" || problemText(got.Problems) != want {
			t.Errorf("got pods %q, problems %q; want web-1, %q", uids(got.Pods), problemText(got.Problems), want)
		}
		permissive := newFile(t, dir+"/m", func(c *source.FileConfig) { c.AllowUnsafePermissions = true })
		if got := uids(permissive.Scan().Pods); got != "db-1 web-1" {
			t.Errorf("AllowUnsafePermissions: got pods %q, want db-1 web-1", got)
		}
		remove(t, link)
	}
}

func TestFile_SymlinkReplacesFile(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, dir+"/m")
	write(t, dir+"/m/a.yaml", "web 1")
	f := newFile(t, dir+"/m")
	f.Scan()
	symlink(t, write(t, dir+"/out.yaml", "web 2"), dir+"/next")
	rename(t, dir+"/next", dir+"/m/a.yaml")
	if got := f.Scan(); uids(got.Pods) != "web-1" || len(got.Problems) != 1 {
		t.Errorf("got pods %q, problems %v; want web-1, one problem", uids(got.Pods), got.Problems)
	}
}
