package main_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// buildCommand builds the program and returns a function that runs it.
func buildCommand(t *testing.T) func(args ...string) *exec.Cmd {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "controlplane")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return func(args ...string) *exec.Cmd { return exec.CommandContext(t.Context(), binary, args...) }
}

func TestCommand(t *testing.T) {
	controlplane := buildCommand(t)

	t.Run("help", func(t *testing.T) {
		output, err := controlplane("--help").CombinedOutput()
		if err != nil || !strings.Contains(string(output), "until Ctrl-C") || !strings.Contains(string(output), "-node name") {
			t.Fatalf("%v\n%s", err, output)
		}
	})

	t.Run("unknown flag or argument", func(t *testing.T) {
		for _, arg := range []string{"--nodes", "start"} {
			var exit *exec.ExitError
			if output, err := controlplane(arg).CombinedOutput(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
				t.Errorf("%s: %v\n%s", arg, err, output)
			}
		}
	})

	t.Run("printed commands work until Ctrl-C", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "cp")
		cmd := controlplane("--dir", dir, "--node", "worker")
		cmd.Stderr = os.Stderr
		output, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(output)
		instructions := readUntil(t, reader, "Ctrl-C")
		for _, line := range strings.Split(instructions, "\n") {
			if strings.HasPrefix(line, "  ") {
				runShell(t, line)
			}
		}
		runShell(t, "kubectl --kubeconfig "+dir+"/node-worker.kubeconfig get node worker")

		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(reader)
		if err != nil || !strings.Contains(string(rest), "removed "+dir) {
			t.Errorf("got %q, %v; want the removal of %s", rest, err, dir)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("directory still exists: %v", err)
		}
	})
}

func readUntil(t *testing.T, reader *bufio.Reader, word string) (read string) {
	t.Helper()
	for !strings.Contains(read, word) {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatalf("got %q, then %v", read, err)
		}
		read += line
	}
	return read
}

// runShell runs a line as a user would.
func runShell(t *testing.T, line string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.WaitDelay = time.Second
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", line, err, output)
	}
}
