package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE...", Short: "Says whether manifests would be accepted, and what is wrong with them where",
		Long: `Reads manifests of static pods as 'herald run --manifests' would: strictly. Each mistake is named with its file, line and
field. A folder stands for its files *.yaml, *.yml and *.json, and "-" for the standard input. The exit status is 1 if a
file would not be accepted.`,
		Example: `  herald check web.yaml
  herald check /etc/kubernetes/manifests
  sed s/TAG/v2/ web.yaml | herald check -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("name at least one manifest\nSee '%s --help'", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c := &checkup{out: cmd.OutOrStdout(), stdin: cmd.InOrStdin()}
			for _, arg := range args {
				c.look(arg)
			}
			if c.unwritten != nil {
				return fmt.Errorf("say what was found: %w", c.unwritten)
			}
			if c.bad > 0 {
				return fmt.Errorf("%d of %d would not be accepted", c.bad, c.files)
			}
			return nil
		},
	}
}

// checkup is one call of check.
type checkup struct {
	out        io.Writer
	stdin      io.Reader
	files, bad int
	unwritten  error // why somebody did not get to read all of it
}

func (c *checkup) say(format string, args ...any) {
	if _, err := fmt.Fprintf(c.out, format+"\n", args...); err != nil && c.unwritten == nil {
		c.unwritten = err
	}
}

// look checks a file, the files of a folder, or the standard input.
func (c *checkup) look(arg string) {
	files, err := manifestsOf(arg)
	if err != nil {
		c.files++
		c.bad++
		c.say("%v", err)
		return
	}
	if len(files) == 0 {
		c.say("%s: no manifest in this folder: none ends with %s", arg, strings.Join(extensions, ", "))
	}
	names := map[string]string{} // of the pods of a folder, which run side by side
	for _, file := range files {
		c.files++
		var err error
		if file != arg { // one that is named itself may also be a pipe, as the shell's <(...) is
			err = mustBeRegular(file)
		}
		if err == nil {
			err = c.file(file, names)
		}
		if err != nil {
			c.bad++
			c.say("%v", err)
		}
	}
}

// mustBeRegular refuses what a folder's reader refuses too. Nothing else has to answer when it is opened.
func mustBeRegular(file string) error {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: is no regular file, and nothing else is read in a folder", file)
	}
	return nil // also if it is gone, which is said when it is opened
}

// extensions of manifests in a folder.
var extensions = []string{".yaml", ".yml", ".json"}

func manifestsOf(arg string) ([]string, error) {
	if arg == "-" {
		return []string{arg}, nil
	}
	info, err := os.Stat(arg)
	var cause *fs.PathError
	if errors.As(err, &cause) {
		return nil, fmt.Errorf("%s: %w", arg, cause.Err)
	}
	if !info.IsDir() {
		return []string{arg}, nil
	}
	entries, err := os.ReadDir(arg)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		hidden := strings.HasPrefix(entry.Name(), ".")
		if !hidden && !entry.IsDir() && slices.Contains(extensions, strings.ToLower(filepath.Ext(entry.Name()))) {
			files = append(files, filepath.Join(arg, entry.Name()))
		}
	}
	return files, nil
}

// checkedNode is any node: its name is appended to those of the pods, and taken off again in what is shown.
const checkedNode = "node"

// file checks one manifest. It notes the names of its pods, so that none is there twice.
func (c *checkup) file(file string, names map[string]string) error {
	data, err := c.read(file)
	if err != nil {
		return err
	}
	pods, err := manifest.Decode(data, manifest.Origin{Location: file, Source: podid.File, NodeName: checkedNode})
	if err != nil {
		return err
	}
	var problems []error
	var valid []string
	for i, pod := range pods {
		for _, refused := range refusals(criconfig.Unsupported(pod)) {
			problems = append(problems, fmt.Errorf("%s:%d: %w", file, lineOf(data, i, fieldOf(refused)), refused))
		}
		name := pod.Namespace + "/" + strings.TrimSuffix(pod.Name, "-"+checkedNode)
		if other := names[name]; other != "" {
			problems = append(problems, fmt.Errorf("%s:%d: metadata.name: the pod %s is in %s already",
				file, lineOf(data, i, "metadata.name"), name, other))
		}
		names[name] = file
		valid = append(valid, name)
		for _, warning := range manifest.Warnings(pod) {
			c.say("%s: warning: %s", file, warning)
		}
	}
	for _, name := range valid {
		if len(problems) == 0 {
			c.say("%s: pod %s is valid", file, name)
		}
	}
	return errors.Join(problems...)
}

func refusals(err error) []error {
	var several utilerrors.Aggregate
	if errors.As(err, &several) {
		return several.Errors()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

func (c *checkup) read(file string) ([]byte, error) {
	from := c.stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		from = opened
	}
	return io.ReadAll(io.LimitReader(from, manifest.MaxBytes+1))
}
