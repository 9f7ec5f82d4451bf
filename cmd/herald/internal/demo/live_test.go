package demo_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/cmd/herald/internal/demo"
)

var update = flag.Bool("update", false, "write docs/demo.svg from what the test saw")

// liveDemo is a demo that a user runs in a terminal.
type liveDemo struct {
	command          *exec.Cmd
	master, terminal *os.File
	read             sync.WaitGroup
	frames           chan struct{} // has a value after a frame

	mu       sync.Mutex // guards the fields below
	emulator *emulator
	seen     map[int][][]cell // the screens of the steps
	last     map[int]string   // the last screen of each step
}

// startLive starts a demo whose output, input and Ctrl-C are those of a pseudo terminal.
func startLive(t *testing.T, dir string, columns, rows int, environment ...string) *liveDemo {
	t.Helper()
	master, terminal := openTerminal(t, uint16(columns), uint16(rows))
	l := &liveDemo{
		master: master, terminal: terminal, frames: make(chan struct{}, 1), emulator: newEmulator(columns, rows), seen: map[int][][]cell{},
		last: map[int]string{},
	}
	l.emulator.frame = l.look
	l.command = exec.CommandContext(t.Context(), "/proc/self/exe", "demo")
	l.command.Args[0] = "herald"
	l.command.Env = append(os.Environ(), append([]string{"TMPDIR=" + dir, "TERM=xterm", "NO_COLOR="}, environment...)...)
	l.command.Stdin, l.command.Stdout, l.command.Stderr = terminal, terminal, terminal
	l.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := l.command.Start(); err != nil {
		t.Fatal(err)
	}
	l.read.Go(func() { _, _ = io.Copy(l, master) })
	t.Cleanup(func() {
		_ = l.command.Process.Kill()
		_, _ = l.command.Process.Wait()
		_ = terminal.Close()
		_ = master.Close()
		l.read.Wait()
	})
	return l
}

// Write receives what the demo writes.
func (l *liveDemo) Write(output []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.emulator.Write(output)
}

// expectedViews has what the screen shows at one time in each step.
var expectedViews = [demo.StepCount][]string{
	{`Herald runs four pods`, `In a browser: http://127\.0\.0\.1:\d+/#c=\w+`, `NAME +READY +STATUS +WHY`, `job-demo +1/1 +Running`, `Try +herald get pods -w -s`},
	{
		// Worst first.
		`NAME.*\ncart-demo +0/1 +CrashLoopBackOff +server exits 1 after`, `CrashBackOff +firing +cart-demo`, `\$ herald explain cart-demo`,
		`! cart-demo is not Ready`, `> start .* by herald`, `= an edit of the container starts it at once`, `\| cannot open the database at db\.example`,
		`Try +herald explain cart-demo -s 127`,
	},
	{`slow-demo +0/1 +Running`, `job-demo +0/1 +Completed +succeeded`, `\$ herald explain slow-demo`, `! slow-demo is not Ready`},
	{`web-demo +0/1 +Running`, `WebNotReady +firing +web-demo`, `! web-demo is not Ready: readiness probe`, `statuscode: 503`},
	{`web-demo +1/1 +Running +ready since`, `WebNotReady +resolved +web-demo`},
	{`cart-demo +1/1 +Running +ready`, `-     - \{name: DATABASE, value: db\.example\}`, `\+     - \{name: DATABASE, value: localhost\}`},
	{
		`web-demo +1/1 +Running`, `(?s)manifests/web\.yaml:14:\s.*readinessprobe:\s+unknown\s+field;\s+did\s+you\s+mean\s+readinessProbe\?`,
		`the last good version runs: web-demo Running 1/1`,
	},
	{`No pod was restarted`, `web-demo +1/1 +Running`},
	{`It is your turn`, `curl -X POST http://127\.0\.0\.1:\d+/fail`, `edit /.*/web\.yaml`, `Ctrl-C stops the pods and removes everything\.`},
}

// look is called with the lock at the end of each frame. It remembers the screen of the step if it shows what it should.
func (l *liveDemo) look() {
	text := l.emulator.text()
	for i, patterns := range expectedViews {
		if !strings.Contains(text, fmt.Sprintf("\n%d/%d ", i+1, demo.StepCount)) {
			continue
		}
		l.last[i] = text
		if l.seen[i] == nil && matchesAll(text, patterns) {
			l.seen[i] = l.emulator.snapshot()
		}
	}
	select {
	case l.frames <- struct{}{}:
	default:
	}
}

func matchesAll(text string, patterns []string) bool {
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(text) {
			return false
		}
	}
	return true
}

// waitForFrame waits for a frame about which the condition, which is called with the lock, is true.
func (l *liveDemo) waitForFrame(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for {
		l.mu.Lock()
		isTrue, text := condition(), l.emulator.text()
		l.mu.Unlock()
		if isTrue {
			return
		}
		select {
		case <-l.frames:
		case <-t.Context().Done():
			t.Fatalf("waiting for %s: %s", what, text)
		}
	}
}

func (l *liveDemo) resize(t *testing.T, columns, rows int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.emulator.resize(columns, rows)
	if err := unix.IoctlSetWinsize(int(l.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)}); err != nil {
		t.Fatal(err)
	}
}

