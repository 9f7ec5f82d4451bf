package usage

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/heraldnode/herald/load"
)

// readLines returns the complete lines of a file of the kernel, and false if it cannot be read or its last line has no end: then it
// is not known what is missing.
func readLines(file string) ([]string, bool) {
	if file == "" {
		return nil, false
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, false
	}
	var lines []string
	for line := range strings.Lines(string(content)) {
		text, complete := strings.CutSuffix(line, "\n")
		if !complete {
			return lines, false
		}
		lines = append(lines, text)
	}
	return lines, true
}

// readNumber reads a file that is one number. It is unknown for "max", which means that there is no limit.
func readNumber(file string) load.Value {
	lines, complete := readLines(file)
	if !complete || len(lines) != 1 {
		return load.Value{}
	}
	return parseNumber(lines[0])
}

// parseNumber accepts only what the kernel prints: digits.
func parseNumber(text string) load.Value {
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return load.Value{}
	}
	return load.Known(float64(number))
}

// readTable reads lines of a name and a number. Lines that are neither, and an incomplete last line, are skipped.
func readTable(file string) map[string]load.Value {
	lines, _ := readLines(file)
	table := make(map[string]load.Value, len(lines))
	for _, line := range lines {
		if name, number, found := strings.Cut(line, " "); found {
			table[name] = parseNumber(number)
		}
	}
	return table
}

// readPressure reads a file such as
//
//	some avg10=0.00 avg60=1.50 avg300=2.00 total=123
//	full avg10=0.00 avg60=0.50 avg300=1.00 total=45
//
// some and full are the shares of the last 60 seconds. Kernels before 5.13 have no line "full" of the CPU.
func readPressure(file string) (stall *load.Stall, some, full load.Value) {
	lines, complete := readLines(file)
	if !complete || len(lines) == 0 {
		return nil, load.Value{}, load.Value{}
	}
	stall = &load.Stall{}
	for _, line := range lines {
		kind, averages, _ := strings.Cut(line, " ")
		times, ok := parseStall(averages)
		switch {
		case !ok:
			return nil, load.Value{}, load.Value{}
		case kind == "some":
			stall.Some, some = times, load.Known(times.Avg60/100)
		case kind == "full":
			stall.Full, full = times, load.Known(times.Avg60/100)
		}
	}
	return stall, some, full
}

// parseStall parses averages in percent and the total in microseconds.
func parseStall(text string) (times load.StallTimes, ok bool) {
	averages := map[string]*float64{"avg10": &times.Avg10, "avg60": &times.Avg60, "avg300": &times.Avg300}
	found := 0
	for field := range strings.FieldsSeq(text) {
		name, number, _ := strings.Cut(field, "=")
		if name == "total" {
			total, err := strconv.ParseInt(number, 10, 64)
			times.Total = time.Duration(total) * time.Microsecond
			if err != nil {
				return times, false
			}
			found++
		} else if average := averages[name]; average != nil {
			parsed, err := strconv.ParseFloat(number, 64)
			if *average = parsed; err != nil || parsed < 0 {
				return times, false
			}
			found++
		}
	}
	return times, found == len(averages)+1
}

// readIOStat sums the bytes of all devices of version 2: 8:0 rbytes=1 wbytes=2 rios=3 ... A cgroup without input and output has no
// lines.
func readIOStat(file string) load.IO {
	lines, complete := readLines(file)
	if !complete {
		return load.IO{}
	}
	var read, written float64
	for _, line := range lines {
		_, counters, _ := strings.Cut(line, " ")
		for counter := range strings.FieldsSeq(counters) {
			name, text, _ := strings.Cut(counter, "=")
			if name != "rbytes" && name != "wbytes" {
				continue
			}
			number, known := parseNumber(text).Get()
			if !known {
				return load.IO{}
			}
			if name == "rbytes" {
				read += number
			} else {
				written += number
			}
		}
	}
	return load.IO{Read: load.Known(read), Written: load.Known(written)}
}

// readServiceBytes sums the bytes of all devices of version 1: 8:0 Read 1, 8:0 Write 2, and others. The last line is their total.
func readServiceBytes(file string) load.IO {
	lines, complete := readLines(file)
	if !complete || len(lines) == 0 || !strings.HasPrefix(lines[len(lines)-1], "Total ") {
		return load.IO{}
	}
	var read, written float64
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		number, known := parseNumber(fields[2]).Get()
		if !known {
			return load.IO{}
		}
		switch fields[1] {
		case "Read":
			read += number
		case "Write":
			written += number
		}
	}
	return load.IO{Read: load.Known(read), Written: load.Known(written)}
}

func divide(value load.Value, divisor float64) load.Value {
	number, known := value.Get()
	if !known {
		return load.Value{}
	}
	return load.Known(number / divisor)
}

// minus returns a-b, at least 0: the two were not read at the same moment. It is unknown if one of them is.
func minus(a, b load.Value) load.Value {
	left, known := a.Get()
	right, ok := b.Get()
	if !known || !ok {
		return load.Value{}
	}
	return load.Known(max(left-right, 0))
}
