package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldnode/herald/cmd/herald/internal/cli"
	"github.com/heraldnode/herald/process"
)

// actAsHerald is the environment variable that makes the test binary act as the herald command.
const actAsHerald = "HERALD_TEST_ACT_AS_HERALD"

func TestMain(m *testing.M) {
	if process.IsShim() { // of a pod of an agent that a test has started
		process.ShimMain()
	}
	if os.Getenv(actAsHerald) != "" {
		os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// result is the outcome of a command.
type result struct {
	status         int
	stdout, stderr string
}

func runHerald(args ...string) result { return runHeraldWithInput("", args...) }

func runHeraldWithInput(stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	status := cli.Main(append([]string{"herald"}, args...), strings.NewReader(stdin), &stdout, &stderr)
	return result{status, stdout.String(), stderr.String()}
}

// writeFile writes a file to a new directory and returns its path.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// shortTempDir returns a directory for sockets, whose paths must be short.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "herald") //nolint:usetesting // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

const configHeader = "apiVersion: heraldnode.github.io/v1alpha1\nkind: HeraldConfiguration\n"

// Usage errors have their own exit status and name the remedy.
func TestMain_UsageErrors(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"run without source":        {[]string{"run"}, "--manifests"},
		"unknown flag":              {[]string{"run", "--nonsense"}, "herald run --help"},
		"invalid flag value":        {[]string{"run", "--node-ip", "x"}, "--node-ip"},
		"unexpected argument":       {[]string{"run", "pods"}, `unexpected argument "pods": herald run takes only flags`},
		"unknown command":           {[]string{"rnu"}, `unknown command "rnu"; did you mean "run"?`},
		"no similar command":        {[]string{"frobnicate"}, "herald --help"},
		"help of unknown command":   {[]string{"help", "rnu"}, `did you mean "run"?`},
		"help of unknown sub":       {[]string{"help", "config", "shwo"}, `"config shwo"; did you mean "show"?`},
		"unknown shell":             {[]string{"completion", "tcsh"}, `unknown command "completion tcsh"`},
		"check without file":        {[]string{"check"}, "at least one FILE is required"},
		"get without resource":      {[]string{"get"}, "herald get pods"},
		"get other resource":        {[]string{"get", "nodes"}, `unknown resource "nodes": only pods are supported`},
		"get both forms":            {[]string{"get", "pods", "pod/web"}, "not both"},
		"get without name":          {[]string{"get", "pod/"}, "only pods are supported"},
		"get name and selector":     {[]string{"get", "pods", "web", "-l", "a=b"}, "cannot be combined with the names"},
		"invalid label selector":    {[]string{"get", "pods", "-l", "a=(b"}, "--selector a=(b"},
		"invalid field selector":    {[]string{"get", "pods", "--field-selector", "a"}, "--field-selector a"},
		"unsupported field":         {[]string{"get", "pods", "--field-selector", "spec.x=y"}, "field label not supported: spec.x"},
		"empty pod name":            {[]string{"get", "pods", ""}, "must not be empty"},
		"invalid server":            {[]string{"get", "pods", "-s", "garbage"}, `--server: "garbage": must be unix:///path or 127.0.0.1:port`},
		"empty server":              {[]string{"get", "pods", "-s", ""}, "must be unix:///path"},
		"server on another machine": {[]string{"get", "pods", "-s", "10.0.0.1:10255"}, "is not a loopback address"},
		"server with TLS":           {[]string{"get", "pods", "-s", "https://127.0.0.1:1"}, "must be unix:///path"},
		"server with invalid port":  {[]string{"get", "pods", "-s", "127.0.0.1:x"}, "the port must be between 0 and 65535"},
		"negative request timeout":  {[]string{"get", "pods", "--request-timeout", "-1s"}, "--request-timeout -1s: must not be negative"},
		"unknown output format":     {[]string{"get", "pods", "-o", "xml"}, "wide, json, yaml, name, jsonpath=TEMPLATE or why"},
		"invalid JSONPath":          {[]string{"get", "pods", "-o", "jsonpath={.a"}, "unclosed action"},
		"JSONPath without template": {[]string{"get", "pods", "-o", "jsonpath"}, "jsonpath=TEMPLATE"},
		"where and names":           {[]string{"get", "pods", "web", "--where", "true"}, "--where cannot be combined"},
		"watch where as JSON":       {[]string{"get", "pods", "-w", "--where", "true", "-o", "json"}, "--where with --watch supports"},
		"explain without pod":       {[]string{"explain"}, "the name of one pod is required"},
		"explain two pods":          {[]string{"explain", "pod", "a", "b"}, "the name of one pod is required"},
		"explain other resource":    {[]string{"explain", "svc/a"}, "only pods are supported"},
		"describe other resource":   {[]string{"describe", "svc", "a"}, "only pods"},
		"wait without for":          {[]string{"wait", "pod", "a"}, "--for is required"},
		"wait without pods":         {[]string{"wait", "pod", "--for=delete"}, "name pods, or select them"},
		"wait all and names":        {[]string{"wait", "pod", "a", "--all", "--for=delete"}, "--all cannot be combined"},
		"wait for what":             {[]string{"wait", "pod", "a", "--for=ready"}, "--for ready: must be condition="},
		"wait for unknown phase":    {[]string{"wait", "pod", "a", "--for=phase=Ready"}, "must be Pending, Running"},
		"wait for invalid JSONPath": {[]string{"wait", "pod", "a", "--for=jsonpath={.a}b"}, "must be followed by =VALUE"},
		"restart without reason":    {[]string{"restart", "pod", "a"}, "--reason is required"},
		"probe kind":                {[]string{"probe", "a", "--kind", "x"}, "startup, readiness or liveness"},
		"sources argument":          {[]string{"sources", "x"}, "takes only flags"},
		"unknown version format":    {[]string{"version", "-o", "xml"}, "must be json"},
		"negative demo duration":    {[]string{"demo", "--for", "-1s"}, "--for -1s: must not be negative"},
		"invalid listen port":       {[]string{"run", "--manifests", "/x", "--listen", "127.0.0.1:99999"}, "--listen: "},
		"drop-ins not a directory":  {[]string{"run", "--manifests", "/x", "--config-dir", "/dev/null"}, "/dev/null: not a directory"},
		"invalid configuration":     {[]string{"run", "--config", writeFile(t, "c.yaml", configHeader+"staticPodPaht: /x\n")}, `c.yaml:3: staticPodPaht: unknown field; did you mean "staticPodPath"?`},
		"missing configuration":     {[]string{"run", "--config", "/nowhere/c.yaml"}, "/nowhere/c.yaml"},
		"convert without file":      {[]string{"config", "convert"}, "exactly one FILE is required"},
		"convert other kind":        {[]string{"config", "convert", writeFile(t, "k.yaml", "kind: Pod\n")}, `k.yaml:1: unexpected apiVersion "", kind "Pod"`},
		"show without source":       {[]string{"config", "show"}, "--manifests"},
		"unknown config command":    {[]string{"config", "shwo"}, `did you mean "show"?`},
		"missing kubeconfig":        {[]string{"run", "--kubeconfig", "/nowhere/k"}, "--kubeconfig: stat /nowhere/k"},
		"empty kubeconfig":          {[]string{"run", "--kubeconfig", writeFile(t, "k", "")}, "it defines no cluster"},
		"invalid kubeconfig":        {[]string{"run", "--kubeconfig", writeFile(t, "k", "a: [")}, "read kubeconfig"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := runHerald(test.args...); got.status != 2 || !strings.Contains(got.stderr, test.want) {
				t.Errorf("got exit status %d, error %q, want 2, %q", got.status, got.stderr, test.want)
			}
		})
	}
}

