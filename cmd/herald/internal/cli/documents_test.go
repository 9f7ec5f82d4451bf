package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/heraldnode/herald/alert/ruletest"
	"github.com/heraldnode/herald/cmd/herald/internal/cli"
	"github.com/heraldnode/herald/cmd/herald/internal/config"
	"github.com/heraldnode/herald/internal/docblocks"
)

const repository = "../../../.."

func readDocuments(t *testing.T) []docblocks.Document {
	t.Helper()
	documents, err := docblocks.Read(repository)
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

// checkCommand returns an error unless the command, its flags and, if so asked, its arguments are ones that herald has.
func checkCommand(arguments []string, isComplete bool) error {
	arguments = slices.DeleteFunc(slices.Clone(arguments), func(word string) bool { return strings.HasSuffix(word, "...") }) // and so on
	command, rest, err := cli.NewCommandTree().Find(arguments)
	if err != nil {
		return err
	}
	if err := command.ParseFlags(rest); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%s: %w", command.CommandPath(), err)
	}
	names := command.Flags().Args()
	if command.HasSubCommands() && len(names) > 0 && isWord.MatchString(names[0]) && command.Name() != "help" {
		return fmt.Errorf("%s has no command %s", command.CommandPath(), names[0])
	}
	if !isComplete {
		return nil
	}
	return command.ValidateArgs(names)
}

var isWord = regexp.MustCompile(`^[a-z][a-z-]*$`)

func makeTargets(t *testing.T) []string {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, match[1])
	}
	return targets
}

// Documents name only commands and flags that herald has, and targets that the Makefile has.
func TestDocuments_Commands(t *testing.T) {
	targets := makeTargets(t)
	check := func(command docblocks.Command, isComplete bool) {
		if arguments, isHerald := command.Arguments("herald"); isHerald {
			if err := checkCommand(arguments, isComplete); err != nil {
				t.Errorf("%s: %s: %v", command.Position, strings.Join(command.Words, " "), err)
			}
		}
		if arguments, isMake := command.Arguments("make"); isMake {
			for _, target := range arguments {
				if isWord.MatchString(target) && !slices.Contains(targets, target) {
					t.Errorf("%s: the Makefile has no target %s", command.Position, target)
				}
			}
		}
	}
	for _, document := range readDocuments(t) {
		if document.File == "CHANGELOG.md" {
			continue // says what was
		}
		for _, block := range document.Blocks {
			commands, _ := block.Commands()
			for _, command := range commands {
				check(command, true)
			}
		}
		for _, command := range document.Mentions("herald", "make", "kubectl", "sudo") {
			check(command, false)
		}
	}
}

// The languages of blocks. What is in the first list is checked by a test, what is in the second can not be.
var (
	checkedLanguages = []string{"sh", "console", "", "text", "yaml", "json", "go"}
	otherLanguages   = []string{"python", "toml", "ini", "diff", "promql"}
)

// Documents, configurations, manifests and rules in documents are ones that Herald accepts. "yaml invalid" marks those that it must not.
func TestDocuments_Data(t *testing.T) {
	for _, document := range readDocuments(t) {
		for _, block := range document.Blocks {
			if !slices.Contains(checkedLanguages, block.Language) && !slices.Contains(otherLanguages, block.Language) {
				t.Errorf("%s: the language %q is not known", block.Position(0), block.Language)
			}
			isInvalid := slices.Contains(block.Words, "invalid")
			switch block.Language {
			case "yaml":
				reportData(t, block.Position(0), isInvalid, checkYAML(t, block.Text))
			case "json":
				reportData(t, block.Position(0), isInvalid, json.Unmarshal([]byte(block.Text), new(any)))
			}
			_, inputs := block.Commands()
			for _, input := range inputs {
				if strings.HasSuffix(input.Name, ".yaml") {
					reportData(t, input.Position, isInvalid, checkYAML(t, input.Text))
				}
			}
		}
	}
}

func reportData(t *testing.T, position string, isInvalid bool, err error) {
	t.Helper()
	if err != nil && !isInvalid {
		t.Errorf("%s: %v", position, err)
	}
	if err == nil && isInvalid {
		t.Errorf("%s: the block is called invalid, but is accepted", position)
	}
}

// checkYAML finds out what the text is, and lets the command that reads such files check it. What is not Herald's must be YAML.
func checkYAML(t *testing.T, text string) error {
	t.Helper()
	var first any
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for n := 0; ; n++ {
		var value any
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if n == 0 {
			first = value
		}
	}
	fields, _ := first.(map[string]any)
	switch {
	case fields["kind"] == "Pod":
		return checkBy(t, text, "check")
	case fields["kind"] == config.Kind:
		return checkConfig(t, text)
	case fields["kind"] == "AlertRules":
		return checkBy(t, text, "alerts", "check")
	case fields["tests"] != nil:
		_, err := ruletest.Parse([]byte(text), "test.yaml")
		return err
	case isRuleList(first):
		header := "apiVersion: " + config.APIVersion + "\nkind: AlertRules\ngroups:\n- name: part\n  rules:\n"
		return checkBy(t, header+"  "+strings.ReplaceAll(text, "\n", "\n  "), "alerts", "check")
	case fields != nil && fields["apiVersion"] == nil && isConfigPart(fields):
		header := "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n"
		if fields["kubeconfig"] == nil && fields["staticPodPath"] == nil { // where pods come from is not what the part is about
			header += "staticPodPath: /etc/kubernetes/manifests\n"
		}
		return checkConfig(t, header+text)
	}
	return nil
}

func isRuleList(value any) bool {
	list, isList := value.([]any)
	if !isList || len(list) == 0 {
		return false
	}
	rule, _ := list[0].(map[string]any)
	return rule["alert"] != nil
}

// isConfigPart reports whether the first level has fields of the configuration only.
func isConfigPart(fields map[string]any) bool {
	known := map[string]bool{}
	for _, field := range config.Fields() {
		name, _, _ := strings.Cut(field.Path, ".")
		known[name] = true
	}
	return !slices.ContainsFunc(slices.Collect(maps.Keys(fields)), func(name string) bool { return !known[name] })
}

// checkConfig does not mind that the files are not there which a configuration names.
func checkConfig(t *testing.T, text string) error {
	t.Helper()
	result := runHerald("config", "show", "--config", writeFile(t, "config.yaml", text))
	problems := slices.DeleteFunc(strings.Split(strings.TrimSpace(result.stderr), "\n"), func(line string) bool {
		return line == "" || strings.HasSuffix(line, "no such file or directory")
	})
	if result.status != 0 && len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	return nil
}

func checkBy(t *testing.T, text string, command ...string) error {
	t.Helper()
	result := runHerald(append(command, writeFile(t, "file.yaml", text))...)
	if result.status != 0 {
		return fmt.Errorf("herald %s: %s%s", strings.Join(command, " "), result.stdout, result.stderr)
	}
	return nil
}
