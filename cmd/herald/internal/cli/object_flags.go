package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"
)

// objectFlags are the flags of commands that print what the agent answers, as text or as an object.
type objectFlags struct {
	agentFlags

	output string
	format outputFormat // set by parse
}

func (f *objectFlags) bindObject(command *cobra.Command) {
	f.bind(command)
	command.Flags().StringVarP(&f.output, "output", "o", "", "output format: "+oneOf(objectFormats))
	completeFlag(command, "output", objectFormats...)
}

// parse checks the flags. Call it before the others are used.
func (f *objectFlags) parse() (err error) {
	if err := f.check(); err != nil {
		return err
	}
	f.format, err = parseOutput(f.output, objectFormats)
	return err
}

// print prints the object in the format that was asked for, or else the text.
func (f *objectFlags) print(out io.Writer, object any, printText func() error) error {
	if f.format.isObject() {
		return (&objectPrinter{out: out, format: f.format}).print(object)
	}
	return printText()
}

// onePodFlags are the flags of commands about one pod.
type onePodFlags struct {
	objectFlags
	namespaceFlags
}

// bindOnePod adds the flags, and makes the command parse them and the name of the pod before it runs. It returns the completion of
// the pod's name.
func (f *onePodFlags) bindOnePod(
	command *cobra.Command, needsResource bool, run func(ctx context.Context, stdout io.Writer, name string) error,
) podArguments {
	f.bindObject(command)
	f.bindNamespace(command, &f.agentFlags)
	arguments := podArguments{agent: &f.agentFlags, namespaces: &f.namespaceFlags, needsResource: needsResource, one: true}
	command.ValidArgsFunction = arguments.complete
	command.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := parsePodName(cmd, args)
		if err != nil {
			return err
		}
		f.setDefault()
		if err := f.parse(); err != nil {
			return err
		}
		return run(cmd.Context(), cmd.OutOrStdout(), name)
	}
	return arguments
}
