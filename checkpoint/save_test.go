package checkpoint_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/checkpoint"
)

// openFailing opens a directory in which each step of this kind fails.
func openFailing(t *testing.T, path, op string, fault error) *checkpoint.Dir {
	t.Helper()
	dir, err := checkpoint.OpenTraced(path, checkpoint.Options{}, func(step checkpoint.Step) error {
		if step.Op == op {
			return fault
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return dir
}

func TestF17_FailedSave(t *testing.T) {
	for _, op := range []string{"create", "write", "sync", "close", "rename"} {
		for _, fault := range []error{syscall.ENOSPC, syscall.EROFS, syscall.EIO, syscall.EMFILE, syscall.EDQUOT} {
			t.Run(op+": "+fault.Error(), func(t *testing.T) {
				path := t.TempDir()
				writeFile(t, filepath.Join(path, "status"), checkpoint.Encode("status", 1, []byte("before")))
				isFailing := true
				dir, err := checkpoint.OpenTraced(path, checkpoint.Options{}, func(step checkpoint.Step) error {
					if isFailing && step.Op == op && step.Name == ".status.tmp" {
						return fault
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				defer dir.Close()
				if err := dir.Save("status", 1, []byte("after")); !errors.Is(err, fault) {
					t.Fatalf("got %v, want %v", err, fault)
				}
				wantLoaded(t, dir, "status", "before")
				wantFiles(t, path, "status")

				isFailing = false
				save(t, dir, "status", "after")
				wantLoaded(t, dir, "status", "after")
			})
		}
	}
}

func TestF17_TempFileRemains(t *testing.T) {
	path := t.TempDir()
	isFailing := true
	dir, err := checkpoint.OpenTraced(path, checkpoint.Options{}, func(step checkpoint.Step) error {
		if isFailing && (step.Op == "write" || step.Op == "remove") {
			return syscall.EIO
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for range 3 {
		if err := dir.Save("status", 1, []byte("lost")); err == nil {
			t.Fatal("got no error")
		}
	}
	wantFiles(t, path, ".status.tmp")
	isFailing = false
	save(t, dir, "status", "saved")
	wantFiles(t, path, "status")
}

func TestF17_FailedSyncIsRepeated(t *testing.T) {
	fault := error(syscall.EIO)
	syncs := 0
	dir, err := checkpoint.OpenTraced(t.TempDir(), checkpoint.Options{}, func(step checkpoint.Step) error {
		if step.Op != "sync dir" {
			return nil
		}
		syncs++
		return fault
	})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := dir.Save("status", 1, []byte("new")); !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v, want EIO", err)
	}
	wantLoaded(t, dir, "status", "new")
	fault = nil
	for range 2 {
		save(t, dir, "status", "new")
	}
	if syncs != 2 {
		t.Errorf("got %d syncs, want 2: the failed one and its repetition", syncs)
	}
}

func TestF15_FirstSaveSyncs(t *testing.T) {
	path := t.TempDir()
	writeFile(t, filepath.Join(path, "status"), validFile)
	dir := openFailing(t, path, "sync dir", syscall.EIO)
	payload, version, err := dir.Load("status")
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Save("status", version, payload); !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v for an unchanged payload, want EIO from the sync", err)
	}
}

func TestSave_SyncNotSupported(t *testing.T) {
	for _, unsupported := range []error{syscall.EINVAL, syscall.ENOSYS, syscall.ENOTSUP} {
		dir := openFailing(t, t.TempDir(), "sync dir", unsupported)
		save(t, dir, "status", "{}")
	}
}

// TestF17_SaveSteps checks the order that protects against power failures: the content is synced before the rename, and the
// directory is synced before Save returns.
func TestF17_SaveSteps(t *testing.T) {
	var steps []checkpoint.Step
	dir, err := checkpoint.OpenTraced(t.TempDir(), checkpoint.Options{}, func(step checkpoint.Step) error {
		steps = append(steps, step)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	save(t, dir, "probe", "{}")
	steps = nil
	save(t, dir, "status", "{}")
	want := []checkpoint.Step{
		{Op: "lstat", Name: "status"},
		{Op: "remove", Name: ".status.tmp"},
		{Op: "create", Name: ".status.tmp"},
		{Op: "write", Name: ".status.tmp"},
		{Op: "write", Name: ".status.tmp"},
		{Op: "sync", Name: ".status.tmp"},
		{Op: "close", Name: ".status.tmp"},
		{Op: "rename", Name: ".status.tmp"},
		{Op: "sync dir", Name: "."},
	}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Fatalf("steps of Save (-want +got):\n%s", diff)
	}

	steps = nil
	if err := dir.Remove("status"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]checkpoint.Step{{Op: "remove", Name: "status"}, {Op: "sync dir", Name: "."}}, steps); diff != "" {
		t.Fatalf("steps of Remove (-want +got):\n%s", diff)
	}
}

func TestSM87_UnchangedPayload(t *testing.T) {
	path := t.TempDir()
	writes := 0
	dir, err := checkpoint.OpenTraced(path, checkpoint.Options{}, func(step checkpoint.Step) error {
		if slices.Contains([]string{"create", "write", "sync", "rename", "remove", "sync dir"}, step.Op) {
			writes++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	large := make([]byte, 200_000)
	changed := slices.Clone(large)
	changed[len(changed)-1] = 1
	tests := []struct {
		name    string
		before  func() error
		version int
		payload []byte
		writes  bool
	}{
		{name: "first", version: 1, payload: large, writes: true},
		{name: "unchanged", version: 1, payload: large},
		{name: "last byte changed", version: 1, payload: changed, writes: true},
		{name: "version changed", version: 2, payload: changed, writes: true},
		{name: "unchanged again", version: 2, payload: changed},
		{
			name: "file deleted", version: 2, payload: changed, writes: true,
			before: func() error { return os.Remove(filepath.Join(path, "status")) },
		},
		{
			name: "file damaged", version: 2, payload: changed, writes: true,
			before: func() error {
				damaged := checkpoint.Encode("status", 2, changed)
				damaged[len(damaged)-1]++
				return os.WriteFile(filepath.Join(path, "status"), damaged, 0o600)
			},
		},
	}
	for _, test := range tests {
		if test.before != nil {
			if err := test.before(); err != nil {
				t.Fatal(err)
			}
		}
		writes = 0
		if err := dir.Save("status", test.version, test.payload); err != nil {
			t.Fatal(err)
		}
		if (writes > 0) != test.writes {
			t.Errorf("%s: got %d writing steps, want some: %v", test.name, writes, test.writes)
		}
	}
}

func TestSave_ReplacesSymlink(t *testing.T) {
	path, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	writeFile(t, target, validFile)
	for _, name := range []string{"status", ".status.tmp"} {
		if err := os.Symlink(target, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	dir := openDir(t, path)
	save(t, dir, "status", "new")
	wantLoaded(t, dir, "status", "new")
	if data, err := os.ReadFile(target); err != nil || string(data) != string(validFile) {
		t.Fatalf("got symlink target %q, %v, want it unchanged", data, err)
	}
}

func TestSave_TempFileIsSymlink(t *testing.T) {
	path := t.TempDir()
	writeFile(t, filepath.Join(path, "probe"), validFile)
	if err := os.Symlink("probe", filepath.Join(path, ".status.tmp")); err != nil {
		t.Fatal(err)
	}
	dir := openFailing(t, path, "remove", syscall.EPERM)
	if err := dir.Save("status", 1, []byte("new")); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("got %v, want fs.ErrExist", err)
	}
	if data, err := os.ReadFile(filepath.Join(path, "probe")); err != nil || string(data) != string(validFile) {
		t.Fatalf("got symlink target %q, %v, want it unchanged", data, err)
	}
}

func TestOpen_RemovesTempFiles(t *testing.T) {
	path := t.TempDir()
	for _, name := range []string{".status.tmp", ".probe.tmp", ".tmp", "mine.tmp", ".a.b.tmp", "status"} {
		writeFile(t, filepath.Join(path, name), validFile)
	}
	openDir(t, path)
	wantFiles(t, path, ".a.b.tmp", ".tmp", "mine.tmp", "status")
}
