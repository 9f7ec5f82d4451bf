package docblocks

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Command is a simple command: words without quotes, redirections and assignments.
type Command struct {
	// Position is the file and line of its first word.
	Position string
	Words    []string
}

// Input is a document that a script writes into a file: cat > web.yaml <<EOF.
type Input struct {
	Position string
	// Name is the file that it is written to; "" if there is none.
	Name, Text string
}

// Commands returns the commands of a block, and the documents in them. Of a block without a language and of a console, lines that
// begin with $ are commands, and those of the examples of a help text.
func (b *Block) Commands() ([]Command, []Input) {
	switch b.Language {
	case "sh", "bash", "shell":
		return parseShell(b.Text, b.Position)
	case "", "console", "text":
		return parseShell(typed(b.Text), b.Position)
	default:
		return nil, nil
	}
}

// typed keeps the lines that somebody types and empties the others.
func typed(text string) string {
	lines := strings.Split(text, "\n")
	isExample, goesOn := false, false
	for i, line := range lines {
		command, isTyped := strings.CutPrefix(line, "$ ")
		switch {
		case line == "Examples:":
			isExample = true
		case isExample && line != "" && !strings.HasPrefix(line, " "):
			isExample = false
		}
		switch {
		case isTyped:
			lines[i] = command
		case goesOn, isExample && line != "Examples:":
			command = line
		default:
			command, lines[i] = "", ""
		}
		goesOn = strings.HasSuffix(command, "\\")
	}
	return strings.Join(lines, "\n")
}

var (
	assignment  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	redirection = regexp.MustCompile(`^[0-9]*(<<-?|[<>]+&?)(.*)$`)
	inline      = regexp.MustCompile("`([^`]+)`")
)

// Mentions returns the commands in sentences: code that begins with one of the programs and has at least one argument.
func (d *Document) Mentions(programs ...string) (commands []Command) {
	for i, line := range d.prose {
		for _, match := range inline.FindAllStringSubmatch(line, -1) {
			position := fmt.Sprintf("%s:%d", d.File, i+1)
			found, _ := parseShell(match[1], func(int) string { return position })
			if len(found) == 1 && len(found[0].Words) > 1 && slices.Contains(programs, found[0].Words[0]) {
				commands = append(commands, found[0])
			}
		}
	}
	return commands
}

// prefixes are programs that run another one.
var prefixes = []string{"sudo", "ssh", "watch", "env", "time", "nohup", "exec", "timeout", "if", "while", "until", "then", "do", "!"}

// Arguments returns the arguments of the program, if the command runs it: directly, by sudo or the like, or as a plugin of kubectl.
func (c *Command) Arguments(program string) (arguments []string, found bool) {
	for i, word := range c.Words {
		isProgram := path.Base(word) == program || path.Base(word) == "kubectl-"+program
		isPlugin := word == program && i > 0 && c.Words[i-1] == "kubectl"
		switch {
		case isProgram && (i == 0 || slices.Contains(prefixes, c.Words[0])), isPlugin && i == 1:
			return c.Words[i+1:], true
		case i == 0 && word != "kubectl" && !slices.Contains(prefixes, word):
			return nil, false
		}
	}
	return nil, false
}

// shell splits a script into commands. It knows what documents use: quotes, lines that go on, comments, here-documents and lists.
type shell struct {
	position func(line int) string
	commands []Command
	inputs   []Input

	line, start int
	words       []string
	word        strings.Builder
	inWord      bool
	delimiter   string // of a here-document that begins on the next line
	target      string // of the last redirection to a file
	awaits      string // the redirection whose file is the next word
}

func parseShell(text string, position func(line int) string) ([]Command, []Input) {
	s := &shell{position: position}
	for text != "" {
		text = s.step(text)
	}
	s.endCommand()
	return s.commands, s.inputs
}

// step consumes the beginning of the text.
func (s *shell) step(text string) string {
	c := text[0]
	switch {
	case strings.HasPrefix(text, "\\\n"):
		s.endWord()
		s.line++
		return text[2:]
	case c == '\\' && len(text) > 1:
		s.add(text[1:2])
		return text[2:]
	case c == '\'' || c == '"':
		return s.quoted(text[1:], string(c))
	case strings.HasPrefix(text, "$("):
		return s.quoted(text[1:], ")")
	case c == '#' && !s.inWord:
		comment, _, _ := strings.Cut(text, "\n")
		return text[len(comment):]
	case c == '\n':
		s.endCommand()
		s.line++
		return s.hereDocument(text[1:])
	case c == ';' || c == '|' || c == '(' || c == ')', c == '&' && !strings.HasSuffix(s.word.String(), ">"):
		s.endCommand()
		return text[1:]
	case c == ' ' || c == '\t':
		s.endWord()
		return text[1:]
	}
	s.add(text[:1])
	return text[1:]
}

func (s *shell) add(text string) {
	if len(s.words) == 0 && !s.inWord {
		s.start = s.line
	}
	s.inWord = true
	s.word.WriteString(text)
}

// quoted adds everything up to the end of a quotation to the word.
func (s *shell) quoted(text, end string) string {
	content, rest, _ := strings.Cut(text, end)
	for end == `"` && strings.HasSuffix(content, `\`) && rest != "" {
		var more string
		more, rest, _ = strings.Cut(rest, end)
		content = strings.TrimSuffix(content, `\`) + end + more
	}
	s.add(content)
	s.line += strings.Count(content, "\n")
	return rest
}

func (s *shell) endWord() {
	if !s.inWord {
		return
	}
	word := s.word.String()
	s.word.Reset()
	s.inWord = false
	if s.awaits != "" {
		s.redirect(s.awaits, word)
		return
	}
	if match := redirection.FindStringSubmatch(word); match != nil {
		s.redirect(match[1], match[2])
		return
	}
	if len(s.words) == 0 && assignment.MatchString(word) {
		return
	}
	s.words = append(s.words, word)
}

// redirect notes a redirection. Without a file, the next word is it.
func (s *shell) redirect(operator, file string) {
	s.awaits = ""
	switch {
	case file == "":
		s.awaits = operator
	case strings.HasPrefix(operator, "<<"):
		s.delimiter = file
	case strings.HasPrefix(operator, ">"):
		s.target = file
	}
}

func (s *shell) endCommand() {
	s.endWord()
	if len(s.words) > 0 {
		s.commands = append(s.commands, Command{Position: s.position(s.start), Words: s.words})
		if s.words[0] == "tee" || len(s.words) > 1 && s.words[0] == "sudo" && s.words[1] == "tee" {
			s.target = s.words[len(s.words)-1]
		}
	}
	s.words, s.awaits = nil, ""
}

// hereDocument consumes the lines up to the delimiter.
func (s *shell) hereDocument(text string) string {
	if s.delimiter == "" {
		s.target = ""
		return text
	}
	input := Input{Position: s.position(s.line), Name: s.target}
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		text = rest
		s.line++
		if strings.TrimSpace(line) == s.delimiter {
			break
		}
		input.Text += line + "\n"
	}
	s.inputs = append(s.inputs, input)
	s.delimiter, s.target = "", ""
	return text
}
