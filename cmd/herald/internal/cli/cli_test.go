package cli_test

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/cmd/herald/internal/cli"
)

// result is what a command did.
type result struct {
	status   int
	out, err string
}

func herald(args ...string) result { return heraldReading("", args...) }

func heraldReading(stdin string, args ...string) result {
	var out, errs bytes.Buffer
	status := cli.Main(args, strings.NewReader(stdin), &out, &errs)
	return result{status, out.String(), errs.String()}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWrongUsageHasItsOwnStatusAndARemedy(t *testing.T) {
	tests := map[string]struct {
		args []string
		says string
	}{
		"no source":             {[]string{"run"}, "--manifests"},
		"an unknown flag":       {[]string{"run", "--nonsense"}, "herald run --help"},
		"a flag's value":        {[]string{"run", "--node-ip", "x"}, "--node-ip"},
		"an argument":           {[]string{"run", "pods"}, "herald run takes flags only"},
		"an unknown command":    {[]string{"rnu"}, "did you mean run?"},
		"no command like it":    {[]string{"frobnicate"}, "herald --help"},
		"no help on that":       {[]string{"help", "rnu"}, "did you mean run?"},
		"nor on that":           {[]string{"help", "config", "shwo"}, `"config shwo"; did you mean show?`},
		"another shell":         {[]string{"completion", "tcsh"}, `there is no command "completion tcsh"`},
		"no manifest":           {[]string{"check"}, "name at least one"},
		"nothing to get":        {[]string{"get"}, "herald get pods"},
		"something else to get": {[]string{"get", "nodes"}, "knows pods only"},
		"both ways of naming":   {[]string{"get", "pods", "pod/web"}, "not both"},
		"no name":               {[]string{"get", "pod/"}, "knows pods only"},
		"a name and a label":    {[]string{"get", "pods", "web", "-l", "a=b"}, "not both"},
		"no selector":           {[]string{"get", "pods", "-l", "a=(b"}, "-l a=(b"},
		"no field selector":     {[]string{"get", "pods", "--field-selector", "a"}, "--field-selector a"},
		"a field of no use":     {[]string{"get", "pods", "--field-selector", "spec.x=y"}, `"spec.x" is no field`},
		"no pod's name":         {[]string{"get", "pods", ""}, "name is empty"},
		"no address":            {[]string{"get", "pods", "-s", "garbage"}, `--server: "garbage": want unix:///path or 127.0.0.1:port`},
		"nobody's address":      {[]string{"get", "pods", "-s", ""}, "want unix:///path"},
		"another machine":       {[]string{"get", "pods", "-s", "10.0.0.1:10255"}, "is not a loopback address"},
		"an encrypted one":      {[]string{"get", "pods", "-s", "https://127.0.0.1:1"}, "want unix:///path"},
		"impatience":            {[]string{"get", "pods", "--request-timeout", "-1s"}, "like 10s"},
		"an unknown format":     {[]string{"get", "pods", "-o", "xml"}, "wide, json, yaml or name"},
		"a format of version":   {[]string{"version", "-o", "xml"}, "want json"},
		"a demo that is over":   {[]string{"demo", "--for", "-1s"}, "like 30s"},
		"a port":                {[]string{"run", "--manifests", "/x", "--listen", "127.0.0.1:99999"}, "--listen: "},
		"no folder of drop-ins": {[]string{"run", "--manifests", "/x", "--config-dir", "/dev/null"}, "/dev/null: not a directory"},
		"a configuration":       {[]string{"run", "--config", write(t, "c.yaml", "apiVersion: heraldnode.github.io/v1alpha1\nkind: HeraldConfiguration\nstaticPodPaht: /x\n")}, "c.yaml:3: staticPodPaht: unknown field; did you mean staticPodPath?"},
		"a file that is gone":   {[]string{"run", "--config", "/nowhere/c.yaml"}, "/nowhere/c.yaml"},
		"no configuration":      {[]string{"config", "convert"}, "name one file"},
		"not the kubelet's":     {[]string{"config", "convert", write(t, "k.yaml", "kind: Pod\n")}, `k.yaml:1: is of apiVersion "", kind "Pod"`},
		"nothing to show":       {[]string{"config", "show"}, "--manifests"},
		"no such config":        {[]string{"config", "shwo"}, "did you mean show?"},
		"no kubeconfig":         {[]string{"run", "--kubeconfig", "/nowhere/k"}, "--kubeconfig: stat /nowhere/k"},
		"an empty kubeconfig":   {[]string{"run", "--kubeconfig", write(t, "k", "")}, "it names no cluster to talk to"},
		"an odd kubeconfig":     {[]string{"run", "--kubeconfig", write(t, "k", "a: [")}, "read the kubeconfig"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := herald(test.args...); got.status != 2 || !strings.Contains(got.err, test.says) {
				t.Errorf("exit status %d: %s", got.status, got.err)
			}
		})
	}
}

