package checkpoint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/checkpoint"
)

// openDir opens a directory until the test ends.
func openDir(t *testing.T, path string) *checkpoint.Dir {
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

// wantLoaded checks the payload of a checkpoint.
func wantLoaded(t *testing.T, dir *checkpoint.Dir, name, payload string) {
	t.Helper()
	got, version, err := dir.Load(name)
	if err != nil || version != 1 || string(got) != payload {
		t.Fatalf("got version %d of %q, error %v, want version 1 of %q", version, got, err, payload)
	}
}

// listFiles returns all files of a directory but the PID file.
func listFiles(t *testing.T, path string) []string {
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
	if diff := cmp.Diff(names, listFiles(t, path)); diff != "" {
		t.Fatalf("files (-want +got):\n%s", diff)
	}
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDir_SaveAndLoad(t *testing.T) {
	path := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,99}`).Draw(rt, "name")
		version := rapid.IntMin(1).Draw(rt, "version")
		payload := rapid.SliceOf(rapid.Byte()).Draw(rt, "payload")
		for _, isReopened := range []bool{false, true} {
			dir, err := checkpoint.Open(path, checkpoint.Options{})
			if err != nil {
				rt.Fatal(err)
			}
			if !isReopened {
				if err := dir.Save(name, version, payload); err != nil {
					rt.Fatal(err)
				}
			}
			got, gotVersion, err := dir.Load(name)
			if err != nil || gotVersion != version || string(got) != string(payload) {
				rt.Fatalf("got version %d of %q, error %v, want version %d of %q", gotVersion, got, err, version, payload)
			}
			if err := dir.Close(); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

func TestDir_NotExist(t *testing.T) {
	dir := openDir(t, t.TempDir())
	if _, _, err := dir.Load("status"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v, want fs.ErrNotExist", err)
	}
	if err := dir.Remove("status"); err != nil {
		t.Fatal(err)
	}
}

func TestOpen_Permissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "var", "lib", "herald")
	dir := openDir(t, path)
	save(t, dir, "status", "{}")
	for name, want := range map[string]fs.FileMode{
		"..": fs.ModeDir | 0o700, ".": fs.ModeDir | 0o700, "status": 0o600, ".holder": 0o600,
	} {
		info, err := os.Lstat(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s: got mode %v, want %v", name, info.Mode(), want)
		}
	}
}

func TestDir_List(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	for _, name := range []string{"status", "allocation", "probe"} {
		save(t, dir, name, "{}")
	}
	if err := dir.Remove("probe"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"status.corrupt", ".status.tmp", "README.md"} {
		writeFile(t, filepath.Join(path, name), nil)
	}
	if err := os.Mkdir(filepath.Join(path, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	names, err := dir.List()
	if diff := cmp.Diff([]string{"allocation", "status"}, names); err != nil || diff != "" {
		t.Fatalf("got error %v, names (-want +got):\n%s", err, diff)
	}
}

func TestDir_InvalidName(t *testing.T) {
	dir := openDir(t, t.TempDir())
	for _, name := range []string{
		"", ".", "..", ".hidden", "../status", "a/b", `a\b`, "/etc/passwd", "a.corrupt", "-a", "_a", "a b", "a\x00", "ä", strings.Repeat("a", 101),
	} {
		_, _, loadErr := dir.Load(name)
		_, storeErr := checkpoint.NewStore[int](dir, name, 1)
		for operation, err := range map[string]error{
			"save": dir.Save(name, 1, nil), "load": loadErr, "remove": dir.Remove(name), "store": storeErr,
			"quarantine": dir.Quarantine(name, 1, nil, checkpoint.ErrCorrupt),
		} {
			if !errors.Is(err, checkpoint.ErrInvalidName) {
				t.Errorf("%s %q: got %v, want ErrInvalidName", operation, name, err)
			}
		}
	}
}

func TestSave_InvalidArguments(t *testing.T) {
	path := t.TempDir()
	dir, err := checkpoint.Open(path, checkpoint.Options{MaxSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	save(t, dir, "status", "1234")
	if err := dir.Save("status", 1, []byte("12345")); !errors.Is(err, checkpoint.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	if err := dir.Save("status", 0, nil); !errors.Is(err, checkpoint.ErrInvalidVersion) {
		t.Errorf("got %v, want ErrInvalidVersion", err)
	}
	wantLoaded(t, dir, "status", "1234")
}

func TestOptions_InvalidMaxSize(t *testing.T) {
	for _, size := range []int{-1, 1<<30 + 1} {
		if _, err := checkpoint.Open(t.TempDir(), checkpoint.Options{MaxSize: size}); err == nil || !strings.Contains(err.Error(), "Options: MaxSize") {
			t.Errorf("%d: got %v, want an error about MaxSize", size, err)
		}
	}
}

func TestOpen_NotADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, nil)
	for _, path := range []string{file, filepath.Join(file, "below")} {
		if _, err := checkpoint.Open(path, checkpoint.Options{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error with the path", path, err)
		}
	}
}

func TestDir_Closed(t *testing.T) {
	dir := openDir(t, t.TempDir())
	save(t, dir, "status", "{}")
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, loadErr := dir.Load("status")
	_, listErr := dir.List()
	for operation, err := range map[string]error{
		"save": dir.Save("status", 1, nil), "load": loadErr, "list": listErr, "remove": dir.Remove("status"), "close": dir.Close(),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: got %v, want fs.ErrClosed", operation, err)
		}
	}
}

func TestDir_ConcurrentUse(t *testing.T) {
	dir := openDir(t, t.TempDir())
	save(t, dir, "status", strings.Repeat("0", 5000))
	var running sync.WaitGroup
	for n := range 4 {
		running.Go(func() {
			for range 20 {
				if err := dir.Save("status", 1, []byte(strings.Repeat(fmt.Sprint(n), 5000))); err != nil {
					t.Error(err)
				}
			}
		})
		running.Go(func() {
			for range 20 {
				payload, _, err := dir.Load("status")
				if err != nil || len(payload) != 5000 || strings.Trim(string(payload), string(payload[:1])) != "" {
					t.Errorf("got %q, %v, want one complete payload", payload, err)
				}
			}
		})
	}
	running.Wait()
}

type allocations struct {
	CPU map[string]string `json:"cpu"`
}

func newStore[T any](t *testing.T, dir *checkpoint.Dir, version int) *checkpoint.Store[T] {
	t.Helper()
	store, err := checkpoint.NewStore[T](dir, "allocation", version)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestStore_SaveAndLoad(t *testing.T) {
	store := newStore[allocations](t, openDir(t, t.TempDir()), 1)
	if _, err := store.Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v before the first save, want fs.ErrNotExist", err)
	}
	want := allocations{CPU: map[string]string{"a": "1", "b": "500m"}}
	if err := store.Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := store.Load()
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("got error %v, value (-want +got):\n%s", err, diff)
	}
}

func TestF18_StoreQuarantine(t *testing.T) {
	tests := map[string]struct {
		version int
		payload string
		reason  error
	}{
		"newer version": {version: 3, payload: `{}`, reason: checkpoint.ErrVersion},
		"older version": {version: 1, payload: `{}`, reason: checkpoint.ErrVersion},
		"other type":    {version: 2, payload: `{"cpu":{"a":"1","b":2}}`, reason: checkpoint.ErrCorrupt},
		"no JSON":       {version: 2, payload: `{"cpu":`, reason: checkpoint.ErrCorrupt},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			dir := openDir(t, path)
			if err := dir.Save("allocation", test.version, []byte(test.payload)); err != nil {
				t.Fatal(err)
			}
			got, err := newStore[allocations](t, dir, 2).Load()
			var invalid *checkpoint.InvalidFileError
			if !errors.As(err, &invalid) || !errors.Is(err, test.reason) || got.CPU != nil {
				t.Fatalf("got %v, %v, want %v", got, err, test.reason)
			}
			wantFiles(t, path, "allocation.corrupt")
		})
	}
}

func TestStore_UnknownFields(t *testing.T) {
	dir := openDir(t, t.TempDir())
	save(t, dir, "allocation", `{"cpu":{"a":"1"},"later":true}`)
	got, err := newStore[allocations](t, dir, 1).Load()
	if err != nil || got.CPU["a"] != "1" {
		t.Fatalf("got %v, %v, want CPU of a", got, err)
	}
}

func TestStore_InvalidValue(t *testing.T) {
	dir := openDir(t, t.TempDir())
	store := newStore[float64](t, dir, 1)
	if err := store.Save(math.Inf(1)); err == nil || !strings.Contains(err.Error(), "allocation") {
		t.Fatalf("got %v, want an error with the name", err)
	}
	if _, err := checkpoint.NewStore[int](dir, "allocation", 0); !errors.Is(err, checkpoint.ErrInvalidVersion) {
		t.Fatalf("got %v, want ErrInvalidVersion", err)
	}
}
