package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/cmd/herald/internal/config"
	"github.com/heraldnode/herald/nodeagent"
)

// configuration is where a command is told its configuration.
type configuration struct {
	file, folder string
	flags        *config.Flags
}

func (c *configuration) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.file, "config", "", "configuration file")
	cmd.Flags().StringVar(&c.folder, "config-dir", "", "folder of files *.conf that are laid over it, in the order of their names")
	c.flags = config.Bind(cmd.Flags())
	complete(cmd, "runtime", nodeagent.RuntimeCRI+"\tcontainerd or CRI-O", nodeagent.RuntimeProcess+"\tplain processes, no isolation")
	for _, flag := range []string{"data-dir", "manifests", "config-dir"} {
		_ = cmd.MarkFlagDirname(flag)
	}
}

func (c *configuration) load() (config.Config, error) {
	loaded, err := config.Load(c.file, c.folder, c.flags)
	if err != nil {
		return loaded, usageError{err}
	}
	return loaded, nil
}

// newConfig is also the text that 'herald help config' shows.
func newConfig() *cobra.Command {
	var fields strings.Builder
	for _, field := range config.Fields() {
		line := fmt.Sprintf("  %-28s %-32s", field.Path, field.Type)
		if field.Flag != "" {
			line += " --" + field.Flag
		}
		fields.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	command := &cobra.Command{
		Use: "config", Short: "What can be in the configuration file; makes one of the kubelet's, shows what holds",
		Long: `The configuration file of 'herald run', and files *.conf in the folder that --config-dir names, begin with

  apiVersion: ` + config.APIVersion + `
  kind: ` + config.Kind + `

Later files win over earlier ones and flags over all: lists are replaced, maps are joined. The fields, and the flags that say
the same; docs/config.md explains each:

` + strings.TrimRight(fields.String(), "\n"),
		RunE: helpOrNoSuchCommand,
	}
	command.SuggestionsMinimumDistance = 2
	command.AddCommand(newConfigConvert(), newConfigShow())
	return command
}

func newConfigConvert() *cobra.Command {
	return &cobra.Command{
		Use: "convert FILE", Short: "Makes a configuration of the kubelet's",
		Long: `Reads a KubeletConfiguration and prints a HeraldConfiguration with the fields that Herald has too. Each field that is left out
is named on the standard error with its line, and with why it would do nothing; what is empty or 0s is the default, and goes
without a word. "-" is the standard input. What the kubelet is told by flags (--kubeconfig, --hostname-override, --node-ip,
--node-labels) is to be added: kubeconfig, nodeName, nodeIP, nodeLabels.`,
		Example: `  herald config convert /var/lib/kubelet/config.yaml > /etc/herald/config.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("name one file\nSee '%s --help'", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readConfiguration(cmd.InOrStdin(), args[0])
			if err != nil {
				return usageError{err}
			}
			converted, leftOut, err := config.Convert(args[0], text)
			if err != nil {
				return usageError{err}
			}
			for _, line := range leftOut {
				fmt.Fprintln(cmd.ErrOrStderr(), line)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), converted)
			return err
		},
	}
}

func readConfiguration(stdin io.Reader, file string) (string, error) {
	if file != "-" {
		return config.ReadFile(file)
	}
	text, err := io.ReadAll(io.LimitReader(stdin, config.MaxBytes+1))
	if len(text) > config.MaxBytes {
		return "", fmt.Errorf("the standard input has more than %d bytes", config.MaxBytes)
	}
	return string(text), err
}

func newConfigShow() *cobra.Command {
	var from configuration
	show := &cobra.Command{
		Use: "show", Short: "Shows what 'herald run' would be told by files and flags", Args: noArguments,
		Long: `Reads the files and flags of 'herald run' and prints the configuration that they come to, defaults included. Secrets in URLs and
headers are not shown. The exit status is 2 if 'herald run' would not accept it.`,
		Example: `  herald config show --config /etc/herald/config.yaml --config-dir /etc/herald/config.d -v4`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := from.load()
			if err != nil {
				return err
			}
			text, err := c.Show()
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	from.bind(show)
	return show
}
