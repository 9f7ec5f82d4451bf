package checkpoint_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/checkpoint"
)

// numbers is a set of numbers, or some to add to it.
type numbers map[string]int

// numberLog is a log and its value.
type numberLog struct {
	*checkpoint.Log[numbers]
	value numbers
}

func openLog(t *testing.T, dir *checkpoint.Dir) *numberLog {
	t.Helper()
	log, err := checkpoint.NewLog[numbers](dir, "status", 2)
	if err != nil {
		t.Fatal(err)
	}
	value, err := loadLog(log)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return &numberLog{log, value}
}

func loadLog(log *checkpoint.Log[numbers]) (numbers, error) {
	changes, err := log.Load()
	value := numbers{}
	for _, change := range changes {
		for key, number := range change {
			value[key] = number
		}
	}
	return value, err
}

func (l *numberLog) add(key string, number int) error {
	err := l.Append(numbers{key: number}, func() numbers {
		all := numbers{key: number}
		for other, number := range l.value {
			if other != key {
				all[other] = number
			}
		}
		return all
	})
	if err == nil {
		l.value[key] = number
	}
	return err
}

func (l *numberLog) mustAdd(t *testing.T, key string, number int) {
	t.Helper()
	if err := l.add(key, number); err != nil {
		t.Fatal(err)
	}
}

