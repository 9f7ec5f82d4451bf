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

var good = checkpoint.Encode("status", 1, []byte(`{"pods":{"a":"Running"}}`))

// TestTheFormatIsTheOneThatWasReleased fails when files of programs before this one cannot be read any more. The file is the
// one in the package's comment.
func TestTheFormatIsTheOneThatWasReleased(t *testing.T) {
	const released = `{"checkpoint":1,"name":"status","version":1,"length":24,"crc32c":"4f7a559f"}` + "\n" + `{"pods":{"a":"Running"}}`
	path := t.TempDir()
	dir := open(t, path)
	write(t, filepath.Join(path, "status"), []byte(released))
	wantLoaded(t, dir, "status", `{"pods":{"a":"Running"}}`)
	if diff := cmp.Diff(released, string(good)); diff != "" {
		t.Error(diff)
	}
}

// wantSetAside loads a file that cannot be used, and fails unless the error says why and where its bytes are now.
func wantSetAside(t *testing.T, dir *checkpoint.Dir, path string, data []byte, reason error) {
	t.Helper()
	payload, _, err := dir.Load("status")
	var bad *checkpoint.InvalidFileError
	if !errors.As(err, &bad) || !errors.Is(err, reason) || payload != nil {
		t.Fatalf("loaded %q with error %v, want %v", payload, err, reason)
	}
	if bad.Path != filepath.Join(path, "status") || bad.MoveErr != nil || !strings.Contains(err.Error(), bad.MovedTo) {
		t.Fatalf("the error does not say where the file was put: %v", err)
	}
	if kept, err := os.ReadFile(bad.MovedTo); err != nil || !bytes.Equal(kept, data) {
		t.Fatalf("the file that was set aside has %q: %v", kept, err)
	}
	if _, _, err := dir.Load("status"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the bad file is still in place: %v", err)
	}
	if err := os.Remove(bad.MovedTo); err != nil {
		t.Fatal(err)
	}
}

func TestF18AFileThatWasCutAtAnyByteIsSetAside(t *testing.T) {
	path := t.TempDir()
	dir := open(t, path)
	for size := range good {
		write(t, filepath.Join(path, "status"), good[:size])
		wantSetAside(t, dir, path, good[:size], checkpoint.ErrCorrupt)
	}
}

func TestF18TheErrorSaysHowMuchIsMissing(t *testing.T) {
	_, _, err := checkpoint.Decode("status", good[:len(good)-1])
	if err == nil || !strings.Contains(err.Error(), "23 bytes of 24") {
		t.Fatalf("have %v", err)
	}
}

func TestF18AFlippedBitAnywhereIsFound(t *testing.T) {
	const formatAt = len(`{"checkpoint":`)
	path := t.TempDir()
	dir := open(t, path)
	for bit := range len(good) * 8 {
		flipped := bytes.Clone(good)
		flipped[bit/8] ^= 1 << (bit % 8)
		reason := checkpoint.ErrCorrupt
		if bit/8 < formatAt {
			reason = checkpoint.ErrForeign
		} else if digit := flipped[formatAt]; digit != '1' && digit >= '0' && digit <= '9' {
			reason = checkpoint.ErrVersion
		}
		write(t, filepath.Join(path, "status"), flipped)
		wantSetAside(t, dir, path, flipped, reason)
	}
}

func TestF18WhatSaveCannotHaveWrittenIsSetAside(t *testing.T) {
	tests := map[string]struct {
		data   string
		reason error
	}{
		"nothing":                         {data: "", reason: checkpoint.ErrCorrupt},
		"zeros, as after a power cut":     {data: strings.Repeat("\x00", len(good)), reason: checkpoint.ErrForeign},
		"the kubelet's checkpoint":        {data: `{"data":"{}","checksum":1234}`, reason: checkpoint.ErrForeign},
		"text":                            {data: "hello\n", reason: checkpoint.ErrForeign},
		"another checkpoint":              {data: string(checkpoint.Encode("probe", 1, nil)), reason: checkpoint.ErrForeign},
		"a newer format":                  {data: `{"checkpoint":2,"parts":[1,2],"name":{}}` + "\n", reason: checkpoint.ErrVersion},
		"two checkpoints in one file":     {data: string(good) + string(good), reason: checkpoint.ErrCorrupt},
		"a byte more":                     {data: string(good) + "\n", reason: checkpoint.ErrCorrupt},
		"a first line that never ends":    {data: `{"checkpoint":1,` + strings.Repeat(" ", 10_000), reason: checkpoint.ErrCorrupt},
		"a first line that is not JSON":   {data: `{"checkpoint":1` + "\n", reason: checkpoint.ErrCorrupt},
		"a first line with other types":   {data: `{"checkpoint":1,"name":7}` + "\n", reason: checkpoint.ErrCorrupt},
		"no version":                      {data: string(checkpoint.Encode("status", 0, nil)), reason: checkpoint.ErrCorrupt},
		"a length below zero":             {data: `{"checkpoint":1,"name":"status","version":1,"length":-1,"crc32c":"00000000"}` + "\n", reason: checkpoint.ErrCorrupt},
		"a length beyond all memory":      {data: `{"checkpoint":1,"name":"status","version":1,"length":9223372036854775807,"crc32c":""}` + "\n", reason: checkpoint.ErrCorrupt},
		"the same spelled with a blank":   {data: strings.Replace(string(good), `,"name"`, `, "name"`, 1), reason: checkpoint.ErrCorrupt},
		"the same with a field twice":     {data: strings.Replace(string(good), `,"name"`, `,"name":"x","name"`, 1), reason: checkpoint.ErrCorrupt},
		"Windows' idea of the line's end": {data: strings.Replace(string(good), "\n", "\r\n", 1), reason: checkpoint.ErrCorrupt},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			write(t, filepath.Join(path, "status"), []byte(test.data))
			wantSetAside(t, open(t, path), path, []byte(test.data), test.reason)
		})
	}
}

