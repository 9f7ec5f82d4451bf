package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/cmd/herald/internal/config"
	"github.com/heraldnode/herald/nodeagent"
)

// configFlags are the flags from which a command loads the configuration.
type configFlags struct {
	file, dir string
	fields    *config.Flags
}

func (f *configFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "config", "", "configuration file")
	cmd.Flags().StringVar(&f.dir, "config-dir", "", "directory of *.conf files that override the configuration file, in lexical order")
	f.fields = config.Bind(cmd.Flags())
	completeFlag(cmd, "runtime", nodeagent.RuntimeCRI+"\tcontainerd or CRI-O", nodeagent.RuntimeProcess+"\thost processes, no isolation")
	for _, flag := range []string{"cert-dir", "data-dir", "root-dir", "manifests", "config-dir"} {
		_ = cmd.MarkFlagDirname(flag)
	}
}

func (f *configFlags) load() (config.Config, error) {
	c, err := config.Load(f.file, f.dir, f.fields)
	if err != nil {
		return c, usageError{err}
	}
	return c, nil
}

// newConfigCommand returns the config command. Its long text is also the help topic of 'herald help config'.
func newConfigCommand() *cobra.Command {
	var fields strings.Builder
	for _, field := range config.Fields() {
		line := fmt.Sprintf("  %-28s %-20s", field.Path, field.Type)
		if field.Flag != "" {
			line += " --" + field.Flag
		}
		fields.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	command := &cobra.Command{
		Use: "config", Short: "Explain, check, show or convert the configuration", GroupID: groupCheck,
		Long: `The configuration file of 'herald run' and the *.conf files in the directory of --config-dir start with

  apiVersion: ` + config.APIVersion + `
  kind: ` + config.Kind + `

Later files override earlier ones, and flags override all files. Lists are replaced, maps are merged. The fields, their
types and their flags (see docs/config.md for descriptions):

` + strings.TrimRight(fields.String(), "\n"),
		RunE: runParentCommand,
	}
	command.SuggestionsMinimumDistance = 2
	command.AddCommand(newConfigCheckCommand(), newConfigConvertCommand(), newConfigShowCommand())
	return command
}

func newConfigConvertCommand() *cobra.Command {
	return &cobra.Command{
		Use: "convert FILE", Short: "Convert a KubeletConfiguration",
		Long: `Read a KubeletConfiguration and print a HeraldConfiguration with the fields that Herald supports. Each ignored field is
reported on the standard error with its line and the reason. Fields that are empty or 0s mean the default and are omitted
silently. A field that KubeletConfiguration does not have is an error. "-" reads the standard input.

The kubelet's flags are not part of its configuration. Add the fields for them by hand: kubeconfig for --kubeconfig,
bootstrapKubeconfig for --bootstrap-kubeconfig, certDir for --cert-dir, rootDir for --root-dir, nodeName for
--hostname-override, nodeIP for --node-ip and nodeLabels for --node-labels.`,
		Example: `  herald config convert /var/lib/kubelet/config.yaml > /etc/herald/config.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageErrorf("exactly one FILE is required\nSee '%s --help' for usage", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readConfig(cmd.InOrStdin(), args[0])
			if err != nil {
				return usageError{err}
			}
			converted, ignored, err := config.Convert(args[0], text)
			if err != nil {
				return usageError{err}
			}
			for _, line := range ignored {
				fmt.Fprintln(cmd.ErrOrStderr(), line)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), converted)
			return err
		},
	}
}

func readConfig(stdin io.Reader, file string) (string, error) {
	if file != "-" {
		return config.ReadFile(file)
	}
	text, err := io.ReadAll(io.LimitReader(stdin, config.MaxBytes+1))
	if len(text) > config.MaxBytes {
		return "", fmt.Errorf("read the standard input: must not exceed %d bytes", config.MaxBytes)
	}
	return string(text), err
}

func newConfigShowCommand() *cobra.Command {
	var flags configFlags
	show := &cobra.Command{
		Use: "show", Short: "Show the effective configuration", Args: noArguments,
		Long: `Read the files and flags of 'herald run' and print the effective configuration, including defaults. Secrets in URLs and
headers are hidden. The exit status is 2 if 'herald run' would reject the configuration.`,
		Example: `  herald config show --config /etc/herald/config.yaml --config-dir /etc/herald/config.d -v4`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.load()
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
	flags.bind(show)
	return show
}

func newConfigCheckCommand() *cobra.Command {
	var flags configFlags
	check := &cobra.Command{
		Use: "check", Short: "Check the configuration, its certificates and its ports", Args: noArguments,
		Long: `Read the files and flags of 'herald run' and check what the agent would find only when it runs: the client certificate and the
authorities of the kubeconfig, the certificate of the HTTPS server and the authorities of its clients (unreadable, without
certificates, expired, a key that belongs to another one), and ports that another process uses. Each problem is reported with
its file, field and remedy. Nothing is changed.

The exit status is 1 if there is a problem, and 2 if 'herald run' would reject the configuration.`,
		Example: `  herald config check --config /etc/herald/config.yaml --config-dir /etc/herald/config.d`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := config.Check(cmd.Context(), flags.file, flags.dir, flags.fields, time.Now())
			if err != nil {
				return usageError{err}
			}
			return printChecked(cmd.OutOrStdout(), found)
		},
	}
	flags.bind(check)
	return check
}

// printChecked prints what a check of the configuration found. The error counts the problems.
func printChecked(out io.Writer, found config.CheckResult) error {
	var text strings.Builder
	for _, note := range found.Notes {
		fmt.Fprintln(&text, note)
	}
	for _, problem := range found.Problems {
		fmt.Fprintln(&text, problem)
	}
	if len(found.Problems) == 0 {
		fmt.Fprintln(&text, "no problems found")
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	switch count := len(found.Problems); count {
	case 0:
		return nil
	case 1:
		return errors.New("1 problem found")
	default:
		return fmt.Errorf("%d problems found", count)
	}
}
