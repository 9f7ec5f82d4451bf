package demo

import (
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
)

// display shows the demo to a user.
type display interface {
	// draw shows the present state.
	draw(s *scene, now time.Time)
	// tell shows that something happened, at that time since the start.
	tell(text string, age time.Duration)
	// begin shows that a step of the story begins, and explain what the agent says about it.
	begin(s *scene, age time.Duration)
	explain(s *scene)
	// resized receives when the state must be drawn again.
	resized() <-chan os.Signal
	// isClosed reports whether the output was closed.
	isClosed() bool
	close()
}

// output is where a display writes to.
type output struct {
	writer io.Writer
	closed bool
}

func (o *output) print(text string) {
	if _, err := io.WriteString(o.writer, text); err != nil {
		o.closed = true
	}
}

func (o *output) isClosed() bool { return o.closed }

// newDisplay returns a live view if the output is a terminal, and one that prints lines otherwise.
func newDisplay(out io.Writer, header []string) display {
	terminalType := os.Getenv("TERM")
	file, isFile := out.(*os.File)
	if isFile && terminalType != "" && terminalType != "dumb" && term.IsTerminal(int(file.Fd())) {
		return newScreen(file)
	}
	return newLines(out, header)
}

// Escape sequences of a terminal.
const (
	useOtherScreen, useMainScreen = "\x1b[?1049h", "\x1b[?1049l"
	hideCursor, showCursor        = "\x1b[?25l", "\x1b[?25h"
	stopWrapping, startWrapping   = "\x1b[?7l", "\x1b[?7h"
	home, clearAll                = "\x1b[H", "\x1b[2J"
	clearLine, clearBelow         = "\x1b[K", "\x1b[J"
)

// screen is the live view of a terminal. It uses the terminal's second screen, so that the first one is as before when it is closed.
type screen struct {
	output

	terminal   *os.File
	isColoured bool
	signals    chan os.Signal
	size       terminalSize
	told       []string // the steps, for the end
}

func newScreen(terminal *os.File) *screen {
	s := &screen{
		output: output{writer: terminal}, terminal: terminal, isColoured: os.Getenv("NO_COLOR") == "", signals: make(chan os.Signal, 1),
	}
	signal.Notify(s.signals, syscall.SIGWINCH)
	s.print(useOtherScreen + hideCursor + stopWrapping + clearAll)
	return s
}

// close restores the terminal and leaves what was told on it.
func (s *screen) close() {
	signal.Stop(s.signals)
	s.print(startWrapping + showCursor + useMainScreen + strings.Join(s.told, ""))
}

func (s *screen) resized() <-chan os.Signal { return s.signals }

func (s *screen) draw(shown *scene, now time.Time) {
	size := s.size
	if columns, rows, err := term.GetSize(int(s.terminal.Fd())); err == nil {
		size = terminalSize{columns, rows}
	}
	var text strings.Builder
	if size != s.size {
		text.WriteString(clearAll)
	}
	s.size = size
	text.WriteString(home)
	for i, line := range shown.frame(size, now) {
		if i > 0 {
			text.WriteString("\r\n")
		}
		text.WriteString(line.render(s.isColoured) + clearLine)
	}
	s.print(text.String() + clearBelow)
}

func (s *screen) begin(shown *scene, age time.Duration) {
	s.told = append(s.told, stepLine(shown, age))
}

func (*screen) tell(string, time.Duration) {}

func (*screen) explain(*scene) {}
