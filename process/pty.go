package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// openPTY returns both ends of a new pseudo-terminal. A process gets the terminal; what it writes there is read from master.
func openPTY() (master, terminal *os.File, err error) {
	// O_NONBLOCK makes reads of master end when it is closed.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	terminal, err = openTerminal(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd), "/dev/ptmx"), terminal, nil
}

func openTerminal(master int) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("unlock the terminal: %w", err)
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return nil, fmt.Errorf("get the terminal's number: %w", err)
	}
	path := fmt.Sprintf("/dev/pts/%d", number)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// setTerminalSize tells the processes at the terminal its size.
func setTerminalSize(master *os.File, size remotecommand.TerminalSize) {
	connection, err := master.SyscallConn()
	if err != nil {
		return
	}
	_ = connection.Control(func(fd uintptr) { // fails once the session has ended
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
	})
}
