package cli

import (
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"
)

// kubectlPlugin is the name of the program for which kubectl has the command 'kubectl herald'.
const kubectlPlugin = "kubectl-herald"

// commandLine finds the name of the program at the beginning of the lines of an example.
var commandLine = regexp.MustCompile(`(?m)^( *(?:sudo )?)herald `)

// nameAfter makes the help call the commands as the user called them: 'kubectl herald get' if the program's name is that of a plugin of
// kubectl. Nothing else depends on the name.
func nameAfter(root *cobra.Command, program string) {
	if filepath.Base(program) != kubectlPlugin {
		return
	}
	const name = "kubectl herald"
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	renameExamples(root, "${1}"+name+" ")
}

func renameExamples(command *cobra.Command, replacement string) {
	command.Example = commandLine.ReplaceAllString(command.Example, replacement)
	for _, sub := range command.Commands() {
		renameExamples(sub, replacement)
	}
}
