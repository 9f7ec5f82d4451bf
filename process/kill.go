package process

import (
	"errors"
	"log/slog"
	"os"
	"syscall"
	"time"
)

// killWithin kills until nothing is found, or for that long: what belongs to another user is not waited for.
func (s *Server) killWithin(limit time.Duration, variable string, started *startedRecord) {
	end := time.Now().Add(limit)
	for pause := firstLookAgain; s.killFound(variable, started) && time.Now().Before(end); pause = min(2*pause, longestLookAgain) {
		time.Sleep(pause)
	}
}

// killFound kills the processes with that variable, and the group of a container that was started. It reports whether there
// may have been one that was alive.
func (s *Server) killFound(variable string, started *startedRecord) bool {
	marked, err := killMarked(variable)
	grouped, groupErr := killGroup(started)
	if err = errors.Join(err, groupErr); err != nil {
		s.config.Logger.Error("Processes of a container cannot be looked for", slog.Any("error", err))
	}
	return marked || grouped || err != nil
}

// killGroup kills the container's first process with its group, and reports whether that process was alive.
func killGroup(started *startedRecord) (found bool, err error) {
	if started == nil {
		return false, nil
	}
	if found, err = started.Main.exists(); !found || err != nil {
		return false, err
	}
	_ = syscall.Kill(-started.Main.PID, syscall.SIGKILL) // it just ended
	main, err := readStat(started.Main.PID)
	return err == nil && !main.ended(), unlessAbsent(err)
}

// killMarked kills every process with that variable, and reports whether there was one. A random ID in the environment is
// nobody else's, whatever PIDs were used again; the process is held by a handle between look and kill.
func killMarked(variable string) (found bool, err error) {
	all, err := processes()
	for _, one := range all {
		if one.ended() {
			continue
		}
		has, unknown := hasVariable(one.pid, variable)
		err = errors.Join(err, unknown)
		if has && killHeld(one.pid, variable) {
			found = true
		}
	}
	return found, err
}

// killHeld kills a process if it still has the variable when it cannot be another any more.
func killHeld(pid int, variable string) bool {
	handle, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	has, err := hasVariable(pid, variable)
	if has {
		_ = handle.Kill() // it ended, or belongs to another user
	}
	_ = handle.Release()
	return has || err != nil
}
