package streams_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// syncBuffer collects the output of a command that runs.
type syncBuffer struct {
	mu     sync.Mutex // guards buffer
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(data)
}

// String returns what was written so far.
func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// await waits until the output matches and returns the first group.
func (b *syncBuffer) await(t *testing.T, pattern *regexp.Regexp) string {
	t.Helper()
	for deadline := time.Now().Add(hangTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if match := pattern.FindStringSubmatch(b.String()); match != nil {
			return match[1]
		}
	}
	t.Fatalf("no %s in %q", pattern, b)
	return ""
}

// terminal is a pseudo-terminal.
type terminal struct {
	*os.File // the side of the person
	program  *os.File
	screen   syncBuffer
}

func openTerminal(t *testing.T, rows, columns uint16) *terminal {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	program, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	opened := &terminal{File: person, program: program}
	t.Cleanup(func() { _, _ = program.Close(), person.Close() })
	opened.resize(t, rows, columns)
	return opened
}

func (p *terminal) resize(t *testing.T, rows, columns uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(p.program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		t.Fatal(err)
	}
}

// start starts a command with this terminal.
func (p *terminal) start(command *exec.Cmd) error {
	command.Stdin, command.Stdout, command.Stderr = p.program, p.program, p.program
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := command.Start(); err != nil {
		return err
	}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := p.Read(buffer)
			if err != nil {
				return
			}
			_, _ = p.screen.Write(buffer[:n])
		}
	}()
	return nil
}

func (p *terminal) await(t *testing.T, text string) {
	t.Helper()
	p.screen.await(t, regexp.MustCompile("("+regexp.QuoteMeta(text)+")"))
}

func (p *terminal) output() string { return p.screen.String() }

// repeat types a line every second until a text appears: a container that is not attached yet may lose it.
func (p *terminal) repeat(ctx context.Context, line, until string) {
	for ctx.Err() == nil && !strings.Contains(p.output(), until) {
		_, _ = p.WriteString(line)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
