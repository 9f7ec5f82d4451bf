// Command skips reads the output of go test -json and lists the skipped tests with their reasons. With CI=true a skipped
// test is a failure.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is one line of go test -json.
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
		fmt.Println("No tests were skipped.")
		return
	}
	fmt.Printf("Skipped tests (%d):\n", len(skipped))
	for _, line := range skipped {
		fmt.Println("  " + line)
	}
	if os.Getenv("CI") == "true" {
		fmt.Println("No test may be skipped with CI=true.")
		os.Exit(1)
	}
}

func readFile(name string) ([]string, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open test output: %w", err)
	}
	defer file.Close()
	skipped, err := findSkipped(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return skipped, nil
}

// findSkipped returns package, name and reason of each skipped test.
func findSkipped(output io.Reader) ([]string, error) {
	var skipped []string
	reasons := map[string]string{}
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // build output between the events
		}
		key := e.Package + " " + e.Test
		switch {
		case e.Test == "":
		case e.Action == "output" && logMessage(e.Output) != "":
			reasons[key] = logMessage(e.Output)
		case e.Action == "skip":
			skipped = append(skipped, key+": "+reasons[key])
		}
	}
	return skipped, lines.Err()
}

// logMessage returns the message that a test logged, without file and line. It returns "" for lines of the test runner.
func logMessage(output string) string {
	text := strings.TrimSpace(output)
	if strings.HasPrefix(text, "===") || strings.HasPrefix(text, "---") {
		return ""
	}
	if _, after, found := strings.Cut(text, "_test.go:"); found {
		if _, message, found := strings.Cut(after, ": "); found {
			return message
		}
	}
	return text
}
