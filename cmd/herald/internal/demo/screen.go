package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/table"
)

// screen shows the pods: as a table that changes in place on a terminal, as one line for each change elsewhere.
type screen struct {
	out   io.Writer
	live  bool
	head  string
	shown map[string]string // the line last shown of each pod
	gone  bool              // nobody reads any more
}

func (s *screen) print(text string) {
	if _, err := io.WriteString(s.out, text); err != nil {
		s.gone = true
	}
}

func newScreen(out io.Writer, head string) *screen {
	s := &screen{out: out, head: head, shown: map[string]string{}}
	if file, isFile := out.(*os.File); isFile && os.Getenv("TERM") != "dumb" {
		_, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
		s.live = err == nil
	}
	if !s.live {
		s.print(head)
	}
	return s
}

// draw shows all pods on a terminal.
func (s *screen) draw(pods []*v1.Pod, now time.Time) {
	if !s.live {
		return
	}
	var text strings.Builder
	text.WriteString(s.head)
	rows := make([]table.Row, 0, len(pods))
	for _, p := range pods {
		rows = append(rows, table.Of(p, now))
	}
	_ = table.NewPrinter(&text, table.Options{}).Print(rows...)
	const home, clearLine, clearBelow = "\x1b[H", "\x1b[K", "\x1b[J"
	s.print(home + strings.ReplaceAll(text.String(), "\n", clearLine+"\n") + clearBelow)
}

// tell shows that a pod changed where there is no terminal.
func (s *screen) tell(p *v1.Pod, since time.Duration, now time.Time) {
	if s.live {
		return
	}
	row := table.Of(p, now)
	restarts, _, _ := strings.Cut(row.Restarts, " ")
	line := fmt.Sprintf("%-12s %-5s %-18s restarts %s", row.Name, row.Ready, row.Status, restarts)
	if s.shown[row.Name] == line {
		return
	}
	s.shown[row.Name] = line
	s.print(fmt.Sprintf("%5.1fs  %s\n", since.Seconds(), line))
}

// clear makes room on a terminal.
func (s *screen) clear() {
	if s.live {
		s.print("\x1b[2J")
	}
}