// wantLog checks the value that another process would load.
func wantLog(t *testing.T, path string, want numbers) {
	t.Helper()
	copied := t.TempDir()
	data, err := os.ReadFile(filepath.Join(path, "status"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(copied, "status"), data)
	if diff := cmp.Diff(want, openLog(t, openDir(t, copied)).value); diff != "" {
		t.Fatalf("loaded (-want +got):\n%s", diff)
	}
}

func TestLog_ChangesAreAppended(t *testing.T) {
	path := t.TempDir()
	var steps []checkpoint.Step
	dir, err := checkpoint.OpenTraced(path, checkpoint.Options{}, func(step checkpoint.Step) error {
		steps = append(steps, step)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	log := openLog(t, dir)
	log.mustAdd(t, "a", 1)
	log.mustAdd(t, "b", 2)
	steps = nil
	log.mustAdd(t, "a", 3)
	want := []checkpoint.Step{
		{Op: "lstat", Name: "status"},
		{Op: "append", Name: "status"},
		{Op: "write", Name: "status"},
		{Op: "sync", Name: "status"},
		{Op: "close", Name: "status"},
	}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("steps of Append (-want +got):\n%s", diff)
	}
	wantLog(t, path, numbers{"a": 3, "b": 2})
}

// TestLog_ReleasedFormat fails when released files cannot be read any more.
func TestLog_ReleasedFormat(t *testing.T) {
	const released = `{"checkpoint":1,"name":"status","version":2,"length":7,"crc32c":"b9e7314c"}` + "\n" + `{"a":1}` +
		"\n" + `{"change":1,"length":7,"crc32c":"aea83219"}` + "\n" + `{"b":2}`
	path := t.TempDir()
	log := openLog(t, openDir(t, path))
	log.mustAdd(t, "a", 1)
	log.mustAdd(t, "b", 2)
	data, err := os.ReadFile(filepath.Join(path, "status"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(released, string(data)); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
}

// TestLog_EarlierVersion checks that a checkpoint of an earlier version is read and then replaced.
func TestLog_EarlierVersion(t *testing.T) {
	path := t.TempDir()
	writeFile(t, filepath.Join(path, "status"), checkpoint.Encode("status", 1, []byte(`{"a":1}`)))
	log := openLog(t, openDir(t, path))
	log.mustAdd(t, "b", 2)
	wantLog(t, path, numbers{"a": 1, "b": 2})
	data, err := os.ReadFile(filepath.Join(path, "status"))
	if err != nil {
		t.Fatal(err)
	}
	if want := checkpoint.Encode("status", 2, []byte(`{"a":1,"b":2}`)); !bytes.Equal(data, want) {
		t.Errorf("got %q, want %q", data, want)
	}
}

func TestLog_LaterVersion(t *testing.T) {
	path := t.TempDir()
	writeFile(t, filepath.Join(path, "status"), checkpoint.Encode("status", 3, []byte(`{}`)))
	log, err := checkpoint.NewLog[numbers](openDir(t, path), "status", 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Load(); !errors.Is(err, checkpoint.ErrVersion) {
		t.Fatalf("got %v, want ErrVersion", err)
	}
}

// TestLog_Compaction checks that changes are merged before the file outgrows its value, and that most changes are not.
func TestLog_Compaction(t *testing.T) {
	const changes = 2500
	path := t.TempDir()
	replacements := 0
	dir, err := checkpoint.OpenTraced(path, checkpoint.Options{}, func(step checkpoint.Step) error {
		if step.Op == "rename" {
			replacements++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	log := openLog(t, dir)
	for i := range changes {
		log.mustAdd(t, fmt.Sprint("key-", i%10), i)
	}
	info, err := os.Stat(filepath.Join(path, "status"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 70_000 {
		t.Errorf("got %d bytes after %d changes of ten keys, want at most 70,000", info.Size(), changes)
	}
	if replacements > changes/500 {
		t.Errorf("the file was replaced %d times by %d changes", replacements, changes)
	}
	wantLog(t, path, log.value)
}

// TestLog_MaxSize checks that changes never make a file that Load rejects.
func TestLog_MaxSize(t *testing.T) {
	dir, err := checkpoint.Open(t.TempDir(), checkpoint.Options{MaxSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	log := openLog(t, dir)
	for i := range 100 {
		log.mustAdd(t, "a", i)
	}
	if value, err := loadLog(log.Log); err != nil || value["a"] != 99 {
		t.Fatalf("got %v, %v, want 99", value, err)
	}
	if err := log.add(strings.Repeat("a", 1000), 1); !errors.Is(err, checkpoint.ErrTooLarge) {
		t.Fatalf("got %v, want ErrTooLarge", err)
	}
	log.mustAdd(t, "a", 100)
}

// TestF17_FailedAppend checks that a failed change is loaded completely or not at all, that none before it is lost, and that
// later changes are not lost behind it.
func TestF17_FailedAppend(t *testing.T) {
	for _, op := range []string{"lstat", "append", "write", "sync", "close"} {
		for _, fault := range []error{syscall.ENOSPC, syscall.EROFS, syscall.EIO, syscall.EMFILE, syscall.EDQUOT} {
			t.Run(op+": "+fault.Error(), func(t *testing.T) {
				path := t.TempDir()
				isFailing := false
				dir, err := checkpoint.OpenTraced(path, checkpoint.Options{}, func(step checkpoint.Step) error {
					if isFailing && (step.Op == op || step.Op == "create") { // nothing else works either
						return fault
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				defer dir.Close()
				log := openLog(t, dir)
				log.mustAdd(t, "a", 1)
				log.mustAdd(t, "b", 2)
				isFailing = true
				if err := log.add("c", 3); !errors.Is(err, fault) {
					t.Fatalf("got %v, want %v", err, fault)
				}
				isFailing = false
				data, err := os.ReadFile(filepath.Join(path, "status"))
				if err != nil {
					t.Fatal(err)
				}
				want := numbers{"a": 1, "b": 2}
				if op == "sync" || op == "close" { // it was written
					want["c"] = 3
				}
				wantLog(t, path, want)
				log.mustAdd(t, "d", 4)
				wantLog(t, path, numbers{"a": 1, "b": 2, "d": 4})

				restarted := t.TempDir() // another process after the failure
				writeFile(t, filepath.Join(restarted, "status"), data)
				log = openLog(t, openDir(t, restarted))
				log.mustAdd(t, "d", 4)
				want["d"] = 4
				wantLog(t, restarted, want)
			})
		}
	}
}

// TestF15_TornAppend checks every length that a power failure can leave of the last change, and sectors that were not written.
func TestF15_TornAppend(t *testing.T) {
	path := t.TempDir()
	log := openLog(t, openDir(t, path))
	log.mustAdd(t, "a", 1)
	log.mustAdd(t, "b", 2)
	before, err := os.ReadFile(filepath.Join(path, "status"))
	if err != nil {
		t.Fatal(err)
	}
	log.mustAdd(t, strings.Repeat("c", 1200), 3)
	after, err := os.ReadFile(filepath.Join(path, "status"))
	if err != nil {
		t.Fatal(err)
	}
	want := numbers{"a": 1, "b": 2}
	torn := t.TempDir()
	dir := openDir(t, torn)
	for size := len(before); size < len(after); size++ {
		writeFile(t, filepath.Join(torn, "status"), after[:size])
		restarted := openLog(t, dir)
		if diff := cmp.Diff(want, restarted.value); diff != "" {
			t.Fatalf("%d of %d bytes (-want +got):\n%s", size, len(after), diff)
		}
		if size%100 == 0 {
			restarted.mustAdd(t, "d", 4)
			wantLog(t, torn, numbers{"a": 1, "b": 2, "d": 4})
		}
	}
	for sector := len(before) / 512; sector*512 < len(after); sector++ {
		torn := bytes.Clone(after)
		clear(torn[max(len(before), sector*512):min(len(after), sector*512+512)])
		writeFile(t, filepath.Join(path, "status"), torn)
		wantLog(t, path, want)
	}
}

// TestF18_DamagedLog flips every bit. No wrong number is ever loaded, and damage before the last change is noticed.
func TestF18_DamagedLog(t *testing.T) {
	path := t.TempDir()
	log := openLog(t, openDir(t, path))
	log.mustAdd(t, "a", 1)
	log.mustAdd(t, "b", 2)
	log.mustAdd(t, "c", 3)
	lastChange := log.value
	data, err := os.ReadFile(filepath.Join(path, "status"))
	if err != nil {
		t.Fatal(err)
	}
	end := bytes.LastIndex(data, []byte("\n{\"change\""))
	damagedPath := t.TempDir()
	dir := openDir(t, damagedPath)
	damagedLog, err := checkpoint.NewLog[numbers](dir, "status", 2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(data) * 8 {
		damaged := bytes.Clone(data)
		damaged[i/8] ^= 1 << (i % 8)
		writeFile(t, filepath.Join(damagedPath, "status"), damaged)
		value, err := loadLog(damagedLog)
		var invalid *checkpoint.InvalidFileError
		switch {
		case errors.As(err, &invalid):
		case err != nil:
			t.Fatalf("bit %d: %v", i, err)
		case i/8 < end || value["c"] != 0 || value["b"] != lastChange["b"]:
			t.Fatalf("bit %d of %q: got %v, want an error", i, damaged, value)
		}
	}
}

// TestLog_FileReplaced checks that a file that somebody else changed is written again.
func TestLog_FileReplaced(t *testing.T) {
	path := t.TempDir()
	log := openLog(t, openDir(t, path))
	log.mustAdd(t, "a", 1)
	for name, damage := range map[string]func() error{
		"removed":   func() error { return os.Remove(filepath.Join(path, "status")) },
		"truncated": func() error { return os.Truncate(filepath.Join(path, "status"), 3) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		log.mustAdd(t, name, 1)
		wantLog(t, path, log.value)
	}
}
