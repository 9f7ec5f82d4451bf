package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Set by the linker in packages (-X), which are built without the version control system. Empty otherwise.
var release, releaseCommit string

// buildInfo describes how the program was built.
type buildInfo struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"`
	Time      string `json:"commitTime,omitempty"`
	Modified  bool   `json:"modified,omitempty"` // built with uncommitted changes
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

func newVersionCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use: "version", Short: "Print the version", GroupID: groupCheck, Args: noArguments,
		Long:    "Print the version, the commit if it is known, the Go version and the platform.",
		Example: "  herald version\n  herald version -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := readBuildInfo()
			switch output {
			case "":
				_, err := fmt.Fprintln(cmd.OutOrStdout(), info)
				return err
			case "json":
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "    ")
				return encoder.Encode(info)
			default:
				return usageErrorf("--output %s: must be json or empty", output)
			}
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "output format: json")
	completeFlag(command, "output", "json")
	return command
}

func (b buildInfo) String() string {
	text := "herald " + b.Version
	if b.Commit != "" {
		text += ", commit " + b.Commit
	}
	if b.Modified {
		text += " with changes"
	}
	return fmt.Sprintf("%s, %s %s", text, b.GoVersion, b.Platform)
}

// version returns the released version, a pseudo-version or "devel".
func version() string { return readBuildInfo().Version }

func readBuildInfo() buildInfo {
	b := buildInfo{
		Version: cmp.Or(release, "devel"), Commit: releaseCommit,
		GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if release == "" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = setting.Value
		case "vcs.time":
			b.Time = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}