func TestWithoutARuntimeItSaysWhatToInstallAndLeavesNothing(t *testing.T) {
	silent := filepath.Join(t.TempDir(), "s")
	socket, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", silent)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	go func() { // somebody who is no container runtime
		for connection, err := socket.Accept(); err == nil; connection, err = socket.Accept() {
			_ = connection.Close()
		}
	}()
	for name, endpoint := range map[string]string{"nobody": "unix:///nowhere/containerd.sock", "somebody else": "unix://" + silent} {
		t.Run(name, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			got := herald("run", "--manifests", t.TempDir(), "--data-dir", data, "--runtime-endpoint", endpoint)
			for _, part := range []string{endpoint, "apt-get install containerd", "--runtime=process"} {
				if got.status != 1 || !strings.Contains(got.err, part) {
					t.Errorf("exit status %d, %q is not in: %s", got.status, part, got.err)
				}
			}
			if _, err := os.Stat(data); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the data folder: %v", err)
			}
		})
	}
}

func TestAnEndWhileItLooksForTheRuntimeIsNoFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	socket, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	go func() { // somebody who never answers
		if _, err := socket.Accept(); err == nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		}
	}()
	got := herald("run", "--manifests", t.TempDir(), "--data-dir", filepath.Join(t.TempDir(), "data"), "--runtime-endpoint", "unix://"+path)
	if got.status != 0 || got.err != "" {
		t.Errorf("exit status %d: %s", got.status, got.err)
	}
}

func TestF30ASecondAgentOnTheFolderIsRefused(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	held, err := checkpoint.Open(filepath.Join(data, "state"), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	got := herald("run", "--runtime=process", "--manifests", t.TempDir(), "--data-dir", data)
	if got.status != 1 || !strings.Contains(got.err, "--data-dir") {
		t.Errorf("exit status %d: %s", got.status, got.err)
	}
}

func TestAPlaceThatIsTakenIsNotListenedOn(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	got := herald("run", "--runtime=process", "--manifests", t.TempDir(), "--data-dir", filepath.Join(t.TempDir(), "data"),
		"--listen", taken.Addr().String())
	if got.status != 1 || !strings.Contains(got.err, "--listen") {
		t.Errorf("exit status %d: %s", got.status, got.err)
	}
}

func TestHelpTeaches(t *testing.T) {
	tests := map[string]struct {
		args []string
		says []string
	}{
		"nothing":        {[]string{}, []string{"Usage:", "herald demo"}},
		"help":           {[]string{"--help"}, []string{"Examples:", "herald check web.yaml", "What the exit statuses mean"}},
		"run":            {[]string{"run", "--help"}, []string{"Examples:", "--config-dir", "--node-labels"}},
		"get":            {[]string{"get", "--help"}, []string{"Examples:", "HERALD_SERVER", "--watch-only"}},
		"check":          {[]string{"check", "--help"}, []string{"Examples:", "standard input"}},
		"demo":           {[]string{"demo", "--help"}, []string{"Examples:", "--for"}},
		"version's":      {[]string{"version", "--help"}, []string{"Examples:"}},
		"exit statuses":  {[]string{"help", "exit"}, []string{"3  no agent answers"}},
		"the file":       {[]string{"help", "config"}, []string{"HeraldConfiguration", "registerWithTaints[].effect", "--manifests"}},
		"config":         {[]string{"config"}, []string{"HeraldConfiguration", "convert", "show"}},
		"config convert": {[]string{"config", "convert", "--help"}, []string{"Examples:", "standard input"}},
		"config show":    {[]string{"config", "show", "--help"}, []string{"Examples:", "--config-dir"}},
		"help on get":    {[]string{"help", "get", "pods"}, []string{"HERALD_SERVER"}},
		"help on help":   {[]string{"help", "--help"}, []string{"Help about any command"}},
		"--version":      {[]string{"--version"}, []string{"herald ", "go1."}},
		"topics of help": {[]string{"__complete", "help", ""}, []string{"check\t", "exit\t"}},
		"version":        {[]string{"version"}, []string{"herald ", "go1."}},
		"version, JSON":  {[]string{"version", "-o", "json"}, []string{`"goVersion": "go1.`}},
		"bash":           {[]string{"completion", "bash"}, []string{"__complete"}},
		"zsh":            {[]string{"completion", "zsh"}, []string{"__complete"}},
		"fish":           {[]string{"completion", "fish"}, []string{"__complete"}},
		"powershell":     {[]string{"completion", "powershell"}, []string{"__complete"}},
		"runtimes":       {[]string{"__complete", "run", "--runtime", ""}, []string{"cri\t", "process\t"}},
		"what to get":    {[]string{"__complete", "get", ""}, []string{"pods\n"}},
		"formats of get": {[]string{"__complete", "get", "pods", "-o", ""}, []string{"wide\njson\nyaml\nname\n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := herald(test.args...)
			for _, part := range test.says {
				if got.status != 0 || !strings.Contains(got.out, part) {
					t.Errorf("exit status %d, %q is not in: %s%s", got.status, part, got.out, got.err)
				}
			}
		})
	}
}
