package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// plantContainer creates the directory of a container whose command creates a file, and returns both paths.
func plantContainer(t *testing.T) (dir, evidence string) {
	t.Helper()
	base := t.TempDir()
	dir, evidence = filepath.Join(base, "container"), filepath.Join(base, "evidence")
	config, err := proto.Marshal(&runtimeapi.ContainerConfig{Command: []string{"/bin/sh", "-c", "echo >" + evidence}})
	if err != nil {
		t.Fatal(err)
	}
	record, err := json.Marshal(map[string]any{
		"id": "planted", "sandbox": "s", "created": time.Now(), "config": config, "logPath": filepath.Join(base, "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "root"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "container.json"), record, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "alive"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, evidence
}

// openReadWrite opens a FIFO without waiting for the other end.
func openReadWrite(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// TestShim_Impersonation calls the program as a user would who wants it to execute a planted directory.
func TestShim_Impersonation(t *testing.T) {
	chmod := func(name string, mode os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	chown := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			if os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			if err := os.Chown(filepath.Join(dir, name), 1234, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	alive := func(t *testing.T, dir string) []*os.File {
		t.Helper()
		return []*os.File{openReadWrite(t, filepath.Join(dir, "alive"))}
	}
	tests := map[string]struct {
		args    []string // DIR stands for the directory
		prepare func(t *testing.T, dir string)
		files   func(t *testing.T, dir string) []*os.File
		runs    bool
		want    string // of standard error
	}{
		"as the server starts it":       {args: []string{"process-shim", "DIR"}, files: alive, runs: true},
		"role as last argument but one": {args: []string{"-test.run=^$", "get", "pods", "process-shim", "DIR"}, files: alive},
		"extra argument":                {args: []string{"process-shim", "DIR", "get"}, files: alive},
		"no descriptor":                 {args: []string{"process-shim", "DIR"}, want: "only the agent starts shims"},
		"another descriptor": {
			args: []string{"process-shim", "DIR"}, want: "only the agent starts shims",
			files: func(t *testing.T, dir string) []*os.File {
				t.Helper()
				file, err := os.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { file.Close() })
				return []*os.File{file}
			},
		},
		"exec without descriptors": {args: []string{"process-exec", "DIR"}, want: "only the agent starts shims"},
		"world-writable directory": {
			args: []string{"process-shim", "DIR"}, prepare: chmod(".", 0o777), files: alive, want: "DIR is world-writable (mode 0777)",
		},
		"world-writable record": {
			args: []string{"process-shim", "DIR"}, prepare: chmod("container.json", 0o666), files: alive,
			want: "DIR/container.json is world-writable (mode 0666)",
		},
		"directory of another user": {
			args: []string{"process-shim", "DIR"}, prepare: chown("."), files: alive, want: "DIR is owned by user 1234",
		},
		"record of another user": {
			args: []string{"process-shim", "DIR"}, prepare: chown("container.json"), files: alive,
			want: "DIR/container.json is owned by user 1234",
		},
		"linked record": {
			args: []string{"process-shim", "DIR"}, files: alive, want: "DIR/container.json is not a regular file",
			prepare: func(t *testing.T, dir string) {
				t.Helper()
				record := filepath.Join(dir, "container.json")
				if err := errors.Join(os.Rename(record, record+".1"), os.Symlink("container.json.1", record)); err != nil {
					t.Fatal(err)
				}
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, evidence := plantContainer(t)
			if test.prepare != nil {
				test.prepare(t, dir)
			}
			args := slices.Clone(test.args)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "DIR", dir)
			}
			var files []*os.File
			if test.files != nil {
				files = test.files(t, dir)
			}
			stderr := runProgram(t, args, files)
			if _, err := os.Stat(evidence); (err == nil) != test.runs {
				t.Errorf("command ran: got %v, want %v (%s)", err == nil, test.runs, stderr)
			}
			if want := strings.ReplaceAll(test.want, "DIR", dir); !strings.Contains(stderr, want) {
				t.Errorf("got %q, want %q", stderr, want)
			}
		})
	}
}

// runProgram runs the test binary with these arguments and extra descriptors, and returns its standard error.
func runProgram(t *testing.T, args []string, files []*os.File) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(ctx, program, args...)
	command.ExtraFiles, command.Env = files, append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // if the test is aborted
	var stderr strings.Builder
	command.Stderr = &stderr
	var exit *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stderr.String()
}
