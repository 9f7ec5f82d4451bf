// Command supervisor cleans up after a control plane when its owner has ended.
//
// The owner starts it with a pipe as standard input. When the pipe closes, and it closes however the owner ends, supervisor kills
// every process that has the given variable in its environment, removes the directory and exits.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	interval = 20 * time.Millisecond
	timeout  = 30 * time.Second
)

func main() {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: supervisor ENVIRONMENT_VARIABLE DIRECTORY <pipe\n(internal, started by the control plane)")
		os.Exit(2)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // an error means that the owner has ended, too
	if err := cleanUp(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "supervisor:", err)
		os.Exit(1)
	}
}

// cleanUp requires two clean passes in a row: if the owner was killed while it started a server, the new process gets its
// environment a moment later.
func cleanUp(variable, dir string) error {
	var err error
	deadline := time.Now().Add(timeout)
	for clean := 0; clean < 2; time.Sleep(interval) {
		killed := killAll(variable)
		if err = os.RemoveAll(dir); err == nil && killed == 0 {
			clean++
			continue
		}
		clean = 0
		if time.Now().After(deadline) {
			return errors.Join(err, fmt.Errorf("%d processes with %s still run after %v", killed, variable, timeout))
		}
	}
	return nil
}

// killAll kills the processes that have the variable in their environment, and returns their number.
func killAll(variable string) (killed int) {
	environments, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
	for _, path := range environments {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		// The process is opened before its environment is read, so that a reused PID is never killed.
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if environment, err := os.ReadFile(path); err == nil && contains(environment, variable) {
			_ = process.Kill() // the next pass shows whether it worked
			killed++
		}
		_ = process.Release()
	}
	return killed
}

// contains reports whether an environment in the format of /proc contains the variable.
func contains(environment []byte, variable string) bool {
	for entry := range bytes.SplitSeq(environment, []byte{0}) {
		if string(entry) == variable {
			return true
		}
	}
	return false
}