func TestMain_HelpAndCompletion(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string
	}{
		"no arguments":     {[]string{}, []string{"Usage:", "herald demo"}},
		"root":             {[]string{"--help"}, []string{"Examples:", "herald check web.yaml", "List the exit statuses", "Ask a running agent:\n  actions ", "Run pods:\n  attach ", "Check and configure:\n  check "}},
		"run":              {[]string{"run", "--help"}, []string{"Examples:", "--config-dir", "--node-labels"}},
		"get":              {[]string{"get", "--help"}, []string{"Examples:", "HERALD_SERVER", "--watch-only"}},
		"check":            {[]string{"check", "--help"}, []string{"Examples:", "standard input"}},
		"demo":             {[]string{"demo", "--help"}, []string{"Examples:", "--for"}},
		"version help":     {[]string{"version", "--help"}, []string{"Examples:"}},
		"exit statuses":    {[]string{"help", "exit"}, []string{"3  the agent is unreachable"}},
		"config topic":     {[]string{"help", "config"}, []string{"HeraldConfiguration", "registerWithTaints[].effect", "--manifests"}},
		"config":           {[]string{"config"}, []string{"HeraldConfiguration", "convert", "show"}},
		"config convert":   {[]string{"config", "convert", "--help"}, []string{"Examples:", "standard input"}},
		"config show":      {[]string{"config", "show", "--help"}, []string{"Examples:", "--config-dir"}},
		"help of get pods": {[]string{"help", "get", "pods"}, []string{"HERALD_SERVER"}},
		"help of help":     {[]string{"help", "--help"}, []string{"Print help about any command"}},
		"version flag":     {[]string{"--version"}, []string{"herald ", "go1."}},
		"version":          {[]string{"version"}, []string{"herald ", "go1."}},
		"version as JSON":  {[]string{"version", "-o", "json"}, []string{`"goVersion": "go1.`}},
		"bash":             {[]string{"completion", "bash"}, []string{"__complete"}},
		"zsh":              {[]string{"completion", "zsh"}, []string{"__complete"}},
		"fish":             {[]string{"completion", "fish"}, []string{"__complete"}},
		"powershell":       {[]string{"completion", "powershell"}, []string{"__complete"}},
		"complete help":    {[]string{"__complete", "help", ""}, []string{"check\t", "exit\t"}},
		"complete runtime": {[]string{"__complete", "run", "--runtime", ""}, []string{"cri\t", "process\t"}},
		"complete get":     {[]string{"__complete", "get", ""}, []string{"pods\n"}},
		"complete output":  {[]string{"__complete", "get", "pods", "-o", ""}, []string{"wide\njson\nyaml\nname\njsonpath=\nwhy\n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := runHerald(test.args...)
			for _, part := range test.want {
				if got.status != 0 || !strings.Contains(got.stdout, part) {
					t.Errorf("got exit status %d, output %s%s, want 0, %q", got.status, got.stdout, got.stderr, part)
				}
			}
		})
	}
}
