package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE...", Short: "Says whether manifests would be accepted, and what is wrong with them where",
		Long: `Reads manifests of static pods as 'herald run --manifests' would: strictly. Each mistake is named with its file, line and
field. "-" is the standard input. Exit status 1 if a file would not be accepted.`,
		Example: "  herald check web.yaml\n  herald check /etc/kubernetes/manifests/*.yaml",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("name at least one manifest\nSee '%s --help'.", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			bad := 0
			for _, file := range files {
				if err := check(cmd.OutOrStdout(), cmd.InOrStdin(), file); err != nil {
					fmt.Fprintln(cmd.OutOrStdout(), err)
					bad++
				}
			}
			if bad > 0 {
				return fmt.Errorf("%d of %d would not be accepted", bad, len(files))
			}
			return nil
		},
	}
}

func check(out io.Writer, stdin io.Reader, file string) error {
	data, err := readManifest(stdin, file)
	if err != nil {
		return err
	}
	pods, err := manifest.Decode(data, manifest.Origin{Location: file, Source: podid.File, Node: "node"})
	if err != nil {
		return err
	}
	for _, pod := range pods {
		err = errors.Join(err, cri.Unsupported(pod))
		for _, warning := range manifest.Warnings(pod) {
			fmt.Fprintf(out, "%s: warning: %s\n", file, warning)
		}
		fmt.Fprintf(out, "%s: pod %s/%s is valid\n", file, pod.Namespace, pod.Name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func readManifest(stdin io.Reader, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(io.LimitReader(stdin, manifest.MaxBytes+1))
	}
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return io.ReadAll(io.LimitReader(opened, manifest.MaxBytes+1))
}
