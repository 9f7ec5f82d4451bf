package cli_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/heraldnode/herald/cmd/herald/internal/cli"
)

// Under the name of a plugin of kubectl the usage, examples and hints begin with 'kubectl herald'. Under other names nothing changes.
func TestMain_KubectlPlugin(t *testing.T) {
	tests := map[string]struct {
		program, args string
		want          []string
	}{
		"help":            {"/usr/bin/kubectl-herald", "--help", []string{"  kubectl herald [command]", "\n  sudo kubectl herald status\n", `Use "kubectl herald [command]`}},
		"help of get":     {"kubectl-herald", "get --help", []string{"Usage:\n  kubectl herald get pods", "\n  kubectl herald get pods -A -w\n"}},
		"help command":    {"kubectl-herald", "help get", []string{"Usage:\n  kubectl herald get pods"}},
		"unknown command": {"kubectl-herald", "gte", []string{`unknown command "gte"; did you mean "get"?`, "See 'kubectl herald --help'"}},
		"unknown sub":     {"kubectl-herald", "config shwo", []string{`unknown command "config shwo"`, "See 'kubectl herald config --help'"}},
		"version":         {"kubectl-herald", "version", []string{"herald "}},
		"completion":      {"kubectl-herald", "__complete get p", []string{"pods\n"}},
		"another name":    {"/opt/herald-v1", "get --help", []string{"Usage:\n  herald get pods", "\n  herald get pods -A -w\n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var output bytes.Buffer
			cli.Main(append([]string{test.program}, strings.Fields(test.args)...), nil, &output, &output)
			for _, want := range test.want {
				if !strings.Contains(output.String(), want) {
					t.Errorf("got %s, want %q in it", output.String(), want)
				}
			}
		})
	}
}
