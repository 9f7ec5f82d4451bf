// Command skips reads the JSON records of test runs (go test -json) and lists the tests that were skipped, each with the
// line in which it says why. With CI=true a skipped test is a failure: there, everything must have run.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is one line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
}

func main() {
	var skipped []string
	for _, name := range os.Args[1:] {
		found, err := readFile(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, "skips:", err)
			os.Exit(1)
		}
		skipped = append(skipped, found...)
	}
	if len(skipped) == 0 {
		fmt.Println("Nothing was skipped.")
		return
	}
	fmt.Printf("Skipped on this machine (%d):\n", len(skipped))
	for _, line := range skipped {
		fmt.Println("  " + line)
	}
	if os.Getenv("CI") == "true" {
		fmt.Println("With CI=true nothing may be skipped.")
		os.Exit(1)
	}
}

func readFile(name string) ([]string, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open a test record: %w", err)
	}
	defer file.Close()
	return Skipped(file)
}

// Skipped lists the tests of one record that were skipped: package, test, and the reason it logged.
func Skipped(record io.Reader) ([]string, error) {
	var skipped []string
	reasons := map[string]string{}
	lines := bufio.NewScanner(record)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // build output between the records
		}
		key := e.Package + " " + e.Test
		switch {
		case e.Test == "":
		case e.Action == "output" && reason(e.Output) != "":
			reasons[key] = reason(e.Output)
		case e.Action == "skip":
			skipped = append(skipped, key+": "+reasons[key])
		}
	}
	return skipped, lines.Err()
}

// reason is what a test logged, without the file and line in front; empty for the test runner's own lines.
func reason(output string) string {
	text := strings.TrimSpace(output)
	if strings.HasPrefix(text, "===") || strings.HasPrefix(text, "---") {
		return ""
	}
	if _, after, found := strings.Cut(text, "_test.go:"); found {
		if _, said, found := strings.Cut(after, ": "); found {
			return said
		}
	}
	return text
}
