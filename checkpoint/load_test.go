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

// validFile is a file of the checkpoint "status".
var validFile = checkpoint.Encode("status", 1, []byte(`{"pods":{"a":"Running"}}`))

// TestLoad_ReleasedFormat fails when released files cannot be read any more. The file is the one in the package comment.
func TestLoad_ReleasedFormat(t *testing.T) {
	const released = `{"checkpoint":1,"name":"status","version":1,"length":24,"crc32c":"4f7a559f"}` + "\n" + `{"pods":{"a":"Running"}}`
	path := t.TempDir()
	dir := openDir(t, path)
	writeFile(t, filepath.Join(path, "status"), []byte(released))
	wantLoaded(t, dir, "status", `{"pods":{"a":"Running"}}`)
	if diff := cmp.Diff(released, string(validFile)); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
}

// wantQuarantined loads an invalid file, and checks the error and the content of the renamed file.
func wantQuarantined(t *testing.T, dir *checkpoint.Dir, path string, data []byte, reason error) {
	t.Helper()
	payload, _, err := dir.Load("status")
	var invalid *checkpoint.InvalidFileError
	if !errors.As(err, &invalid) || !errors.Is(err, reason) || payload != nil {
		t.Fatalf("got %q, %v, want %v", payload, err, reason)
	}
	if invalid.Path != filepath.Join(path, "status") || invalid.MoveErr != nil || !strings.Contains(err.Error(), invalid.MovedTo) {
		t.Fatalf("got %v, want an error with the new path", err)
	}
	if moved, err := os.ReadFile(invalid.MovedTo); err != nil || !bytes.Equal(moved, data) {
		t.Fatalf("got renamed file %q, %v, want %q", moved, err, data)
	}
	if _, _, err := dir.Load("status"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v after quarantine, want fs.ErrNotExist", err)
	}
	if err := os.Remove(invalid.MovedTo); err != nil {
		t.Fatal(err)
	}
}

func TestF18_TruncatedFile(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	for size := range validFile {
		writeFile(t, filepath.Join(path, "status"), validFile[:size])
		wantQuarantined(t, dir, path, validFile[:size], checkpoint.ErrCorrupt)
	}
}

func TestF18_TruncationError(t *testing.T) {
	_, _, err := checkpoint.Decode("status", validFile[:len(validFile)-1])
	if err == nil || !strings.Contains(err.Error(), "23 bytes of 24") {
		t.Fatalf("got %v, want 23 bytes of 24", err)
	}
}

func TestF18_FlippedBit(t *testing.T) {
	const formatIndex = len(`{"checkpoint":`)
	path := t.TempDir()
	dir := openDir(t, path)
	for bit := range len(validFile) * 8 {
		flipped := bytes.Clone(validFile)
		flipped[bit/8] ^= 1 << (bit % 8)
		reason := checkpoint.ErrCorrupt
		if bit/8 < formatIndex {
			reason = checkpoint.ErrForeign
		} else if digit := flipped[formatIndex]; digit != '1' && digit >= '0' && digit <= '9' {
			reason = checkpoint.ErrVersion
		}
		writeFile(t, filepath.Join(path, "status"), flipped)
		wantQuarantined(t, dir, path, flipped, reason)
	}
}

func TestF18_InvalidContent(t *testing.T) {
	tests := map[string]struct {
		data   string
		reason error
	}{
		"empty":                    {data: "", reason: checkpoint.ErrCorrupt},
		"zeros":                    {data: strings.Repeat("\x00", len(validFile)), reason: checkpoint.ErrForeign},
		"kubelet checkpoint":       {data: `{"data":"{}","checksum":1234}`, reason: checkpoint.ErrForeign},
		"text":                     {data: "hello\n", reason: checkpoint.ErrForeign},
		"other checkpoint":         {data: string(checkpoint.Encode("probe", 1, nil)), reason: checkpoint.ErrForeign},
		"newer format":             {data: `{"checkpoint":2,"parts":[1,2],"name":{}}` + "\n", reason: checkpoint.ErrVersion},
		"two checkpoints":          {data: string(validFile) + string(validFile), reason: checkpoint.ErrCorrupt},
		"trailing byte":            {data: string(validFile) + "\n", reason: checkpoint.ErrCorrupt},
		"endless header":           {data: `{"checkpoint":1,` + strings.Repeat(" ", 10_000), reason: checkpoint.ErrCorrupt},
		"header without JSON":      {data: `{"checkpoint":1` + "\n", reason: checkpoint.ErrCorrupt},
		"header with wrong type":   {data: `{"checkpoint":1,"name":7}` + "\n", reason: checkpoint.ErrCorrupt},
		"no version":               {data: string(checkpoint.Encode("status", 0, nil)), reason: checkpoint.ErrCorrupt},
		"negative length":          {data: `{"checkpoint":1,"name":"status","version":1,"length":-1,"crc32c":"00000000"}` + "\n", reason: checkpoint.ErrCorrupt},
		"huge length":              {data: `{"checkpoint":1,"name":"status","version":1,"length":9223372036854775807,"crc32c":""}` + "\n", reason: checkpoint.ErrCorrupt},
		"header with space":        {data: strings.Replace(string(validFile), `,"name"`, `, "name"`, 1), reason: checkpoint.ErrCorrupt},
		"header with double field": {data: strings.Replace(string(validFile), `,"name"`, `,"name":"x","name"`, 1), reason: checkpoint.ErrCorrupt},
		"header with CRLF":         {data: strings.Replace(string(validFile), "\n", "\r\n", 1), reason: checkpoint.ErrCorrupt},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			writeFile(t, filepath.Join(path, "status"), []byte(test.data))
			wantQuarantined(t, openDir(t, path), path, []byte(test.data), test.reason)
		})
	}
}

