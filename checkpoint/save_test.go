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

// openFailing opens a folder in which each step of this kind fails.
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

func TestF17AFailedSaveLeavesTheCheckpointBefore(t *testing.T) {
	for _, op := range []string{"create", "write", "sync", "close", "rename"} {
		for _, fault := range []error{syscall.ENOSPC, syscall.EROFS, syscall.EIO, syscall.EMFILE, syscall.EDQUOT} {
			t.Run(op+": "+fault.Error(), func(t *testing.T) {
				path := t.TempDir()
				write(t, filepath.Join(path, "status"), checkpoint.Encode("status", 1, []byte("before")))
				broken := true
				dir, err := checkpoint.OpenTraced(path, checkpoint.Options{}, func(step checkpoint.Step) error {
					if broken && step.Op == op && step.Name == ".status.tmp" {
						return fault
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				defer dir.Close()
				if err := dir.Save("status", 1, []byte("after")); !errors.Is(err, fault) {
					t.Fatalf("have %v", err)
				}
				wantLoaded(t, dir, "status", "before")
				wantFiles(t, path, "status")

				broken = false
				save(t, dir, "status", "after")
				wantLoaded(t, dir, "status", "after")
			})
		}
	}
}

func TestF17ATemporaryFileThatCouldNotBeRemovedDoesNoHarm(t *testing.T) {
	path := t.TempDir()
	broken := true
	dir, err := checkpoint.OpenTraced(path, checkpoint.Options{}, func(step checkpoint.Step) error {
		if broken && (step.Op == "write" || step.Op == "remove") {
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
			t.Fatal("saved")
		}
	}
	wantFiles(t, path, ".status.tmp")
	broken = false
	save(t, dir, "status", "kept")
	wantFiles(t, path, "status")
}

func TestF17AFolderThatCouldNotBeSyncedIsSyncedByTheNextSave(t *testing.T) {
	fault := error(syscall.EIO)
	syncs := 0
	dir, err := checkpoint.OpenTraced(t.TempDir(), checkpoint.Options{}, func(step checkpoint.Step) error {
		if step.Op != "sync folder" {
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
		t.Fatalf("have %v", err)
	}
	wantLoaded(t, dir, "status", "new")
	fault = nil
	for range 2 {
		save(t, dir, "status", "new")
	}
	if syncs != 2 {
		t.Errorf("the folder was synced %d times, want the failure and one more", syncs)
	}
}

func TestF15TheFirstSaveSyncsWhatADeadProcessMayNotHave(t *testing.T) {
	path := t.TempDir()
	write(t, filepath.Join(path, "status"), good)
	dir := openFailing(t, path, "sync folder", syscall.EIO)
	payload, version, err := dir.Load("status")
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Save("status", version, payload); !errors.Is(err, syscall.EIO) {
		t.Fatalf("an unchanged payload was called saved without a sync: %v", err)
	}
}

func TestAFileSystemThatCannotSyncFoldersIsGoodEnough(t *testing.T) {
	for _, answer := range []error{syscall.EINVAL, syscall.ENOSYS, syscall.ENOTSUP} {
		dir := openFailing(t, t.TempDir(), "sync folder", answer)
		save(t, dir, "status", "{}")
	}
}

// TestF17EachStepOfASaveIsSafeBeforeTheNext is what a power cut needs and no test can cut: the content is on the disk before
// the name leads to it, and the name is on the disk before Save returns.
func TestF17EachStepOfASaveIsSafeBeforeTheNext(t *testing.T) {
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
		{Op: "sync folder", Name: "."},
	}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Fatal(diff)
	}

	steps = nil
	if err := dir.Remove("status"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]checkpoint.Step{{Op: "remove", Name: "status"}, {Op: "sync folder", Name: "."}}, steps); diff != "" {
		t.Fatal(diff)
	}
}

func TestSM87AnUnchangedPayloadIsNotWrittenAgain(t *testing.T) {
	path := t.TempDir()
	writes := 0
	dir, err := checkpoint.OpenTraced(path, checkpoint.Options{}, func(step checkpoint.Step) error {
		if slices.Contains([]string{"create", "write", "sync", "rename", "remove", "sync folder"}, step.Op) {
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
		{name: "the first", version: 1, payload: large, writes: true},
		{name: "the same", version: 1, payload: large},
		{name: "its last byte changed", version: 1, payload: changed, writes: true},
		{name: "another version", version: 2, payload: changed, writes: true},
		{name: "the same again", version: 2, payload: changed},
		{
			name: "somebody deleted it", version: 2, payload: changed, writes: true,
			before: func() error { return os.Remove(filepath.Join(path, "status")) },
		},
		{
			name: "somebody damaged it", version: 2, payload: changed, writes: true,
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
			t.Errorf("%s: %d steps changed the disk", test.name, writes)
		}
	}
}

func TestSaveReplacesALinkAndNotWhatItLeadsTo(t *testing.T) {
	path, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
	write(t, elsewhere, good)
	for _, name := range []string{"status", ".status.tmp"} {
		if err := os.Symlink(elsewhere, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	dir := open(t, path)
	save(t, dir, "status", "new")
	wantLoaded(t, dir, "status", "new")
	if data, err := os.ReadFile(elsewhere); err != nil || string(data) != string(good) {
		t.Fatalf("the file that the link led to has %q: %v", data, err)
	}
}

func TestSaveDoesNotWriteThroughALinkThatItCannotRemove(t *testing.T) {
	path := t.TempDir()
	write(t, filepath.Join(path, "probe"), good)
	if err := os.Symlink("probe", filepath.Join(path, ".status.tmp")); err != nil {
		t.Fatal(err)
	}
	dir := openFailing(t, path, "remove", syscall.EPERM)
	if err := dir.Save("status", 1, []byte("new")); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("have %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(path, "probe")); err != nil || string(data) != string(good) {
		t.Fatalf("the file that the link led to has %q: %v", data, err)
	}
}

func TestOpenRemovesWhatACrashLeftAndNothingElse(t *testing.T) {
	path := t.TempDir()
	for _, name := range []string{".status.tmp", ".probe.tmp", ".tmp", "mine.tmp", ".a.b.tmp", "status"} {
		write(t, filepath.Join(path, name), good)
	}
	open(t, path)
	wantFiles(t, path, ".a.b.tmp", ".tmp", "mine.tmp", "status")
}
