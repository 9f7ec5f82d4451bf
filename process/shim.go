package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The words by which the server tells a program that it started again what to be; a folder follows.
const (
	shimWord   = "process-shim"
	runnerWord = "process-exec"
)

// inherited is the first file that the server gives to a shim or runner beyond the standard ones.
const inherited = 3

// IsShim reports whether this program was started as the shim of a container. Then main must call ShimMain, before it
// does anything else.
func IsShim() bool { return shimRole() != "" }

func shimRole() string {
	if len(os.Args) < 3 {
		return ""
	}
	if word := os.Args[len(os.Args)-2]; word == shimWord || word == runnerWord {
		return word
	}
	return ""
}

// ShimMain supervises a container, or a command in one, and ends the program.
func ShimMain() {
	folder := os.Args[len(os.Args)-1]
	run := runShim
	if shimRole() == runnerWord {
		run = runRunner
	}
	if err := run(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// standFast keeps signals that are meant for the agent's terminal or service from ending this process. They are caught
// and not ignored, because a child would inherit the latter.
func standFast() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE)
}

// runShim starts the container of that folder, and stays until it and all that it started has ended.
func runShim(folder string) error {
	standFast()
	syscall.CloseOnExec(inherited)
	alive := os.NewFile(inherited, aliveFile)
	defer alive.Close()
	exit := supervise(folder, func() { lookAgain(alive) })
	if err := writePatiently(filepath.Join(folder, exitFile), exit); err != nil {
		return err
	}
	lookAgain(alive)
	return nil
}

// writingTime is how long an end that cannot be written down is tried again: nobody else knows the exit code (F17).
const writingTime = time.Minute

func writePatiently(file string, exit exitRecord) error {
	limit := time.Now().Add(writingTime)
	for pause := firstLookAgain; ; pause = min(2*pause, longestLookAgain) {
		err := writeRecord(file, exit)
		if err == nil || errors.Is(err, fs.ErrNotExist) || time.Now().After(limit) {
			return err
		}
		time.Sleep(pause)
	}
}

// lookAgain tells the server, if there is one, that a record was written. The FIFO has room for more than is ever said.
func lookAgain(alive *os.File) { _, _ = alive.Write([]byte{'\n'}) }

// supervise runs the container and calls started when that is on record.
func supervise(folder string, started func()) exitRecord {
	output, err := newOutput(folder)
	if err != nil {
		return startFailed(err)
	}
	pid, err := output.start()
	if err != nil {
		return startFailed(err)
	}
	recording := recordStart(folder, pid)
	cancelled := make(chan struct{})
	if recording != nil {
		close(cancelled) // a container that nobody could find again must not run
	} else {
		started()
	}
	status, waiting := await(pid, cancelled)
	finished := time.Now()
	if err := errors.Join(recording, waiting, endAllChildren()); err != nil {
		return startFailed(err)
	}
	output.drain()
	return exitOf(status, finished)
}

func recordStart(folder string, pid int) error {
	main, err := identify(pid)
	if err != nil {
		return err
	}
	shim, err := identify(os.Getpid())
	if err != nil {
		return err
	}
	return writeRecord(filepath.Join(folder, startedFile), startedRecord{Started: time.Now(), Main: main, Shim: shim})
}

func startFailed(err error) exitRecord {
	return exitRecord{Finished: time.Now(), Code: codeStartError, Reason: reasonStartError, Message: err.Error()}
}

func exitOf(status syscall.WaitStatus, finished time.Time) exitRecord {
	exit := exitRecord{Finished: finished, Code: exitCode(status), Reason: reasonError}
	if exit.Code == 0 {
		exit.Reason = reasonCompleted
	}
	return exit
}

// output is a container's command with its log, and the pipes between them.
type output struct {
	command        command
	log            *logFile
	stdout, stderr *os.File
	copies         sync.WaitGroup
}

func newOutput(folder string) (*output, error) {
	record, err := readRecord[containerRecord](filepath.Join(folder, containerFile))
	if err != nil {
		return nil, err
	}
	command, err := commandOf(record, folder)
	if err != nil {
		return nil, err
	}
	log, err := openLog(record.LogPath)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return &output{command: command, log: log}, adoptOrphans()
}

func (o *output) start() (pid int, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	stdout, toStdout, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer toStdout.Close()
	stderr, toStderr, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer toStderr.Close()
	pid, err = o.command.start([3]*os.File{null, toStdout, toStderr})
	if err != nil {
		return 0, err
	}
	o.stdout, o.stderr = stdout, stderr
	o.copies.Go(func() { o.log.copy(runtimeapi.Stdout, stdout) })
	o.copies.Go(func() { o.log.copy(runtimeapi.Stderr, stderr) })
	return pid, nil
}

// drainTime is how long the rest of the output may take to reach the log. Only a pipe that was handed to a process
// outside of the container is still open by then.
const drainTime = 10 * time.Second

func (o *output) drain() {
	limit := time.Now().Add(drainTime)
	for _, pipe := range []*os.File{o.stdout, o.stderr} {
		_ = pipe.SetReadDeadline(limit) // a pipe that cannot have one is at its end soon enough
	}
	o.copies.Wait()
}