func TestF18_HugeFile(t *testing.T) {
	path := t.TempDir()
	huge := filepath.Join(path, "status")
	writeFile(t, huge, validFile)
	if err := os.Truncate(huge, 1<<40); err != nil {
		t.Fatal(err)
	}
	dir, err := checkpoint.OpenTraced(path, checkpoint.Options{}, func(step checkpoint.Step) error {
		if step.Op == "open" {
			t.Error("the file was opened")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, _, err := dir.Load("status"); !errors.Is(err, checkpoint.ErrTooLarge) {
		t.Fatalf("got %v, want ErrTooLarge", err)
	}
	wantFiles(t, path, "status.corrupt")
}

func TestF18_PayloadTooLarge(t *testing.T) {
	path := t.TempDir()
	writeFile(t, filepath.Join(path, "status"), checkpoint.Encode("status", 1, []byte("12345")))
	dir, err := checkpoint.Open(path, checkpoint.Options{MaxSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if payload, _, err := dir.Load("status"); !errors.Is(err, checkpoint.ErrTooLarge) || payload != nil {
		t.Fatalf("got %q, %v, want ErrTooLarge", payload, err)
	}
	wantFiles(t, path, "status.corrupt")
}

func TestF18_NotARegularFile(t *testing.T) {
	for name, create := range map[string]func(path, target string) error{
		"symlink to a checkpoint":   func(path, target string) error { return os.Symlink(target, path) },
		"symlink in the directory":  func(path, _ string) error { return os.Symlink("other", path) },
		"symlink to itself":         func(path, _ string) error { return os.Symlink(path, path) },
		"directory":                 func(path, _ string) error { return os.Mkdir(path, 0o700) },
		"named pipe without writer": func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
			writeFile(t, target, validFile)
			writeFile(t, filepath.Join(path, "other"), validFile)
			if err := create(filepath.Join(path, "status"), target); err != nil {
				t.Fatal(err)
			}
			if _, _, err := openDir(t, path).Load("status"); !errors.Is(err, checkpoint.ErrForeign) {
				t.Fatalf("got %v, want ErrForeign", err)
			}
			wantFiles(t, path, "other", "status.corrupt")
		})
	}
}

func TestF18_QuarantineIsBounded(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	for n := range 10 {
		writeFile(t, filepath.Join(path, "status"), fmt.Append(nil, n))
		if _, _, err := dir.Load("status"); !errors.Is(err, checkpoint.ErrForeign) {
			t.Fatal(err)
		}
	}
	save(t, dir, "status", "valid")
	got := map[string]string{}
	for _, name := range listFiles(t, path) {
		data, err := os.ReadFile(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = string(data)
	}
	delete(got, "status")
	want := map[string]string{"status.corrupt": "0", "status.corrupt-2": "1", "status.corrupt-3": "2", "status.corrupt-4": "9"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("quarantined files (-want +got):\n%s", diff)
	}
	wantLoaded(t, dir, "status", "valid")
}

func TestF17_QuarantineOnReadOnlyDisk(t *testing.T) {
	path := t.TempDir()
	writeFile(t, filepath.Join(path, "status"), []byte("bad"))
	dir := openFailing(t, path, "rename", syscall.EROFS)
	_, _, err := dir.Load("status")
	var invalid *checkpoint.InvalidFileError
	if !errors.As(err, &invalid) || invalid.MovedTo != "" || !errors.Is(err, syscall.EROFS) || !errors.Is(err, checkpoint.ErrForeign) {
		t.Fatalf("got %v, want ErrForeign and EROFS", err)
	}
	if !strings.Contains(err.Error(), "cannot be moved: read-only file system") {
		t.Errorf("got %v, want the reason why the file was not moved", err)
	}
	wantFiles(t, path, "status")
}

func TestF17_ReadError(t *testing.T) {
	for _, step := range []string{"lstat", "open", "read"} {
		path := t.TempDir()
		writeFile(t, filepath.Join(path, "status"), validFile)
		dir := openFailing(t, path, step, syscall.EIO)
		_, _, err := dir.Load("status")
		if invalid := new(checkpoint.InvalidFileError); errors.As(err, &invalid) || !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: got %v, want EIO", step, err)
		}
		wantFiles(t, path, "status")
	}
}

func TestQuarantine_Replaced(t *testing.T) {
	dir := openDir(t, t.TempDir())
	save(t, dir, "status", "new")
	var invalid *checkpoint.InvalidFileError
	if err := dir.Quarantine("status", 1, []byte("old"), checkpoint.ErrVersion); !errors.As(err, &invalid) || invalid.MoveErr == nil {
		t.Fatalf("got %v, want an InvalidFileError with MoveErr", err)
	}
	wantLoaded(t, dir, "status", "new")
}

// FuzzDecode checks F18: decode does not panic, and accepts only what Save writes, byte for byte.
func FuzzDecode(f *testing.F) {
	f.Add("status", validFile)
	f.Add("status", validFile[:len(validFile)-1])
	f.Add("status", checkpoint.Encode("status", 2, nil))
	f.Add("status", []byte(`{"checkpoint":2}`+"\n"))
	f.Add("", []byte{})
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		payload, version, err := checkpoint.Decode(name, data)
		if err == nil && (version < 1 || !bytes.Equal(checkpoint.Encode(name, version, payload), data)) {
			t.Fatalf("invalid file was accepted: %q", data)
		}
		encoded := checkpoint.Encode("status", 1, data)
		if !bytes.HasSuffix(encoded, data) {
			t.Fatal("the file does not end with the payload")
		}
		if payload, _, err := checkpoint.Decode("status", encoded); err != nil || !bytes.Equal(payload, data) {
			t.Fatalf("got %q, %v, want %q", payload, err, data)
		}
	})
}
