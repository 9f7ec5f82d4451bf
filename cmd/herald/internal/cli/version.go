package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build is what the program knows of its making.
type build struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"`
	Time      string `json:"commitTime,omitempty"`
	Modified  bool   `json:"modified,omitempty"` // built from more than the commit
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

func newVersion() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use: "version", Short: "Prints the version", Args: noArguments,
		Long:    "Prints the version, the commit that it was built from if that is known, and the Go that built it.",
		Example: "  herald version\n  herald version -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			made := readBuild()
			switch output {
			case "":
				_, err := fmt.Fprintln(cmd.OutOrStdout(), made)
				return err
			case "json":
				lines := json.NewEncoder(cmd.OutOrStdout())
				lines.SetIndent("", "    ")
				return lines.Encode(made)
			default:
				return usage("-o %s: want json, or leave it out", output)
			}
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "json")
	complete(command, "output", "json")
	return command
}

func (b build) String() string {
	text := "herald " + b.Version
	if b.Commit != "" {
		text += ", commit " + b.Commit
	}
	if b.Modified {
		text += " with changes"
	}
	return fmt.Sprintf("%s, %s %s", text, b.GoVersion, b.Platform)
}

// version is a released version, one made of a commit, or devel.
func version() string { return readBuild().Version }

func readBuild() build {
	b := build{Version: "devel", GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
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
