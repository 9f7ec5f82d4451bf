package checkpoint

import (
	"errors"
	"fmt"
)

// Why a checkpoint was refused. Each error of Load about a file's content wraps exactly one of the first four in a
// *InvalidFileError; a checkpoint that does not exist is fs.ErrNotExist.
var (
	ErrCorrupt  = errors.New("is corrupt")
	ErrForeign  = errors.New("is something else")
	ErrVersion  = errors.New("has another version")
	ErrTooLarge = errors.New("is too large")

	ErrInvalidName    = errors.New("not a checkpoint's name: want at most 100 letters, digits, - and _, the first a letter or digit")
	ErrInvalidVersion = errors.New("not a payload's version: want 1 or more")
)

// InvalidFileError tells of a checkpoint that cannot be used, and where it was put so that nothing overwrites it.
type InvalidFileError struct {
	Path    string // the checkpoint
	Reason  error  // wraps one of ErrCorrupt, ErrForeign, ErrVersion, ErrTooLarge
	MovedTo string // where the file is now; empty when it could not be moved and is still at Path
	MoveErr error  // why it could not be moved
}

func (e *InvalidFileError) Error() string {
	if e.MoveErr != nil {
		return fmt.Sprintf("checkpoint %s %v, and cannot be set aside: %v", e.Path, e.Reason, e.MoveErr)
	}
	return fmt.Sprintf("checkpoint %s %v; kept as %s", e.Path, e.Reason, e.MovedTo)
}

// Unwrap makes errors.Is find the reason, and what the disk said.
func (e *InvalidFileError) Unwrap() []error {
	if e.MoveErr != nil {
		return []error{e.Reason, e.MoveErr}
	}
	return []error{e.Reason}
}

// LockedError tells that another process holds the folder (F30).
type LockedError struct {
	Path string
	PID  int // 0 when the holder could not write it down
}

func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID != 0 {
		holder = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("data folder %s is in use by %s: stop it, or choose another folder", e.Path, holder)
}