func TestF18AHugeFileIsSetAsideUnread(t *testing.T) {
	path := t.TempDir()
	huge := filepath.Join(path, "status")
	write(t, huge, good)
	if err := os.Truncate(huge, 1<<40); err != nil {
		t.Fatal(err)
	}
	dir, err := checkpoint.OpenTraced(path, checkpoint.Options{}, func(step checkpoint.Step) error {
		if step.Op == "open" {
			t.Errorf("the file was opened")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, _, err := dir.Load("status"); !errors.Is(err, checkpoint.ErrTooLarge) {
		t.Fatalf("have %v", err)
	}
	wantFiles(t, path, "status.corrupt")
}

func TestF18APayloadThatSaveWouldRefuseIsNotLoaded(t *testing.T) {
	path := t.TempDir()
	write(t, filepath.Join(path, "status"), checkpoint.Encode("status", 1, []byte("12345")))
	dir, err := checkpoint.Open(path, checkpoint.Options{MaxSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if payload, _, err := dir.Load("status"); !errors.Is(err, checkpoint.ErrTooLarge) || payload != nil {
		t.Fatalf("loaded %q: %v", payload, err)
	}
	wantFiles(t, path, "status.corrupt")
}

func TestF18WhatIsNoRegularFileIsSetAsideAndNotFollowed(t *testing.T) {
	for name, make := range map[string]func(path, elsewhere string) error{
		"a link to a good checkpoint": func(path, elsewhere string) error { return os.Symlink(elsewhere, path) },
		"a link inside the folder":    func(path, _ string) error { return os.Symlink("other", path) },
		"a link to itself":            func(path, _ string) error { return os.Symlink(path, path) },
		"a folder":                    func(path, _ string) error { return os.Mkdir(path, 0o700) },
		"a named pipe without writer": func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
			write(t, elsewhere, good)
			write(t, filepath.Join(path, "other"), good)
			if err := make(filepath.Join(path, "status"), elsewhere); err != nil {
				t.Fatal(err)
			}
			if _, _, err := open(t, path).Load("status"); !errors.Is(err, checkpoint.ErrForeign) {
				t.Fatalf("have %v", err)
			}
			wantFiles(t, path, "other", "status.corrupt")
		})
	}
}

func TestF18FilesThatWereSetAsideAreBounded(t *testing.T) {
	path := t.TempDir()
	dir := open(t, path)
	for n := range 10 {
		write(t, filepath.Join(path, "status"), fmt.Append(nil, n))
		if _, _, err := dir.Load("status"); !errors.Is(err, checkpoint.ErrForeign) {
			t.Fatal(err)
		}
	}
	save(t, dir, "status", "good")
	have := map[string]string{}
	for _, name := range filesIn(t, path) {
		data, err := os.ReadFile(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		have[name] = string(data)
	}
	delete(have, "status")
	want := map[string]string{"status.corrupt": "0", "status.corrupt-2": "1", "status.corrupt-3": "2", "status.corrupt-4": "9"}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Fatal(diff)
	}
	wantLoaded(t, dir, "status", "good")
}

func TestF17ABadFileOnAReadOnlyDiskIsReportedAndLeft(t *testing.T) {
	path := t.TempDir()
	write(t, filepath.Join(path, "status"), []byte("bad"))
	dir := openFailing(t, path, "rename", syscall.EROFS)
	_, _, err := dir.Load("status")
	var bad *checkpoint.InvalidFileError
	if !errors.As(err, &bad) || bad.MovedTo != "" || !errors.Is(err, syscall.EROFS) || !errors.Is(err, checkpoint.ErrForeign) {
		t.Fatalf("have %v", err)
	}
	if !strings.Contains(err.Error(), "cannot be set aside: read-only file system") {
		t.Errorf("the error does not say why the file was left: %v", err)
	}
	wantFiles(t, path, "status")
}

func TestF17AReadThatFailsLeavesTheFile(t *testing.T) {
	for _, step := range []string{"lstat", "open", "read"} {
		path := t.TempDir()
		write(t, filepath.Join(path, "status"), good)
		dir := openFailing(t, path, step, syscall.EIO)
		_, _, err := dir.Load("status")
		if bad := new(checkpoint.InvalidFileError); errors.As(err, &bad) || !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: have %v", step, err)
		}
		wantFiles(t, path, "status")
	}
}

func TestAPayloadThatWasReplacedIsNotSetAside(t *testing.T) {
	dir := open(t, t.TempDir())
	save(t, dir, "status", "new")
	var bad *checkpoint.InvalidFileError
	if err := dir.Quarantine("status", 1, []byte("old"), checkpoint.ErrVersion); !errors.As(err, &bad) || bad.MoveErr == nil {
		t.Fatalf("have %v", err)
	}
	wantLoaded(t, dir, "status", "new")
}
