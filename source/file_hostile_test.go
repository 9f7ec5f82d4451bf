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

// obstacle puts something at a path that is no manifest.
type obstacle func(t *testing.T, path string)

func linkTo(target string) obstacle {
	return func(t *testing.T, path string) {
		t.Helper()
		symlink(t, target, path)
	}
}

func directory(t *testing.T, path string) {
	t.Helper()
	mkdir(t, path)
}

func pipe(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
}

func socket(t *testing.T, path string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
}

// sized is a file of that length, most of which takes no room on the disk.
func sized(length int64) obstacle {
	return func(t *testing.T, path string) {
		t.Helper()
		write(t, path, "")
		if err := os.Truncate(path, length); err != nil {
			t.Fatal(err)
		}
	}
}

func TestF20WhatIsNoManifestIsRefusedAndHarmsNoOther(t *testing.T) {
	tests := map[string]struct {
		make obstacle
		want string
	}{
		"directory":          {directory, "is a directory, and only regular files are read"},
		"named pipe":         {pipe, "is a named pipe, and only regular files are read"},
		"socket":             {socket, "is a socket, and only regular files are read"},
		"device":             {linkTo("/dev/zero"), "is a device, and only regular files are read"},
		"link loop":          {linkTo("x.yaml"), "too many levels of symbolic links"},
		"link to void":       {linkTo("/nowhere/at/all"), "no such file or directory"},
		"too large":          {sized(1 << 40), "has more than the 1048576 bytes that a manifest may have"},
		"one byte too large": {sized(manifest.MaxBytes + 1), "has more than the 1048576 bytes that a manifest may have"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir+"/good.yaml", "db 1")
			write(t, dir+"/x.yaml", "web 1")
			f := newFile(t, dir)
			f.Scan()
			remove(t, dir+"/x.yaml")
			test.make(t, dir+"/x.yaml")
			listing := f.Scan()
			if got := names(listing.Pods); got != "db-1 web-1" {
				t.Errorf("pods %q, want the last good ones", got)
			}
			if got := texts(listing.Problems); !strings.HasPrefix(got, dir+"/x.yaml: ") || !strings.Contains(got, test.want) {
				t.Errorf("problems %q, want %q", got, test.want)
			}
			remove(t, dir+"/x.yaml")
			if listing := f.Scan(); names(listing.Pods) != "db-1" || len(listing.Problems) > 0 {
				t.Errorf("when it is gone: pods %q, problems %v", names(listing.Pods), listing.Problems)
			}
		})
	}
}

func TestF20APipeThatTakesAFilesPlaceDoesNotBlockTheAgent(t *testing.T) {
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
			install(t, dir+"/x.yaml", "web 1")
		}
	})
	for range 2000 {
		if got := names(f.Scan().Pods); got != "web-1" {
			t.Errorf("pods %q", got)
			break
		}
	}
	stop()
	swapping.Wait()
}

func TestAPathThatIsNeitherDirectoryNorFileIsRefused(t *testing.T) {
	path := t.TempDir() + "/pipe"
	pipe(t, path)
	listing := newFile(t, path).Scan()
	if listing.Known || texts(listing.Problems) != path+": is a named pipe, and only regular files are read" {
		t.Fatalf("%+v", listing)
	}
}

func TestAProjectedVolumeIsFollowedThroughItsSwap(t *testing.T) {
	dir := t.TempDir()
	version := func(name, content string) {
		mkdir(t, dir+"/"+name)
		write(t, dir+"/"+name+"/web.yaml", content)
		symlink(t, name, dir+"/..data_tmp")
		rename(t, dir+"/..data_tmp", dir+"/..data")
	}
	version("..2024_1", "web 1")
	symlink(t, "..data/web.yaml", dir+"/web.yaml")
	sink := start(t, newFile(t, dir))
	single := start(t, newFile(t, dir+"/web.yaml"))
	sink.waitPods(t, "web-1")
	single.waitPods(t, "web-1")
	version("..2024_2", "web 2")
	sink.waitPods(t, "web-2")
	single.waitPods(t, "web-2")
	sink.waitNoProblem(t)
}

