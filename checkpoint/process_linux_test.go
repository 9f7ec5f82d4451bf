package checkpoint_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/heraldnode/herald/checkpoint"
)

// Environment variables of child processes: the test binary, started with the name of a function to run instead of the tests.
const (
	childEnv = "CHECKPOINT_TEST_CHILD"
	pathEnv  = "CHECKPOINT_TEST_PATH"
	stepEnv  = "CHECKPOINT_TEST_STEP"
)

// childFunctions are the functions that a child process can run.
var childFunctions = map[string]func(path string) error{
	"hold lock":        holdLock,
	"count":            countUp,
	"crash at step":    crashAtStep,
	"file size limit":  testFileSizeLimit,
	"descriptor limit": testDescriptorLimit,
	"full disk":        testFullDisk,
}

func TestMain(m *testing.M) {
	name := os.Getenv(childEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := childFunctions[name](os.Getenv(pathEnv)); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// newChild returns a child process that runs one of childFunctions.
func newChild(t *testing.T, name, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	// GORACE: otherwise the race detector delays the exit by a second.
	cmd.Env = append(os.Environ(), childEnv+"="+name, pathEnv+"="+path, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// runChild runs a child process until it exits.
func runChild(t *testing.T, name, path string) {
	t.Helper()
	if err := newChild(t, name, path).Run(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// holdLock keeps the directory open until stdin is closed.
func holdLock(path string) error {
	dir, err := checkpoint.Open(path, checkpoint.Options{})
	if err != nil {
		return err
	}
	defer dir.Close()
	fmt.Println("locked")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func TestF30_LockedByOtherProcess(t *testing.T) {
	path := t.TempDir()
	cmd := newChild(t, "hold lock", path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}

	_, err = checkpoint.Open(path, checkpoint.Options{})
	var locked *checkpoint.LockedError
	if !errors.As(err, &locked) || locked.PID != cmd.Process.Pid {
		t.Fatalf("got %v, want a LockedError with PID %d", err, cmd.Process.Pid)
	}
	for _, want := range []string{path, strconv.Itoa(cmd.Process.Pid)} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %s", err, want)
		}
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the error is the kill
	openDir(t, path)
}

func TestF30_LockedBySameProcess(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	var locked *checkpoint.LockedError
	if _, err := checkpoint.Open(path, checkpoint.Options{}); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Fatalf("got %v, want a LockedError with this PID", err)
	}
	writeFile(t, filepath.Join(path, ".holder"), nil)
	if _, err := checkpoint.Open(path, checkpoint.Options{}); !errors.As(err, &locked) || locked.PID != 0 {
		t.Fatalf("got %v without PID file content, want a LockedError without PID", err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	openDir(t, path)
}

// numberPayload returns a payload that is large enough for a partial write. Payloads of different numbers differ in every line.
func numberPayload(n int) []byte { return []byte(strings.Repeat(fmt.Sprintf("%09d\n", n), 2000)) }

func loadNumber(dir *checkpoint.Dir) (int, error) {
	payload, _, err := dir.Load("number")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(payload), "\n")
	n, err := strconv.Atoi(first)
	if err == nil && string(payload) != string(numberPayload(n)) {
		err = fmt.Errorf("payload of %d is mixed with another", n)
	}
	return n, err
}

// countUp saves increasing numbers forever, and prints each after its Save has returned.
func countUp(path string) error {
	dir, err := checkpoint.Open(path, checkpoint.Options{})
	if err != nil {
		return err
	}
	n, err := loadNumber(dir)
	if err != nil {
		return err
	}
	for {
		n++
		if err := dir.Save("number", 1, numberPayload(n)); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

func TestF15_KillAtRandomMoment(t *testing.T) {
	const kills = 50
	path := t.TempDir()
	first := openDir(t, path)
	if err := first.Save("number", 1, numberPayload(0)); err != nil {
		t.Fatal(err)
	}
	first.Close()
	last, partial := 0, 0
	for range kills {
		printed := killWhileCounting(t, path, last)
		if len(listFiles(t, path)) > 1 {
			partial++
		}
		dir := openDir(t, path)
		n, err := loadNumber(dir)
		if err != nil || n != printed && n != printed+1 {
			t.Fatalf("got %d, %v, want %d or the next number", n, err, printed)
		}
		wantFiles(t, path, "number")
		dir.Close()
		last = n
	}
	t.Logf("%d numbers, %d kills, %d of them during a write", last, kills, partial)
}

// killWhileCounting kills the counting child at a random moment and returns the last number that it printed.
func killWhileCounting(t *testing.T, path string, last int) int {
	t.Helper()
	cmd := newChild(t, "count", path)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	remaining := rand.IntN(4)
	for lines.Scan() {
		if last, err = strconv.Atoi(lines.Text()); err != nil {
			t.Fatal(err)
		}
		if remaining--; remaining < 0 {
			spin(rand.IntN(200_000))
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // the error is the kill
	return last
}

// spin delays the kill by a part of a Save.
func spin(iterations int) {
	for range iterations {
		rand.Uint32()
	}
}

// crashAtStep kills its process before the step of a Save whose number is in the environment.
func crashAtStep(path string) error {
	remaining, err := strconv.Atoi(os.Getenv(stepEnv))
	if err != nil {
		return err
	}
	dir, err := checkpoint.OpenTraced(path, checkpoint.Options{}, func(step checkpoint.Step) error {
		if remaining--; remaining >= 0 {
			return nil
		}
		fmt.Println(step.Op)
		return errors.Join(syscall.Kill(os.Getpid(), syscall.SIGKILL), errors.New("survived"))
	})
	if err != nil {
		return err
	}
	return dir.Save("number", 1, numberPayload(2))
}

func TestF15_KillBeforeEachStep(t *testing.T) {
	for step := 0; ; step++ {
		path := t.TempDir()
		writeFile(t, filepath.Join(path, "number"), checkpoint.Encode("number", 1, numberPayload(1)))
		cmd := newChild(t, "crash at step", path)
		cmd.Env = append(cmd.Env, stepEnv+"="+strconv.Itoa(step))
		output, exitErr := cmd.Output()
		want := 1
		if op := strings.TrimSpace(string(output)); op == "sync dir" || exitErr == nil {
			want = 2
		}
		dir := openDir(t, path)
		if n, err := loadNumber(dir); n != want || err != nil {
			t.Fatalf("killed before step %d, %s: got %d, %v, want %d", step, output, n, err, want)
		}
		wantFiles(t, path, "number")
		if exitErr == nil {
			if step < 8 {
				t.Errorf("got %d steps, want at least 8", step)
			}
			return
		}
		if step > 50 {
			t.Fatal("Save does not end")
		}
	}
}

// TestF15_LockInheritedByChild simulates a child between fork and exec: it has inherited the lock of a parent that was killed.
func TestF15_LockInheritedByChild(t *testing.T) {
	path := t.TempDir()
	inherited := openDir(t, path)
	exited := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	if err := exited.Run(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(path, ".holder"), []byte(strconv.Itoa(exited.Process.Pid)))
	time.AfterFunc(50*time.Millisecond, func() { _ = inherited.Close() })
	openDir(t, path)
}
