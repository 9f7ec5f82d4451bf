package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
)

// streamFlags say how a command is connected with the terminal of its user, as kubectl's.
type streamFlags struct {
	containerFlags

	stdin, tty bool
}

// streams are the standard streams of this command.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// options returns the streams to pass on. If a terminal is asked for and input comes from one, it is a raw terminal's.
func (f *streamFlags) options(s streams) (options client.StreamOptions, terminal *rawTerminal) {
	options = client.StreamOptions{Stdout: s.out, Stderr: s.err}
	if !f.stdin {
		return options, nil // without input, a terminal is of no use
	}
	options.Stdin = s.in
	if !f.tty {
		return options, nil
	}
	file, isFile := s.in.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		if !f.quiet {
			fmt.Fprintln(s.err, "Unable to use a TTY - input is not a terminal or the right kind of file")
		}
		return options, nil
	}
	terminal = &rawTerminal{in: file, sizes: make(chan client.TerminalSize, 2)}
	if out, isFile := s.out.(*os.File); isFile && term.IsTerminal(int(out.Fd())) {
		terminal.out = out
	}
	options.Tty, options.Stderr, options.TerminalSizeQueue = true, nil, terminal
	return options, terminal
}

// rawTerminal is a terminal whose keys are passed on as they are.
type rawTerminal struct {
	in    *os.File
	out   *os.File // nil if the output is no terminal
	sizes chan client.TerminalSize
}

// Next implements remotecommand.TerminalSizeQueue.
func (t *rawTerminal) Next() *client.TerminalSize {
	size, isOpen := <-t.sizes
	if !isOpen {
		return nil
	}
	return &size
}

func (t *rawTerminal) size() (size client.TerminalSize, isKnown bool) {
	if t.out == nil {
		return size, false
	}
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil {
		return size, false
	}
	return client.TerminalSize{Width: uint16(width), Height: uint16(height)}, true //nolint:gosec // the kernel has 16 bits
}

// run calls stream in raw mode and tells it the sizes of the terminal. The terminal is restored also if a signal ends it. A nil
// terminal changes nothing.
func (t *rawTerminal) run(ctx context.Context, stream func(context.Context) error) error {
	if t == nil {
		return stream(ctx)
	}
	fd := int(t.in.Fd())
	state, err := term.MakeRaw(fd)
	if err != nil {
		return fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	defer func() { _ = term.Restore(fd, state) }()
	ctx, stop := withSignals(ctx)
	defer stop()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	ended := make(chan struct{})
	defer close(ended)
	go t.watchSize(resized, ended)
	err = stream(ctx)
	if ctx.Err() != nil {
		return errNo // a signal; nothing to say
	}
	return err
}

// watchSize sends each size that the terminal gets.
func (t *rawTerminal) watchSize(resized <-chan os.Signal, ended <-chan struct{}) {
	for {
		if size, isKnown := t.size(); isKnown {
			select {
			case t.sizes <- size:
			case <-ended:
				return
			}
		}
		select {
		case <-resized:
		case <-ended:
			return
		}
	}
}
