package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// A runner runs one command of ExecSync beside a container, and ends all that the command started when it ends, or when
// the server cancels or is gone: the runner reads one request from its first inherited file, then waits for its end.
// The second takes the outcome. Standard output and error are the command's.
type execRequest struct {
	ID        string   `json:"id"`
	Arguments []string `json:"arguments"`
}

// execOutcome is what a runner says last.
type execOutcome struct {
	Code  int32  `json:"code"`
	Error string `json:"error,omitempty"` // the command could not be run
}

func runRunner(folder string) error {
	standFast()
	syscall.CloseOnExec(inherited)
	syscall.CloseOnExec(inherited + 1)
	requests, outcomes := os.NewFile(inherited, "requests"), os.NewFile(inherited+1, "outcomes")
	var request execRequest
	decoder := json.NewDecoder(requests)
	if err := decoder.Decode(&request); err != nil {
		return fmt.Errorf("read the command to run in %s: %w", folder, err)
	}
	cancelled := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, requests)
		close(cancelled)
	}()
	outcome := execOutcome{}
	status, err := runBeside(folder, request, cancelled)
	if err != nil {
		outcome.Error = err.Error()
	} else {
		outcome.Code = exitCode(status)
	}
	return json.NewEncoder(outcomes).Encode(outcome)
}

func runBeside(folder string, request execRequest, cancelled <-chan struct{}) (syscall.WaitStatus, error) {
	record, err := readRecord[containerRecord](filepath.Join(folder, containerFile))
	if err != nil {
		return 0, err
	}
	command, err := commandOf(record, folder)
	if err != nil {
		return 0, err
	}
	command.Arguments = request.Arguments
	command.Environment = setVariable(command.Environment, execVariable+"="+request.ID)
	if err := adoptOrphans(); err != nil {
		return 0, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	pid, err := command.start([3]*os.File{null, os.Stdout, os.Stderr})
	if err != nil {
		return 0, err
	}
	status, err := await(pid, cancelled)
	return status, errors.Join(err, endAllChildren())
}
