package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// execMessage is read by an exec shim from its first extra descriptor. The first has the command. The end of the file cancels the
// command.
type execMessage struct {
	Command *execRequest `json:"command,omitempty"`
	// HangUp sends SIGHUP to the process group of the command.
	HangUp bool `json:"hangUp,omitempty"`
}

// execRequest is a command to run in a container.
type execRequest struct {
	ID   string   `json:"id"`
	Args []string `json:"arguments"`
	TTY  bool     `json:"tty,omitempty"` // the shim's standard streams are a terminal
}

// execResult is written by an exec shim to its second extra descriptor.
type execResult struct {
	Code  int32  `json:"code"`
	Error string `json:"error,omitempty"` // why the command could not be run
}

// runExecShim runs one command in a container. The command and all its descendants end when the command exits, when the
// server cancels it, or when the server is gone. The standard streams of the shim are the command's.
func runExecShim(dir string) error {
	catchSignals()
	syscall.CloseOnExec(firstExtraFD)
	syscall.CloseOnExec(firstExtraFD + 1)
	messages, results := os.NewFile(firstExtraFD, "messages"), os.NewFile(firstExtraFD+1, "results")
	decoder := json.NewDecoder(messages)
	var first execMessage
	if err := decoder.Decode(&first); err != nil || first.Command == nil {
		return fmt.Errorf("read exec request for %s: %w", dir, errors.Join(err))
	}
	cancelled, hangUps := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(cancelled)
		for {
			var next execMessage
			if decoder.Decode(&next) != nil {
				return
			}
			if next.HangUp {
				hangUps <- struct{}{}
			}
		}
	}()
	result := execResult{}
	waitStatus, err := runExec(dir, *first.Command, cancelled, hangUps)
	if err != nil {
		result.Error = err.Error()
	} else {
		result.Code = exitCode(waitStatus)
	}
	return json.NewEncoder(results).Encode(result)
}

func runExec(dir string, request execRequest, cancelled, hangUps <-chan struct{}) (syscall.WaitStatus, error) {
	command, err := loadCommand(dir)
	if err != nil {
		return 0, err
	}
	command.args, command.tty = request.Args, request.TTY
	command.env = setEnv(command.env, execIDEnv+"="+request.ID)
	if err := becomeSubreaper(); err != nil {
		return 0, err
	}
	if started, err := readRecord[startedRecord](filepath.Join(dir, startedFile)); err == nil {
		joinCgroups(started.Main.PID)
	}
	pid, err := command.start([3]*os.File{os.Stdin, os.Stdout, os.Stderr})
	if err != nil {
		return 0, err
	}
	releaseStdin()
	waitStatus, err := waitChild(pid, cancelled, hangUps)
	return waitStatus, errors.Join(err, killChildren())
}

// releaseStdin makes the command the only reader of its standard input: the server learns when the command has closed it.
func releaseStdin() {
	if null, err := os.Open(os.DevNull); err == nil {
		_ = unix.Dup3(int(null.Fd()), 0, unix.O_CLOEXEC)
		_ = null.Close()
	}
}
