package demo_test

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// cell is a character on the screen, with the parameters of the escape sequence that set its style.
type cell struct {
	character rune
	style     string
}

// emulator interprets what the demo writes, as a terminal does. It knows the sequences that the demo uses and nothing else.
type emulator struct {
	columns, rows int
	cells         [][]cell
	x, y          int
	style         string

	other       [][]cell // the screen that is not shown
	modes       map[string]bool
	overflows   int // characters beyond the right edge, since the cursor was last at home
	scrolls     int // lines that left the second screen at its top
	unknown     []string
	pending     []byte // a sequence of which the rest has not arrived
	frame       func() // called when a frame is complete
	hasSequence map[string]bool
}

// Modes of a terminal that the demo switches.
const (
	modeWrap, modeCursor, modeOther = "?7", "?25", "?1049"
)

func newEmulator(columns, rows int) *emulator {
	e := &emulator{modes: map[string]bool{modeWrap: true, modeCursor: true}, hasSequence: map[string]bool{}, frame: func() {}}
	e.resize(columns, rows)
	e.other = e.blank()
	return e
}

func (e *emulator) blank() [][]cell {
	cells := make([][]cell, e.rows)
	for i := range cells {
		cells[i] = slices.Repeat([]cell{{character: ' '}}, e.columns)
	}
	return cells
}

// resize changes the size and clears the screen, which the demo draws again.
func (e *emulator) resize(columns, rows int) {
	e.columns, e.rows = columns, rows
	e.cells, e.x, e.y = e.blank(), 0, 0
}

// text returns the lines of the screen without spaces at their ends.
func (e *emulator) text() string {
	var text strings.Builder
	for _, row := range e.cells {
		var characters strings.Builder
		for _, cell := range row {
			characters.WriteRune(cell.character)
		}
		text.WriteString(strings.TrimRight(characters.String(), " ") + "\n")
	}
	return text.String()
}

// Write interprets output.
func (e *emulator) Write(output []byte) (int, error) {
	e.pending = append(e.pending, output...)
	for len(e.pending) > 0 {
		size := e.next(e.pending)
		if size == 0 {
			break
		}
		e.pending = e.pending[size:]
	}
	return len(output), nil
}

// next interprets a character or sequence and returns its size, or 0 if it is not complete.
func (e *emulator) next(output []byte) int {
	switch {
	case output[0] == '\x1b':
		return e.escape(output)
	case output[0] == '\r':
		e.x = 0
	case output[0] == '\n':
		e.newline()
	case !utf8.FullRune(output):
		return 0
	default:
		character, size := utf8.DecodeRune(output)
		e.put(character)
		return size
	}
	return 1
}

func (e *emulator) newline() {
	if e.y < e.rows-1 {
		e.y++
		return
	}
	if e.modes[modeOther] {
		e.scrolls++
	}
	e.cells = append(e.cells[1:], slices.Repeat([]cell{{character: ' '}}, e.columns))
}

func (e *emulator) put(character rune) {
	if e.x == e.columns {
		e.overflows++
		if !e.modes[modeWrap] {
			e.x--
		} else {
			e.x = 0
			e.newline()
		}
	}
	e.cells[e.y][e.x] = cell{character, e.style}
	e.x++
}

// escape interprets a sequence that begins with ESC [.
func (e *emulator) escape(output []byte) int {
	if len(output) < 2 {
		return 0
	}
	end := slices.IndexFunc(output[2:], func(b byte) bool { return b >= '@' && b <= '~' })
	if output[1] != '[' || end < 0 {
		return 0
	}
	parameters, command := string(output[2:2+end]), output[2+end]
	e.hasSequence[string(output[:3+end])] = true
	switch command {
	case 'H':
		e.x, e.y, e.overflows = 0, 0, 0
	case 'K':
		e.clearLine(e.y, e.x)
	case 'J':
		e.clearScreen(parameters)
	case 'm':
		e.style = strings.TrimPrefix(parameters, "0")
	case 'h', 'l':
		e.setMode(parameters, command == 'h')
	default:
		e.unknown = append(e.unknown, strconv.Quote(string(output[:3+end])))
	}
	return 3 + end
}

func (e *emulator) clearLine(row, from int) {
	for i := from; i < e.columns; i++ {
		e.cells[row][i] = cell{character: ' '}
	}
}

func (e *emulator) clearScreen(parameters string) {
	if parameters == "2" {
		e.cells = e.blank()
		return
	}
	for row := e.y + 1; row < e.rows; row++ {
		e.clearLine(row, 0)
	}
	e.frame()
}

func (e *emulator) setMode(mode string, isOn bool) {
	if mode == modeOther && e.modes[mode] != isOn {
		e.cells, e.other = e.other, e.cells
		if len(e.cells) != e.rows || len(e.cells[0]) != e.columns {
			e.cells = e.blank()
		}
		e.x, e.y = 0, 0
	}
	e.modes[mode] = isOn
}

// snapshot returns the cells of the screen.
func (e *emulator) snapshot() [][]cell {
	rows := make([][]cell, len(e.cells))
	for i := range rows {
		rows[i] = slices.Clone(e.cells[i])
	}
	return rows
}
