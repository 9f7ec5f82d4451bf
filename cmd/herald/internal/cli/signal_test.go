package cli_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/heraldnode/herald/cmd/herald/internal/cli"
)

// isHerald makes the test binary the herald command, for tests of what ends a process.
const isHerald = "HERALD_TEST_IS_HERALD"

func TestMain(m *testing.M) {
	if os.Getenv(isHerald) != "" {
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// heraldProcess is the command as a process of its own, which is killed after a minute.
func heraldProcess(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, "/proc/self/exe", args...)
	command.Env = append(os.Environ(), isHerald+"=1")
	return command
}

// readUntil reads lines up to one with the words.
func readUntil(t *testing.T, from io.Reader, words string) {
	t.Helper()
	for lines := bufio.NewScanner(from); lines.Scan(); {
		if strings.Contains(lines.Text(), words) {
			return
		}
	}
	t.Fatalf("%q was not said", words)
}

func TestASignalEndsACheckThatWaitsForItsInput(t *testing.T) {
	command := heraldProcess(t, "check", write(t, "pod.yaml", goodPod), "-")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := command.StdinPipe(); err != nil { // and nothing is ever written to it
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	readUntil(t, out, "is valid")
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait() // what it says is looked at below
	if ended := command.ProcessState.Sys().(syscall.WaitStatus); ended.Signal() != syscall.SIGTERM {
		t.Errorf("it ended by %v", command.ProcessState)
	}
}

func TestAnAgentOutlivesTheReaderOfItsLog(t *testing.T) {
	folder := shortFolder(t)
	command := heraldProcess(t, "run", "--runtime=process", "--manifests", t.TempDir(), "--data-dir", filepath.Join(folder, "data"))
	log, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	readUntil(t, log, "Herald runs this machine's pods")
	_ = log.Close()
	if err := command.Process.Signal(syscall.SIGTERM); err != nil { // about which it has something to say
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("it ended by %v", err)
	}
}

// shortFolder is a folder for sockets, whose paths must be short.
func shortFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "herald") //nolint:usetesting // that one's name is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}
