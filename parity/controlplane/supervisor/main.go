// Command leash cleans up after a control plane whose owner has gone.
//
// It is started by the owner with a pipe as its standard input. When the pipe closes, and it closes however the owner ends,
// leash kills every process that has the given entry in its environment, removes the folder and exits.
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
	pause    = 20 * time.Millisecond
	patience = 30 * time.Second
)

func main() {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: leash ENVIRONMENT_ENTRY FOLDER <pipe\n(started by the control plane itself, not by people)")
		os.Exit(2)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // an error ends the owner's hold as well
	if err := cleanUp(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "leash:", err)
		os.Exit(1)
	}
}

// cleanUp wants two clean rounds in a row: an owner that was killed while it started a server leaves a process that gets
// its environment a moment later.
func cleanUp(entry, folder string) error {
	var err error
	deadline := time.Now().Add(patience)
	for clean := 0; clean < 2; time.Sleep(pause) {
		killed := killAll(entry)
		if err = os.RemoveAll(folder); err == nil && killed == 0 {
			clean++
			continue
		}
		clean = 0
		if time.Now().After(deadline) {
			return errors.Join(err, fmt.Errorf("%d processes with %s are still there after %v", killed, entry, patience))
		}
	}
	return nil
}

// killAll kills the processes that have the entry in their environment, and says how many there were.
func killAll(entry string) (killed int) {
	environments, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is well-formed
	for _, path := range environments {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		// The process is opened before its environment is read: a number that is used again in between kills nobody.
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if environment, err := os.ReadFile(path); err == nil && has(environment, entry) {
			_ = process.Kill() // it may have ended by itself; the next round sees
			killed++
		}
		_ = process.Release()
	}
	return killed
}

// has looks for a whole entry in an environment as /proc writes it.
func has(environment []byte, entry string) bool {
	for _, e := range bytes.Split(environment, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}
	return false
}
