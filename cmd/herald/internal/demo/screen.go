package demo

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/internal/table"
)

// screen shows the pods: as a table that changes in place on a terminal, as one line for each change elsewhere.
type screen struct {
	out      io.Writer
	terminal *os.File // nil: there is none
	resized  chan os.Signal
	head     []string
	shown    map[string]string // the line last shown of each pod
	gone     bool              // nobody reads any more
}

func newScreen(out io.Writer, head []string) *screen {
	s := &screen{out: out, head: head, shown: map[string]string{}, resized: make(chan os.Signal, 1)}
	kind := os.Getenv("TERM")
	if file, isFile := out.(*os.File); isFile && kind != "" && kind != "dumb" {
		if _, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ); err == nil {
			s.terminal = file
		}
	}
	if s.terminal == nil {
		s.print(strings.Join(head, "\n") + "\n")
		return s
	}
	signal.Notify(s.resized, syscall.SIGWINCH)
	s.print("\x1b[2J")
	return s
}

func (s *screen) close() { signal.Stop(s.resized) }

func (s *screen) print(text string) {
	if _, err := io.WriteString(s.out, text); err != nil {
		s.gone = true
	}
}

// draw shows all pods on a terminal, and below them what happened last.
func (s *screen) draw(pods []*v1.Pod, events []v1.Event, now time.Time) {
	if s.terminal == nil {
		return
	}
	var size view
	if window, err := unix.IoctlGetWinsize(int(s.terminal.Fd()), unix.TIOCGWINSZ); err == nil {
		size = view{int(window.Col), int(window.Row)}
	}
	const home, clearLine, clearBelow = "\x1b[H", "\x1b[K", "\x1b[J"
	lines := size.fit(s.head, podLines(pods, now), eventLines(events, now))
	s.print(home + strings.Join(lines, clearLine+"\n") + clearLine + "\n" + clearBelow)
}

// tell shows that a pod changed where there is no terminal.
func (s *screen) tell(change watch.Event, since time.Duration, now time.Time) {
	if s.terminal != nil {
		return
	}
	row := table.NewRow(change.Object.(*v1.Pod), now)
	restarts, _, _ := strings.Cut(row.Restarts, " ")
	line := fmt.Sprintf("%-12s %-5s %-18s restarts %s", row.Name, row.Ready, row.Status, restarts)
	if change.Type == watch.Deleted {
		line = fmt.Sprintf("%-12s gone", row.Name)
	}
	if s.shown[row.Name] == line {
		return
	}
	s.shown[row.Name] = line
	s.print(fmt.Sprintf("%5.1fs  %s\n", since.Seconds(), line))
}
