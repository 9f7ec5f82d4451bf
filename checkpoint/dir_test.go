package checkpoint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/checkpoint"
)

// open opens a folder until the end of the test.
func open(t *testing.T, path string) *checkpoint.Dir {
	t.Helper()
	dir, err := checkpoint.Open(path, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return dir
}

func save(t *testing.T, dir *checkpoint.Dir, name, payload string) {
	t.Helper()
	if err := dir.Save(name, 1, []byte(payload)); err != nil {
		t.Fatal(err)
	}
}

// wantLoaded fails unless the checkpoint has this payload.
func wantLoaded(t *testing.T, dir *checkpoint.Dir, name, payload string) {
	t.Helper()
	have, version, err := dir.Load(name)
	if err != nil || version != 1 || string(have) != payload {
		t.Fatalf("loaded version %d of %q, error %v; want version 1 of %q", version, have, err, payload)
	}
}

// filesIn lists all files of a folder but the one that names its holder.
func filesIn(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if entry.Name() != ".holder" {
			names = append(names, entry.Name())
		}
	}
	return names
}

func wantFiles(t *testing.T, path string, names ...string) {
	t.Helper()
	if diff := cmp.Diff(names, filesIn(t, path)); diff != "" {
		t.Fatalf("files in the folder (-want +have):\n%s", diff)
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWhatWasSavedIsLoadedByThisProcessAndTheNext(t *testing.T) {
	path := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,99}`).Draw(rt, "name")
		version := rapid.IntMin(1).Draw(rt, "version")
		payload := rapid.SliceOf(rapid.Byte()).Draw(rt, "payload")
		for _, next := range []bool{false, true} {
			dir, err := checkpoint.Open(path, checkpoint.Options{})
			if err != nil {
				rt.Fatal(err)
			}
			if !next {
				if err := dir.Save(name, version, payload); err != nil {
					rt.Fatal(err)
				}
			}
			have, haveVersion, err := dir.Load(name)
			if err != nil || haveVersion != version || string(have) != string(payload) {
				rt.Fatalf("loaded version %d of %q: %v", haveVersion, have, err)
			}
			if err := dir.Close(); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

func TestACheckpointThatDoesNotExistIsTheUsualError(t *testing.T) {
	dir := open(t, t.TempDir())
	if _, _, err := dir.Load("status"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("have %v", err)
	}
	if err := dir.Remove("status"); err != nil {
		t.Fatal(err)
	}
}

func TestFoldersAndFilesAreForTheirOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "var", "lib", "herald")
	dir := open(t, path)
	save(t, dir, "status", "{}")
	for name, want := range map[string]fs.FileMode{
		"..": fs.ModeDir | 0o700, ".": fs.ModeDir | 0o700, "status": 0o600, ".holder": 0o600,
	} {
		info, err := os.Lstat(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
		}
	}
}

func TestListNamesTheCheckpointsAndNothingElse(t *testing.T) {
	path := t.TempDir()
	dir := open(t, path)
	for _, name := range []string{"status", "allocation", "probe"} {
		save(t, dir, name, "{}")
	}
	if err := dir.Remove("probe"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"status.corrupt", ".status.tmp", "README.md"} {
		write(t, filepath.Join(path, name), nil)
	}
	if err := os.Mkdir(filepath.Join(path, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	have, err := dir.List()
	if diff := cmp.Diff([]string{"allocation", "status"}, have); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
}

func TestNamesCannotLeadElsewhere(t *testing.T) {
	dir := open(t, t.TempDir())
	for _, name := range []string{
		"", ".", "..", ".hidden", "../status", "a/b", `a\b`, "/etc/passwd", "a.corrupt", "-a", "_a", "a b", "a\x00", "ä", strings.Repeat("a", 101),
	} {
		_, _, loading := dir.Load(name)
		_, storing := checkpoint.NewStore[int](dir, name, 1)
		for verb, err := range map[string]error{
			"save": dir.Save(name, 1, nil), "load": loading, "remove": dir.Remove(name), "store": storing,
			"set aside": dir.Quarantine(name, 1, nil, checkpoint.ErrCorrupt),
		} {
			if !errors.Is(err, checkpoint.ErrInvalidName) {
				t.Errorf("%s %q: %v", verb, name, err)
			}
		}
	}
}

func TestWhatCannotBeSavedIsSaidBeforeAnythingIsTouched(t *testing.T) {
	path := t.TempDir()
	dir, err := checkpoint.Open(path, checkpoint.Options{MaxSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	save(t, dir, "status", "1234")
	if err := dir.Save("status", 1, []byte("12345")); !errors.Is(err, checkpoint.ErrTooLarge) {
		t.Errorf("a payload over the limit: %v", err)
	}
	if err := dir.Save("status", 0, nil); !errors.Is(err, checkpoint.ErrInvalidVersion) {
		t.Errorf("a payload without a version: %v", err)
	}
	wantLoaded(t, dir, "status", "1234")
}

func TestSizesThatMakeNoSenseAreRefused(t *testing.T) {
	for _, size := range []int{-1, 1<<30 + 1} {
		if _, err := checkpoint.Open(t.TempDir(), checkpoint.Options{MaxSize: size}); err == nil || !strings.Contains(err.Error(), "Options.MaxSize") {
			t.Errorf("size %d: %v", size, err)
		}
	}
}

func TestAFolderThatCannotBeMadeIsAnErrorThatNamesIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, nil)
	for _, path := range []string{file, filepath.Join(file, "below")} {
		if _, err := checkpoint.Open(path, checkpoint.Options{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("open %s: %v", path, err)
		}
	}
}

func TestAClosedFolderRefusesWork(t *testing.T) {
	dir := open(t, t.TempDir())
	save(t, dir, "status", "{}")
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, loading := dir.Load("status")
	_, listing := dir.List()
	for verb, err := range map[string]error{
		"save": dir.Save("status", 1, nil), "load": loading, "list": listing, "remove": dir.Remove("status"), "close": dir.Close(),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

func TestManyGoroutinesSaveAndLoadWholeCheckpoints(t *testing.T) {
	dir := open(t, t.TempDir())
	save(t, dir, "status", strings.Repeat("0", 5000))
	var group sync.WaitGroup
	for n := range 4 {
		group.Go(func() {
			for range 20 {
				if err := dir.Save("status", 1, []byte(strings.Repeat(fmt.Sprint(n), 5000))); err != nil {
					t.Error(err)
				}
			}
		})
		group.Go(func() {
			for range 20 {
				payload, _, err := dir.Load("status")
				if err != nil || len(payload) != 5000 || strings.Trim(string(payload), string(payload[:1])) != "" {
					t.Errorf("loaded %q: %v", payload, err)
				}
			}
		})
	}
	group.Wait()
}
