package diskusage_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/heraldnode/herald/internal/diskusage"
)

func measure(t *testing.T, dir string) int64 {
	t.Helper()
	usage, err := diskusage.Dir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return usage.Bytes
}

func writeFile(t *testing.T, path string, size int) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, make([]byte, size), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestDir(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	empty := measure(t, dir)
	writeFile(t, dir+"/a", 1<<20)
	one := measure(t, dir)
	if one-empty < 1<<20 || one-empty > 2<<20 {
		t.Fatalf("1 MiB file: got %d bytes more", one-empty)
	}
	writeFile(t, outside+"/big", 4<<20)
	sparse, err := os.Create(dir + "/sparse")
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(sparse.Truncate(1<<30), sparse.Close(), os.Link(dir+"/a", dir+"/b"), os.Symlink(outside, dir+"/link"))
	if err != nil {
		t.Fatal(err)
	}
	if got := measure(t, dir); got-one > 64<<10 {
		t.Errorf("sparse file, second name and link out: got %d bytes more, want none", got-one)
	}
	writeFile(t, dir+"/x/y/z/c", 1<<20)
	if got := measure(t, dir); got-one < 1<<20 {
		t.Errorf("file in a directory: got %d bytes more, want 1 MiB", got-one)
	}
}

func TestDir_Inodes(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/a", 1)
	writeFile(t, dir+"/x/b", 1)
	if err := os.Link(dir+"/a", dir+"/same"); err != nil {
		t.Fatal(err)
	}
	usage, err := diskusage.Dir(t.Context(), dir)
	if err != nil || usage.Inodes != 4 { // two directories, two files
		t.Errorf("got %+v, error %v; want 4 inodes", usage, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if usage, err := diskusage.Files(t.Context(), root); err != nil || usage.Inodes != 2 {
		t.Errorf("without directories: got %+v, error %v; want 2 inodes", usage, err)
	}
}

func TestDir_Errors(t *testing.T) {
	if bytes := measure(t, filepath.Join(t.TempDir(), "absent")); bytes != 0 {
		t.Errorf("absent: got %d", bytes)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := diskusage.Dir(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got error %v", err)
	}
}
