// Command testreport reads the output of go test -json and lists the failed tests with their errors, the flaky ones, which failed
// and passed when they ran again, and the skipped tests with their reasons, in a few lines each: the logs of a failed test fill many
// screens. A failed test is a failure, and with CI=true a skipped one, too.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// event is one line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

func (e event) name() string { return strings.TrimSpace(e.Package + " " + e.Test) }

// report is the result of a test run.
type report struct {
	failed, flaky, skipped []string // names, in order
	messages               map[string][]string
}

func main() {
	r := &report{messages: map[string][]string{}}
	for _, name := range os.Args[1:] {
		if err := r.readFile(name); err != nil {
			fmt.Fprintln(os.Stderr, "testreport:", err)
			os.Exit(1)
		}
	}
	r.print(os.Stdout)
	if len(r.failed) > 0 || len(r.skipped) > 0 && os.Getenv("CI") == "true" {
		os.Exit(1)
	}
}

func (r *report) readFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("open test output: %w", err)
	}
	defer file.Close()
	if err := r.read(file); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

func (r *report) read(output io.Reader) error {
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // build output between the events
		}
		switch name := e.name(); {
		case e.Action == "output":
			if message := firstLine(e.Output); message != "" {
				r.messages[name] = append(r.messages[name], message)
			}
		case e.Action == "skip" && e.Test != "":
			r.skipped = append(r.skipped, name)
		case e.Action == "pass" && slices.Contains(r.failed, name):
			r.failed = slices.DeleteFunc(r.failed, func(failed string) bool { return failed == name })
			r.flaky = append(r.flaky, name)
		case e.Action == "fail" && !slices.Contains(r.failed, name) && !r.isExplained(name):
			r.failed = append(r.failed, name)
		}
	}
	return lines.Err()
}

// isExplained reports whether a test failed only because one of its subtests did, or a package because of its tests.
func (r *report) isExplained(name string) bool {
	return len(r.messages[name]) == 0 && slices.ContainsFunc(r.failed, func(failed string) bool {
		return strings.HasPrefix(failed, name+"/") || strings.HasPrefix(failed, name+" ")
	})
}

// logged matches the first line of a message that a test logs, with its file and line.
var logged = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// firstLine returns the first line of a message that a test logs or panics with. It returns "" for the lines that follow, and
// for lines of the test runner.
func firstLine(output string) string {
	const limit = 400
	line := strings.TrimSpace(output)
	isPanic := strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.HasPrefix(line, "WARNING: DATA RACE")
	if !isPanic && !logged.MatchString(output) {
		return ""
	}
	if len(line) > limit {
		line = strings.ToValidUTF8(line[:limit], "") + " ..."
	}
	return line
}

func (r *report) print(output io.Writer) {
	r.printMessages(output, "FAILED", r.failed)
	r.printMessages(output, "FLAKY", r.flaky)
	for _, name := range r.skipped {
		reason := strings.Join(r.messages[name], "; ")
		fmt.Fprintf(output, "SKIPPED %s: %s\n", name, logged.ReplaceAllString(reason, ""))
	}
	fmt.Fprintf(output, "Failed tests: %d, flaky tests: %d, skipped tests: %d", len(r.failed), len(r.flaky), len(r.skipped))
	if len(r.skipped) > 0 && os.Getenv("CI") == "true" {
		fmt.Fprint(output, "; none may be skipped with CI=true")
	}
	fmt.Fprintln(output, ".")
}

func (r *report) printMessages(output io.Writer, result string, names []string) {
	for _, name := range names {
		fmt.Fprintln(output, result+" "+name)
		const limit = 20
		messages := r.messages[name]
		for _, message := range messages[:min(limit, len(messages))] {
			fmt.Fprintln(output, "    "+message)
		}
		if len(messages) > limit {
			fmt.Fprintf(output, "    ... and %d more\n", len(messages)-limit)
		}
	}
}