// interrupt presses Ctrl-C, waits for the end and returns what is left on the screen.
func (l *liveDemo) interrupt(t *testing.T) string {
	t.Helper()
	if _, err := l.master.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	if err := l.command.Wait(); err != nil {
		t.Errorf("the demo ended with %v", err)
	}
	_ = l.terminal.Close()
	l.read.Wait()
	if !l.emulator.modes[modeWrap] || !l.emulator.modes[modeCursor] || l.emulator.modes[modeOther] || l.emulator.style != "" {
		t.Errorf("the terminal has the modes %v and style %q", l.emulator.modes, l.emulator.style)
	}
	if len(l.emulator.unknown) > 0 {
		t.Errorf("unknown sequences: %v", l.emulator.unknown)
	}
	return l.emulator.text()
}

func (l *liveDemo) settings(t *testing.T) unix.Termios {
	t.Helper()
	settings, err := unix.IoctlGetTermios(int(l.master.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *settings
}

// TestLive_Story watches the whole story in a terminal of 80 columns and 24 rows, makes it narrow, and presses Ctrl-C.
func TestLive_Story(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the demo in real time")
	}
	t.Parallel()
	dir := newTempDir(t)
	l := startLive(t, dir, 80, 24)
	before := l.settings(t)
	l.waitForFrame(t, "the end of the story", func() bool { return l.seen[demo.StepCount-1] != nil })
	l.mu.Lock()
	for i := range expectedViews {
		if l.seen[i] == nil {
			t.Errorf("step %d never showed %q together; at its end:\n%s", i+1, expectedViews[i], l.last[i])
		}
	}
	if l.emulator.scrolls > 0 {
		t.Errorf("the screen scrolled %d times", l.emulator.scrolls)
	}
	if !l.emulator.hasSequence["\x1b[31m"] || !l.emulator.hasSequence["\x1b[32m"] {
		t.Error("nothing was red or green")
	}
	screen := l.emulator.text()
	l.mu.Unlock()
	checkCommands(t, screen)
	checkNarrow(t, l)
	left := l.interrupt(t)
	for _, part := range []string{"9/9 That was the story", "Everything is removed."} {
		if !strings.Contains(left, part) {
			t.Errorf("the screen does not have %q after Ctrl-C: %s", part, left)
		}
	}
	if diff := cmp.Diff(before, l.settings(t)); diff != "" {
		t.Errorf("settings of the terminal: %s", diff)
	}
	mustBeEmpty(t, dir)
	if *update && !t.Failed() {
		writePicture(t, l)
	}
}

// checkCommands runs what the story told the user to try.
func checkCommands(t *testing.T, screen string) {
	t.Helper()
	server := regexp.MustCompile(` -s (127\.0\.0\.1:\d+)`).FindStringSubmatch(screen)
	folder := regexp.MustCompile(`edit (/.*)/web\.yaml`).FindStringSubmatch(screen)
	if server == nil || folder == nil {
		t.Fatalf("no address and no folder: %s", screen)
	}
	for _, arguments := range demo.HeraldCommands() {
		arguments = strings.NewReplacer(" -w", "", "SERVER", server[1], "FOLDER", folder[1]).Replace(arguments) // -w does not end
		command := exec.CommandContext(t.Context(), "/proc/self/exe", strings.Fields(arguments)...)
		command.Env = append(os.Environ(), commandVariable+"=1")
		if output, err := command.CombinedOutput(); err != nil || len(output) == 0 {
			t.Errorf("herald %s: %v\n%s", arguments, err, output)
		}
	}
}

// checkNarrow resizes the terminal to 40 columns. Nothing is wider, and the address of the page can still be copied.
func checkNarrow(t *testing.T, l *liveDemo) {
	t.Helper()
	l.resize(t, 40, 30)
	l.waitForFrame(t, "a narrow frame", func() bool {
		return l.emulator.overflows == 0 &&
			matchesAll(l.emulator.text(), []string{`NAME +READY +STATUS\n`, `web-demo +1/1 +Running\n  ready since`, `\nTry  curl -X POST`})
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if text := l.emulator.text(); !regexp.MustCompile(`#c=[A-Z0-9]{26}`).MatchString(strings.ReplaceAll(text, "\n", "")) {
		t.Errorf("no address: %s", text)
	}
}

func writePicture(t *testing.T, l *liveDemo) {
	t.Helper()
	var screens [][][]cell
	for i := range expectedViews {
		screens = append(screens, l.seen[i])
	}
	if err := os.WriteFile("../../../../docs/demo.svg", []byte(picture(screens)), 0o644); err != nil { //nolint:gosec // documentation
		t.Fatal(err)
	}
}

// TestLive_Small has no colours, and hardly any room.
func TestLive_Small(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the demo in real time")
	}
	t.Parallel()
	dir := newTempDir(t)
	l := startLive(t, dir, 30, 8, "NO_COLOR=1")
	l.waitForFrame(t, "web in a small terminal", func() bool {
		return l.emulator.overflows == 0 && strings.Contains(l.emulator.text(), "web-demo")
	})
	l.interrupt(t)
	if l.emulator.scrolls > 0 {
		t.Errorf("the screen scrolled %d times", l.emulator.scrolls)
	}
	for sequence := range l.emulator.hasSequence {
		if strings.HasSuffix(sequence, "m") {
			t.Errorf("colour %q", sequence)
		}
	}
	mustBeEmpty(t, dir)
}
