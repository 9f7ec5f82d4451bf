// Package stall tells when processes stall for lack of a resource, by the kernel's pressure stall information (PSI).
package stall

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Memory is the kernel's file about stalls for lack of memory, anywhere on the machine.
const Memory = "/proc/pressure/memory"

// Window is the time over which the kernel adds up stalls. It tells at most once in each. Without CAP_SYS_RESOURCE it must be a multiple
// of two seconds.
const Window = 2 * time.Second

// Watch calls wake whenever some process has stalled for longer than the threshold within Window, until ctx ends. It returns an error if
// the kernel does not have the file, or does not let the process watch it. Waiting costs nothing.
func Watch(ctx context.Context, file string, threshold time.Duration, wake func()) error {
	fd, err := unix.Open(file, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", file, err)
	}
	defer unix.Close(fd)
	trigger := fmt.Sprintf("some %d %d\x00", threshold.Microseconds(), Window.Microseconds())
	if _, err := unix.Write(fd, []byte(trigger)); err != nil {
		return fmt.Errorf("watch %s: %w", file, err)
	}
	ended, end, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("watch %s: %w", file, err)
	}
	defer ended.Close()
	stop := context.AfterFunc(ctx, func() { _ = end.Close() })
	defer func() {
		if stop() {
			_ = end.Close()
		}
	}()
	for {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}, {Fd: int32(ended.Fd()), Events: unix.POLLIN}} //nolint:gosec // descriptors
		_, err := unix.Poll(polled, -1)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("watch %s: %w", file, err)
		case polled[0].Revents&unix.POLLERR != 0:
			return fmt.Errorf("watch %s: the kernel has ended it", file)
		case polled[0].Revents&unix.POLLPRI != 0:
			wake()
		}
	}
}
