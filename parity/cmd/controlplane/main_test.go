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

// command builds the program and returns how to run it.
func command(t *testing.T) func(args ...string) *exec.Cmd {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "controlplane")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return func(args ...string) *exec.Cmd { return exec.CommandContext(t.Context(), binary, args...) }
}

func TestTheCommandTeachesServesAndCleansUp(t *testing.T) {
	controlplane := command(t)

	t.Run("--help says what it does and how to use it", func(t *testing.T) {
		output, err := controlplane("--help").CombinedOutput()
		if err != nil || !strings.Contains(string(output), "until Ctrl-C") || !strings.Contains(string(output), "-node name") {
			t.Fatalf("%v\n%s", err, output)
		}
	})

	t.Run("an unknown flag or argument is refused", func(t *testing.T) {
		for _, arg := range []string{"--nodes", "start"} {
			var exit *exec.ExitError
			if output, err := controlplane(arg).CombinedOutput(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
				t.Errorf("%s: %v\n%s", arg, err, output)
			}
		}
	})

	t.Run("the printed lines work until Ctrl-C", func(t *testing.T) {
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
		said := bufio.NewReader(output)
		explanation := readUntil(t, said, "Ctrl-C")
		for _, line := range strings.Split(explanation, "\n") {
			if strings.HasPrefix(line, "  ") {
				sh(t, line)
			}
		}
		sh(t, "kubectl --kubeconfig "+dir+"/node-worker.kubeconfig get node worker")

		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(said)
		if err != nil || !strings.Contains(string(rest), "stopped, "+dir+" is removed") {
			t.Errorf("%q, %v", rest, err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder is still there: %v", err)
		}
	})
}

func readUntil(t *testing.T, from *bufio.Reader, word string) (read string) {
	t.Helper()
	for !strings.Contains(read, word) {
		line, err := from.ReadString('\n')
		if err != nil {
			t.Fatalf("it said %q, then %v", read, err)
		}
		read += line
	}
	return read
}

// sh runs a line as its reader would.
func sh(t *testing.T, line string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.WaitDelay = time.Second
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", line, err, output)
	}
}