func TestALinkThatLeadsNowhereIsNoRemoval(t *testing.T) {
	dir := t.TempDir()
	target := write(t, dir+"/target", "web 1")
	symlink(t, target, dir+"/pod.yaml")
	f := newFile(t, dir+"/pod.yaml")
	f.Scan()
	remove(t, target)
	if got := f.Scan(); names(got.Pods) != "web-1" || len(got.Problems) != 1 {
		t.Fatalf("pods %q, problems %v", names(got.Pods), got.Problems)
	}
	if got := newFile(t, dir+"/pod.yaml").Scan(); got.Known {
		t.Fatal("an agent that starts takes it for no pods")
	}
	remove(t, dir+"/pod.yaml")
	if got := f.Scan(); len(got.Pods) > 0 {
		t.Fatalf("pods %q", names(got.Pods))
	}
}

func TestALinkedDirectoryIsWatchedThroughItsSwap(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, dir+"/1")
	write(t, dir+"/1/web.yaml", "web 1")
	mkdir(t, dir+"/2")
	write(t, dir+"/2/web.yaml", "web 2")
	symlink(t, "1", dir+"/manifests")
	sink := start(t, newFile(t, dir+"/manifests"))
	sink.waitPods(t, "web-1")
	symlink(t, "2", dir+"/next")
	rename(t, dir+"/next", dir+"/manifests")
	sink.waitPods(t, "web-2")
	write(t, dir+"/2/web.yaml", "web 3")
	sink.waitPods(t, "web-3")
}

func TestAFileThatStopsBeingOneWhileItIsWrittenHoldsUpNothing(t *testing.T) {
	dir := t.TempDir()
	aged(t, write(t, dir+"/good.yaml", "db 1"))
	stop := keepWriting(t, dir+"/x.yaml", "web 1")
	sink := start(t, newFile(t, dir, func(c *source.FileConfig) { c.Settle = 300 * time.Millisecond }))
	sink.waitReports(t, 1)
	stop()
	remove(t, dir+"/x.yaml")
	mkdir(t, dir+"/x.yaml")
	sink.waitPods(t, "db-1")
	sink.waitProblem(t, "is a directory")
}

func TestADirectoryWithTooManyEntriesIsNotTakenForOne(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 20001 files")
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
	if names(listing.Pods) != "web-1" || !strings.Contains(texts(listing.Problems), "has more than 20000 entries") {
		t.Fatalf("pods %q, problems %v", names(listing.Pods), listing.Problems)
	}
}

func FuzzDirectory(f *testing.F) {
	f.Add([]byte("web 1\n"), []byte("db 1"), uint8(0))
	f.Add([]byte{}, []byte("\x00\xff"), uint8(1))
	f.Add([]byte("web 1"), []byte("web 2"), uint8(2))
	f.Add([]byte(realManifest("web", "registry.example/web:1")), []byte("a: &a [*a]"), uint8(3))
	f.Fuzz(func(t *testing.T, first, second []byte, spoil uint8) {
		dir := t.TempDir()
		file := newFile(t, dir, func(c *source.FileConfig) { c.Decode = nil })
		write(t, dir+"/a.yaml", string(first))
		before := file.Scan()
		write(t, dir+"/b.yaml", string(second))
		switch spoil % 6 {
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
				t.Fatalf("two pods %s", name)
			}
			seen[p.Namespace+"/"+p.Name] = true
		}
		if len(before.Pods) > 0 && len(after.Pods) == 0 && len(after.Problems) > 0 && spoil%6 == 3 {
			t.Fatalf("a bad edit removed the pods: %v", after.Problems)
		}
		remove(t, dir+"/a.yaml")
		remove(t, dir+"/b.yaml")
		if left := file.Scan(); len(left.Pods) > 0 || len(left.Problems) > 0 {
			t.Fatalf("an empty directory has %+v", left)
		}
	})
}
