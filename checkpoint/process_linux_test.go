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

// What this binary does instead of testing, when a test starts it again with one of these names in the environment.
const (
	roleVariable = "CHECKPOINT_TEST_ROLE"
	pathVariable = "CHECKPOINT_TEST_PATH"
	stepVariable = "CHECKPOINT_TEST_STEP"
)

var roles = map[string]func(path string) error{
	"hold the folder":         holdFolder,
	"count":                   countUp,
	"die at a step":           dieAtStep,
	"have no room for files":  haveNoRoomForFiles,
	"have no descriptor left": haveNoDescriptorLeft,
	"have a full disk":        haveFullDisk,
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := roles[role](os.Getenv(pathVariable)); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}

// again is this test binary in another role.
func again(t *testing.T, role, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	// Without the last, the race detector keeps a process alive for a second after its end.
	cmd.Env = append(os.Environ(), roleVariable+"="+role, pathVariable+"="+path, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// play runs a role to its end.
func play(t *testing.T, role, path string) {
	t.Helper()
	if err := again(t, role, path).Run(); err != nil {
		t.Fatalf("%s: %v", role, err)
	}
}

// holdFolder keeps the folder until its input ends.
func holdFolder(path string) error {
	dir, err := checkpoint.Open(path, checkpoint.Options{})
	if err != nil {
		return err
	}
	defer dir.Close()
	fmt.Println("held")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func TestF30ASecondAgentOnTheFolderIsRefusedUntilTheFirstIsGone(t *testing.T) {
	path := t.TempDir()
	cmd := again(t, "hold the folder", path)
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
		t.Fatalf("have %v, want to hear of process %d", err, cmd.Process.Pid)
	}
	for _, part := range []string{path, strconv.Itoa(cmd.Process.Pid)} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the message does not name %s: %v", part, err)
		}
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the error is the kill
	open(t, path)
}

func TestF30AFolderIsHeldOnceInOneProcessToo(t *testing.T) {
	path := t.TempDir()
	dir := open(t, path)
	var locked *checkpoint.LockedError
	if _, err := checkpoint.Open(path, checkpoint.Options{}); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Fatalf("have %v", err)
	}
	write(t, filepath.Join(path, ".holder"), nil)
	if _, err := checkpoint.Open(path, checkpoint.Options{}); !errors.As(err, &locked) || locked.PID != 0 {
		t.Fatalf("with no process written down: %v", err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path)
}

// numberPayload is large enough for a write to be cut, and is nowhere the same for two numbers.
func numberPayload(n int) []byte { return []byte(strings.Repeat(fmt.Sprintf("%09d\n", n), 2000)) }

func loadNumber(dir *checkpoint.Dir) (int, error) {
	payload, _, err := dir.Load("number")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(payload), "\n")
	n, err := strconv.Atoi(first)
	if err == nil && string(payload) != string(numberPayload(n)) {
		err = fmt.Errorf("%d mixed with something else", n)
	}
	return n, err
}

// countUp saves the next numbers for ever, and says each one after its Save has returned.
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

func TestF15AKillAtAnyMomentLosesNothingThatWasSaved(t *testing.T) {
	const kills = 50
	path := t.TempDir()
	first := open(t, path)
	if err := first.Save("number", 1, numberPayload(0)); err != nil {
		t.Fatal(err)
	}
	first.Close()
	last, cut := 0, 0
	for range kills {
		said := killWhileCounting(t, path, last)
		if len(filesIn(t, path)) > 1 {
			cut++
		}
		dir := open(t, path)
		n, err := loadNumber(dir)
		if err != nil || n != said && n != said+1 {
			t.Fatalf("loaded %d after %d was saved: %v", n, said, err)
		}
		wantFiles(t, path, "number")
		dir.Close()
		last = n
	}
	t.Logf("%d numbers, %d kills, %d of them amid a write", last, kills, cut)
}

// killWhileCounting kills the counter at a random moment and returns the last number that it said.
func killWhileCounting(t *testing.T, path string, last int) int {
	t.Helper()
	cmd := again(t, "count", path)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	alive := rand.IntN(4)
	for lines.Scan() {
		if last, err = strconv.Atoi(lines.Text()); err != nil {
			t.Fatal(err)
		}
		if alive--; alive < 0 {
			spin(rand.IntN(200_000))
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // the error is the kill
	return last
}

// spin lets a part of a Save go by, so that the kill comes at no particular step.
func spin(turns int) {
	for range turns {
		rand.Uint32()
	}
}

// dieAtStep kills itself right before the step of a Save whose number is in the environment.
func dieAtStep(path string) error {
	left, err := strconv.Atoi(os.Getenv(stepVariable))
	if err != nil {
		return err
	}
	dir, err := checkpoint.OpenTraced(path, checkpoint.Options{}, func(step checkpoint.Step) error {
		if left--; left >= 0 {
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

func TestF15AKillBeforeEachStepOfASaveLeavesTheOldOrTheNew(t *testing.T) {
	for step := 0; ; step++ {
		path := t.TempDir()
		write(t, filepath.Join(path, "number"), checkpoint.Encode("number", 1, numberPayload(1)))
		cmd := again(t, "die at a step", path)
		cmd.Env = append(cmd.Env, stepVariable+"="+strconv.Itoa(step))
		said, dying := cmd.Output()
		want := 1
		if op := strings.TrimSpace(string(said)); op == "sync folder" || dying == nil {
			want = 2
		}
		dir := open(t, path)
		if n, err := loadNumber(dir); n != want || err != nil {
			t.Fatalf("killed before step %d, %s: loaded %d, want %d: %v", step, said, n, want, err)
		}
		wantFiles(t, path, "number")
		if dying == nil {
			if step < 8 {
				t.Errorf("only %d steps were seen", step)
			}
			return
		}
		if step > 50 {
			t.Fatal("the save never ends")
		}
	}
}

// A child that was just born has all that its parent had open. If the parent is killed then, the child holds the folder
// until it becomes another program.
func TestF15WhatADeadHolderLeftBehindIsWaitedFor(t *testing.T) {
	path := t.TempDir()
	child := open(t, path)
	dead := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(path, ".holder"), []byte(strconv.Itoa(dead.Process.Pid)))
	time.AfterFunc(50*time.Millisecond, func() { _ = child.Close() })
	open(t, path)
}
