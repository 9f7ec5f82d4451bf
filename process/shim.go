package process

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/internal/permission"
)

// The roles of a shim, given as the first of two arguments. The second is the container's directory.
const (
	containerRole = "process-shim" // supervises a container
	execRole      = "process-exec" // supervises a command in a container
)

// firstExtraFD is the first descriptor that a shim inherits besides the standard streams.
const firstExtraFD = 3

// IsShim reports whether this program was started as a shim. If so, main must call ShimMain before anything else.
func IsShim() bool { return shimRole() != "" }

// shimRole accepts the exact form of Server.spawn only: a role must not hide among the arguments of another command.
func shimRole() string {
	if len(os.Args) != 3 {
		return ""
	}
	if role := os.Args[1]; role == containerRole || role == execRole {
		return role
	}
	return ""
}

// ShimMain supervises a container, or a command in a container, and exits the program.
func ShimMain() {
	dir := os.Args[2]
	check, run := checkContainerDescriptors, runShim
	if shimRole() == execRole {
		check, run = checkExecDescriptors, runExecShim
	}
	err := errors.Join(checkContainerDir(dir), check(dir))
	if err == nil {
		err = run(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// checkContainerDir returns an error if other users can decide what the shim executes.
func checkContainerDir(dir string) error {
	permissions := permission.New("execute commands as this user")
	record := filepath.Join(dir, containerFile)
	var stat unix.Stat_t
	if err := unix.Lstat(record, &stat); err != nil {
		return &fs.PathError{Op: "lstat", Path: record, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%s is not a regular file", record)
	}
	return errors.Join(permissions.CheckFile(dir), permissions.CheckFile(record))
}

var errNotStartedByAgent = errors.New("only the agent starts shims: the descriptors that it passes are missing")

// checkContainerDescriptors returns an error unless the shim inherited the container's FIFO.
func checkContainerDescriptors(dir string) error {
	var alive, inherited unix.Stat_t
	if unix.Lstat(filepath.Join(dir, aliveFile), &alive) != nil || unix.Fstat(firstExtraFD, &inherited) != nil ||
		inherited.Mode&unix.S_IFMT != unix.S_IFIFO || inherited.Dev != alive.Dev || inherited.Ino != alive.Ino {
		return errNotStartedByAgent
	}
	return nil
}

// checkExecDescriptors returns an error unless the shim inherited the pipes of requests and results.
func checkExecDescriptors(string) error {
	for _, fd := range []int{firstExtraFD, firstExtraFD + 1} {
		var stat unix.Stat_t
		if unix.Fstat(fd, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
			return errNotStartedByAgent
		}
	}
	return nil
}

// catchSignals keeps signals that are meant for the agent's terminal or service from ending the shim. They are caught
// rather than ignored because children inherit ignored signals.
func catchSignals() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE)
}

// runShim starts the container and returns when it and all its processes have exited.
func runShim(dir string) error {
	catchSignals()
	syscall.CloseOnExec(firstExtraFD)
	alive := os.NewFile(firstExtraFD, aliveFile)
	defer alive.Close()
	exit := runContainer(dir, func() { notifyServer(alive) })
	if err := writeExitRecord(filepath.Join(dir, exitFile), exit); err != nil {
		return err
	}
	notifyServer(alive)
	return nil
}

// exitRecordTimeout is how long writing the exit record is retried: only the shim knows the exit code (F17).
const exitRecordTimeout = time.Minute

func writeExitRecord(file string, exit exitRecord) error {
	deadline := time.Now().Add(exitRecordTimeout)
	for pause := minRetryInterval; ; pause = min(2*pause, maxRetryInterval) {
		err := writeRecord(file, exit)
		if err == nil || errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

// notifyServer makes the server, if one runs, read the records. The FIFO's buffer holds all notifications of a shim.
func notifyServer(alive *os.File) { _, _ = alive.Write([]byte{'\n'}) }

// runContainer runs the container and calls started when started.json is written.
func runContainer(dir string, started func()) exitRecord {
	if slice := os.Getenv(sliceEnv); slice != "" {
		if err := enterScope(slice, filepath.Base(dir)); err != nil {
			return startErrorRecord(err)
		}
	}
	process, err := newContainerProcess(dir)
	if err != nil {
		return startErrorRecord(err)
	}
	pid, err := process.start()
	if err != nil {
		return startErrorRecord(err)
	}
	recordErr := recordStart(dir, pid)
	cancelled := make(chan struct{})
	if recordErr != nil {
		close(cancelled) // without a record, no server could find the container
	} else {
		started()
	}
	waitStatus, waitErr := waitChild(pid, cancelled, nil)
	finished := time.Now()
	if err := errors.Join(recordErr, waitErr, killChildren()); err != nil {
		return startErrorRecord(err)
	}
	process.drain()
	return newExitRecord(waitStatus, finished)
}

func recordStart(dir string, pid int) error {
	main, err := identify(pid)
	if err != nil {
		return err
	}
	shim, err := identify(os.Getpid())
	if err != nil {
		return err
	}
	return writeRecord(filepath.Join(dir, startedFile), startedRecord{Started: time.Now(), Main: main, Shim: shim})
}

func startErrorRecord(err error) exitRecord {
	return exitRecord{Finished: time.Now(), Code: exitCodeStartError, Reason: exitReasonStartError, Message: err.Error()}
}

func newExitRecord(waitStatus syscall.WaitStatus, finished time.Time) exitRecord {
	exit := exitRecord{Finished: finished, Code: exitCode(waitStatus), Reason: exitReasonError}
	if exit.Code == 0 {
		exit.Reason = exitReasonCompleted
	}
	return exit
}

// exitCode returns the exit code as shells and containerd report it.
func exitCode(waitStatus syscall.WaitStatus) int32 {
	if waitStatus.Signaled() {
		return 128 + int32(waitStatus.Signal())
	}
	return int32(waitStatus.ExitStatus())
}

// containerProcess is a container's command with its log, the clients that are attached to it, and the pipes or the terminal between
// them.
type containerProcess struct {
	command     command
	log         *logWriter
	attachments attachments
	listener    net.Listener // of clients that attach; nil if there can be none
	outputs     outputFiles
	copies      sync.WaitGroup
}

func newContainerProcess(dir string) (*containerProcess, error) {
	command, err := loadCommand(dir)
	if err != nil {
		return nil, err
	}
	log, err := newLogWriter(command.logPath)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	p := &containerProcess{command: command, log: log}
	p.attachments = attachments{stdinOnce: command.stdinOnce, followers: map[*follower]struct{}{}}
	if p.listener, err = listenAttach(dir); err != nil {
		fmt.Fprintln(os.Stderr, "nobody can attach to this container:", err)
	}
	return p, becomeSubreaper()
}

func (p *containerProcess) start() (pid int, err error) {
	start := p.startWithPipes
	if p.command.tty {
		start = p.startAtTerminal
	}
	if pid, err = start(); err != nil {
		return 0, err
	}
	if p.listener != nil {
		go p.attachments.serve(p.listener)
	}
	return pid, nil
}

func (p *containerProcess) startWithPipes() (pid int, err error) {
	stdin, err := p.openStdin()
	if err != nil {
		return 0, err
	}
	defer stdin.Close()
	stdout, stdoutWriter, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer stdoutWriter.Close()
	stderr, stderrWriter, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer stderrWriter.Close()
	pid, err = p.command.start([3]*os.File{stdin, stdoutWriter, stderrWriter})
	if err != nil {
		return 0, err
	}
	p.copyOutput(runtimeapi.Stdout, stdoutChannel, stdout)
	p.copyOutput(runtimeapi.Stderr, stderrChannel, stderr)
	return pid, nil
}

func (p *containerProcess) startAtTerminal() (pid int, err error) {
	master, terminal, err := openPTY()
	if err != nil {
		return 0, err
	}
	defer terminal.Close()
	pid, err = p.command.start([3]*os.File{terminal, terminal, terminal})
	if err != nil {
		return 0, err
	}
	p.attachments.terminal = master
	if p.command.stdin {
		p.attachments.stdin = master
	}
	p.copyOutput(runtimeapi.Stdout, stdoutChannel, master)
	return pid, nil
}

// openStdin returns what the container reads: what clients send, or nothing.
func (p *containerProcess) openStdin() (*os.File, error) {
	if !p.command.stdin {
		return os.Open(os.DevNull)
	}
	reader, writer, err := os.Pipe()
	p.attachments.stdin = writer
	return reader, err
}

// copyOutput copies a stream of the container to its log and to clients, whole lines to the log, everything at once to clients.
func (p *containerProcess) copyOutput(stream runtimeapi.LogStreamType, channel byte, from *os.File) {
	output := p.outputs.add(from)
	p.copies.Go(func() { p.log.copy(stream, io.TeeReader(output, p.attachments.writer(channel))) })
}

func (p *containerProcess) drain() {
	p.outputs.processExited()
	p.copies.Wait()
}

// becomeSubreaper makes this process the parent of descendants whose own parent exits, so that none escapes.
func becomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	return nil
}

var errCancelled = errors.New("cancelled")

// waitChild reaps children until the given one has exited or cancelled is closed, and sends it SIGHUP on each hang-up. One
// goroutine both reaps and kills, so a PID is never reused between the two.
func waitChild(pid int, cancelled, hangUps <-chan struct{}) (syscall.WaitStatus, error) {
	childExits := make(chan os.Signal, 1)
	signal.Notify(childExits, syscall.SIGCHLD)
	defer signal.Stop(childExits)
	for {
		waitStatus, found, err := reapUntil(pid)
		if found || err != nil {
			return waitStatus, err
		}
		select {
		case <-childExits:
		case <-hangUps:
			_ = syscall.Kill(-pid, syscall.SIGHUP) // its group exists until it is reaped
		case <-cancelled:
			return 0, errCancelled
		}
	}
}

// reapUntil reaps exited children up to and including the given one.
func reapUntil(pid int) (waitStatus syscall.WaitStatus, found bool, err error) {
	for {
		reaped, err := syscall.Wait4(-1, &waitStatus, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, false, fmt.Errorf("wait for process %d: %w", pid, err)
		case reaped == pid:
			return waitStatus, true, nil
		case reaped == 0:
			return 0, false, nil
		}
	}
}

// Pauses between attempts to kill processes. They grow because processes of another user, from a set-user-ID program,
// cannot be killed.
const (
	minRetryInterval = time.Millisecond
	maxRetryInterval = time.Second
)

// killChildren kills every child, and every descendant once it becomes a child, and returns when there is none.
func killChildren() error {
	for pause := minRetryInterval; ; pause = min(2*pause, maxRetryInterval) {
		none, err := reapAll()
		if none || err != nil {
			return err
		}
		killDirectChildren()
		time.Sleep(pause)
	}
}

// reapAll reaps exited children and reports whether no child is left.
func reapAll() (none bool, err error) {
	for {
		reaped, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ECHILD):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("wait for children: %w", err)
		case reaped == 0:
			return false, nil
		}
	}
}

// killDirectChildren kills direct children only: their PIDs are not reused until this process reaps them. Orphans become
// direct children, so repeated calls reach all descendants, even if some could not be listed this time.
func killDirectChildren() {
	stats, _ := listProcesses()
	for _, stat := range stats {
		if stat.PPID == os.Getpid() && !hasExited(stat) {
			_ = syscall.Kill(stat.PID, syscall.SIGKILL)
		}
	}
}
