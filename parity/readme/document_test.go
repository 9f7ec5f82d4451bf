package readme_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// block is a fenced block of commands in a document, with the output that the document shows below it.
type block struct {
	// kind is the word after "sh": "" for commands, "terminal" for one that runs in a terminal of its own until the end, "afterwards" for
	// commands to run when those have ended.
	kind     string
	commands []string
	output   string
}

// readSection returns the text of a document below a headline, up to the next one of that level.
func readSection(t *testing.T, file, headline string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+headline+"\n")
	if !found {
		t.Fatalf("%s has no headline %q", file, headline)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// fenced matches a fenced block and its info string.
var fenced = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

// shellBlocks returns the blocks of commands of a section. A block of text belongs to the commands above it.
func shellBlocks(t *testing.T, section string) []block {
	t.Helper()
	var blocks []block
	for _, match := range fenced.FindAllStringSubmatch(section, -1) {
		language, kind, _ := strings.Cut(match[1], " ")
		switch {
		case language == "sh":
			blocks = append(blocks, block{kind: kind, commands: splitCommands(match[2])})
		case language == "text" && len(blocks) > 0 && blocks[len(blocks)-1].output == "":
			blocks[len(blocks)-1].output = match[2]
		default:
			t.Fatalf("block of %q is neither commands nor their output: %s", match[1], match[2])
		}
	}
	return blocks
}

var hereDocument = regexp.MustCompile(`<<'?(\w+)'?`)

// splitCommands returns the commands of a block, without empty lines and sudo. A command may have several lines: a here-document, or lines
// that end with a backslash.
func splitCommands(text string) []string {
	var commands []string
	var command, end string
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case end != "":
			command += "\n" + line
			if line != end {
				continue
			}
			end = ""
		case strings.HasSuffix(line, "\\"):
			command += strings.TrimSuffix(line, "\\") + " "
			continue
		default:
			command += line
			if start := hereDocument.FindStringSubmatch(line); start != nil {
				end = start[1]
				continue
			}
		}
		if command = strings.TrimSpace(strings.ReplaceAll(command, "sudo ", "")); command != "" {
			commands = append(commands, command)
		}
		command = ""
	}
	return commands
}

// withoutComment returns the command that a user types, and the comment beside it.
func withoutComment(command string) (typed, comment string) {
	typed, comment, _ = strings.Cut(command, "  # ")
	return strings.TrimSpace(typed), comment
}

// hasLines reports whether the output has the lines that a document shows, in that order and possibly with others between them. Three
// dots stand for any text, and spaces for any number of them.
func hasLines(output, shown string) bool {
	lines := strings.Split(output, "\n")
	for want := range strings.SplitSeq(strings.TrimSpace(shown), "\n") {
		var parts []string
		for part := range strings.SplitSeq(want, "...") {
			parts = append(parts, strings.Join(quoteAll(strings.Fields(part)), `\s+`))
		}
		pattern := regexp.MustCompile(`^\s*` + strings.Join(parts, `.*`) + `\s*$`)
		found := false
		for len(lines) > 0 && !found {
			found = pattern.MatchString(lines[0])
			lines = lines[1:]
		}
		if !found {
			return false
		}
	}
	return true
}

func quoteAll(words []string) []string {
	for i := range words {
		words[i] = regexp.QuoteMeta(words[i])
	}
	return words
}

func TestSplitCommands(t *testing.T) {
	got := splitCommands("a \\\n  b\nsudo c  # exit status 1\ncat > f <<'EOF'\nx: 1\n\n  y\nEOF\nd\n")
	want := []string{"a    b", "c  # exit status 1", "cat > f <<'EOF'\nx: 1\n\n  y\nEOF", "d"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHasLines(t *testing.T) {
	tests := map[string]struct {
		output, shown string
		want          bool
	}{
		"equal":         {"NAME   AGE\nweb    1s\n", "NAME   AGE\nweb    1s\n", true},
		"widths":        {"NAME      AGE\nweb-demo  1s\n", "NAME   AGE\nweb-demo   1s\n", true},
		"dots":          {"web 1/1 Running 0 17s", "web 1/1 Running 0 ...", true},
		"dots in it":    {"a file.yaml:3: unknown", "a ... file.yaml:3: unknown", true},
		"other lines":   {"a\nb\nc\n", "a\nc\n", true},
		"wrong order":   {"c\na\n", "a\nc\n", false},
		"part of one":   {"web 1/1 Running 0 17s", "web 1/1", false},
		"other pattern": {"webx1", "web.1", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := hasLines(test.output, test.shown); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
