package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/heraldnode/herald/cmd/herald/internal/config"
	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

func newCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE...", Short: "Validate static pod manifests and configurations", GroupID: groupCheck,
		Long: `Validate static pod manifests as strictly as 'herald run --manifests' does, and report each error with its file, line and
field. For a directory, its *.yaml, *.yml and *.json files are validated. "-" reads the standard input. The exit status
is 1 if a manifest would be rejected.

A file that is a configuration of 'herald run' is checked as by 'herald config check', including its certificates and ports.`,
		Example: `  herald check web.yaml
  herald check /etc/kubernetes/manifests
  herald check /etc/herald/config.yaml
  sed s/TAG/v2/ web.yaml | herald check -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("at least one FILE is required\nSee '%s --help' for usage", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c := &manifestChecker{out: cmd.OutOrStdout(), stdin: cmd.InOrStdin()}
			for _, arg := range args {
				if isConfiguration(arg) {
					c.checkConfiguration(cmd.Context(), arg)
				} else {
					c.check(arg)
				}
			}
			if c.writeErr != nil {
				return fmt.Errorf("write the results: %w", c.writeErr)
			}
			if c.failed > 0 {
				return fmt.Errorf("%d of %d files failed the check", c.failed, c.files)
			}
			return nil
		},
	}
}

// manifestChecker validates the manifests of one command line.
type manifestChecker struct {
	out           io.Writer
	stdin         io.Reader
	files, failed int
	writeErr      error // of the first failed write to out
}

func (c *manifestChecker) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(c.out, format+"\n", args...); err != nil && c.writeErr == nil {
		c.writeErr = err
	}
}

func isConfiguration(file string) bool {
	text, err := config.ReadFile(file) // only regular files
	return err == nil && config.IsConfiguration(text)
}

// checkConfiguration checks a configuration, its certificates and its ports.
func (c *manifestChecker) checkConfiguration(ctx context.Context, file string) {
	c.files++
	found, err := config.Check(ctx, file, "", config.Bind(pflag.NewFlagSet(file, pflag.ContinueOnError)), time.Now())
	if err != nil {
		found.Problems = []error{err} // has a line for each
	}
	for _, note := range found.Notes {
		c.printf("%s: %s", file, note)
	}
	for _, problem := range found.Problems {
		c.printf("%v", problem)
	}
	if len(found.Problems) > 0 {
		c.failed++
		return
	}
	c.printf("%s: configuration is valid", file)
}

// check validates a file, the manifests of a directory, or the standard input.
func (c *manifestChecker) check(arg string) {
	files, err := findManifests(arg)
	if err != nil {
		c.files++
		c.failed++
		c.printf("%v", err)
		return
	}
	if len(files) == 0 {
		c.printf("%s: no manifests in this directory: no file name ends with %s", arg, strings.Join(manifestExtensions, ", "))
	}
	definedIn := map[string]string{} // file by pod name: names must be unique in a directory
	for _, file := range files {
		c.files++
		var err error
		if file != arg { // a named file may be a pipe, like the shell's <(...)
			err = checkRegular(file)
		}
		if err == nil {
			err = c.checkFile(file, definedIn)
		}
		if err != nil {
			c.failed++
			c.printf("%v", err)
		}
	}
}

// checkRegular rejects pipes and devices, which the file source rejects too: opening one could block.
func checkRegular(file string) error {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file; a manifest directory must contain only regular files", file)
	}
	return nil // a missing file fails when it is opened
}

// manifestExtensions are the extensions of manifests in a directory.
var manifestExtensions = []string{".yaml", ".yml", ".json"}

func findManifests(arg string) ([]string, error) {
	if arg == "-" {
		return []string{arg}, nil
	}
	info, err := os.Stat(arg)
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return nil, fmt.Errorf("%s: %w", arg, pathErr.Err)
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
		isHidden := strings.HasPrefix(entry.Name(), ".")
		if !isHidden && !entry.IsDir() && slices.Contains(manifestExtensions, strings.ToLower(filepath.Ext(entry.Name()))) {
			files = append(files, filepath.Join(arg, entry.Name()))
		}
	}
	return files, nil
}

// checkNodeName is the node name with which manifests are decoded. It is trimmed from the names that are printed.
const checkNodeName = "node"

// checkFile validates one manifest and records its pods in definedIn.
func (c *manifestChecker) checkFile(file string, definedIn map[string]string) error {
	data, err := c.read(file)
	if err != nil {
		return err
	}
	pods, err := manifest.Decode(data, manifest.Origin{Location: file, Source: podid.File, NodeName: checkNodeName})
	if err != nil {
		return err
	}
	var problems []error
	var names []string
	for i, pod := range pods {
		for _, err := range splitErrors(criconfig.Unsupported(pod)) {
			problems = append(problems, fmt.Errorf("%s:%d: %w", file, fieldLine(data, i, errorField(err)), err))
		}
		name := pod.Namespace + "/" + strings.TrimSuffix(pod.Name, "-"+checkNodeName)
		if other := definedIn[name]; other != "" {
			problems = append(problems, fmt.Errorf("%s:%d: metadata.name: duplicate pod %s, already defined in %s",
				file, fieldLine(data, i, "metadata.name"), name, other))
		}
		definedIn[name] = file
		names = append(names, name)
		for _, warning := range manifest.Warnings(pod) {
			c.printf("%s: warning: %s", file, warning)
		}
	}
	for _, name := range names {
		if len(problems) == 0 {
			c.printf("%s: pod %s is valid", file, name)
		}
	}
	return errors.Join(problems...)
}

func splitErrors(err error) []error {
	var aggregate utilerrors.Aggregate
	if errors.As(err, &aggregate) {
		return aggregate.Errors()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

func (c *manifestChecker) read(file string) ([]byte, error) {
	reader := c.stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		reader = opened
	}
	return io.ReadAll(io.LimitReader(reader, manifest.MaxBytes+1))
}

// errorField returns the field path of a validation error, or "".
func errorField(err error) string {
	var fieldErr *field.Error
	if errors.As(err, &fieldErr) {
		return fieldErr.Field
	}
	return ""
}

var pathElement = regexp.MustCompile(`[^.\[\]]+`)

// fieldLine returns the line of a field of the i-th pod of a manifest, or of the field's nearest existing parent.
func fieldLine(data []byte, i int, path string) int {
	pods := podNodes(data)
	if i >= len(pods) {
		return 1
	}
	node, line := pods[i], pods[i].Line
	for _, name := range pathElement.FindAllString(path, -1) {
		var key *yaml.Node
		if key, node = childNode(node, name); node == nil {
			break
		}
		line = key.Line
	}
	return line
}

// podNodes returns the YAML nodes of the pods of a manifest, including those in lists, in order.
func podNodes(data []byte) []*yaml.Node {
	var pods []*yaml.Node
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		if decoder.Decode(&document) != nil {
			return pods
		}
		top := document.Content[0]
		if _, items := childNode(top, "items"); items != nil {
			pods = append(pods, items.Content...)
		} else if top.Kind == yaml.MappingNode {
			pods = append(pods, top)
		}
	}
}

// childNode returns the key and the value of a field of a mapping. For an item of a sequence both are the item. It returns nil
// if there is no such child.
func childNode(parent *yaml.Node, name string) (key, value *yaml.Node) {
	if parent.Kind == yaml.AliasNode {
		parent = parent.Alias
	}
	if index, err := strconv.Atoi(name); err == nil && parent.Kind == yaml.SequenceNode && index < len(parent.Content) {
		return parent.Content[index], parent.Content[index]
	}
	for i := 0; parent.Kind == yaml.MappingNode && i < len(parent.Content); i += 2 {
		if parent.Content[i].Value == name {
			return parent.Content[i], parent.Content[i+1]
		}
	}
	return nil, nil
}
