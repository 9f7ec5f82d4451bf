package cli_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/heraldnode/herald/cmd/herald/internal/cli"
)

const validPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: nginx}]}\n"

// Errors are reported with file, line and field, for files and for the standard input.
func TestCheck_File(t *testing.T) {
	list := "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(validPod), "\n", "\n  ") +
		"\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: db}\n  spec:\n    containers: [{name: main, image: nginx}]\n    hostUsers: false\n"
	tests := map[string]struct {
		manifest string
		status   int
		want     string
	}{
		"valid":             {validPod, 0, "pod.yaml: pod default/web is valid"},
		"unknown field":     {strings.Replace(validPod, "image:", "imagee:", 1), 1, "pod.yaml:4: spec.containers[0].imagee"},
		"invalid YAML":      {"a: [", 1, "pod.yaml:2: not valid YAML"},
		"empty":             {"", 1, "pod.yaml: contains no Pod or PodList"},
		"unsupported field": {strings.Replace(validPod, "spec: {", "spec: {hostUsers: false, ", 1), 1, "pod.yaml:4: spec.hostUsers"},
		"list":              {list, 1, "pod.yaml:13: spec.hostUsers"},
		"missing name":      {strings.Replace(validPod, "name: main, ", "", 1), 1, "spec.containers[0].name"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := runHerald("check", writeFile(t, "pod.yaml", test.manifest))
			if got.status != test.status || !strings.Contains(got.stdout, test.want) {
				t.Errorf("got exit status %d, output %s%s, want %d, %q", got.status, got.stdout, got.stderr, test.status, test.want)
			}
			got, want := runHeraldWithInput(test.manifest, "check", "-"), strings.Replace(test.want, "pod.yaml", "-", 1)
			if got.status != test.status || !strings.Contains(got.stdout, want) {
				t.Errorf("standard input: got exit status %d, output %s%s, want %d, %q", got.status, got.stdout, got.stderr, test.status, want)
			}
		})
	}
}

func TestCheck_Directory(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.yaml": validPod, "b.yml": strings.Replace(validPod, "web}", "db}", 1), "c.json": `{"kind": "Pod"}`, "d.YAML": validPod,
		"e.yaml.bak": "x", ".f.yaml": "x", "README": "x",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	got := runHerald("check", ".", "nowhere")
	for _, part := range []string{
		"a.yaml: pod default/web is valid\nb.yml: pod default/db is valid\n", "c.json:1: ",
		"d.YAML:3: metadata.name: duplicate pod default/web, already defined in a.yaml", "nowhere: no such file or directory",
	} {
		if !strings.Contains(got.stdout, part) {
			t.Errorf("got output %s, want %q", got.stdout, part)
		}
	}
	if got.status != 1 || got.stderr != "herald: 3 of 5 files failed the check\n" {
		t.Errorf("got exit status %d, error %q", got.status, got.stderr)
	}
	if got := runHerald("check", t.TempDir()); got.status != 0 || !strings.Contains(got.stdout, "no manifests in this directory") {
		t.Errorf("empty directory: got exit status %d, output %q", got.status, got.stdout)
	}
}

// A configuration is checked with its certificates and ports.
func TestCheck_Configuration(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	dir := t.TempDir()
	text := configHeader + "staticPodPath: " + dir + "\ndataDir: " + dir + "/data\nlisten: unix://" + dir + "/s\n"
	file := writeFile(t, "herald.yaml", text)
	for _, command := range [][]string{{"check", file}, {"config", "check", "--config", file}} {
		if got := runHerald(command...); got.status != 0 || got.stdout == "" {
			t.Errorf("%v: got %+v", command, got)
		}
	}
	if err := os.WriteFile(file, []byte(text+"healthzPort: "+port+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s:6: healthzPort: 127.0.0.1:%s is used by process %d", file, port, os.Getpid())
	for _, command := range [][]string{{"check", file}, {"config", "check", "--config", file}} {
		if got := runHerald(command...); got.status != 1 || !strings.Contains(got.stdout, want) || !strings.Contains(got.stdout, "set another healthzPort") {
			t.Errorf("%v: got %+v, want 1, %s", command, got, want)
		}
	}
	if err := os.WriteFile(file, []byte(text+"healthzPort: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runHerald("check", file); got.status != 1 || !strings.Contains(got.stdout, file+":6: healthzPort: ") {
		t.Errorf("invalid: got %+v", got)
	}
	if got := runHerald("config", "check", "--config", file); got.status != 2 || !strings.Contains(got.stderr, file+":6: healthzPort: ") {
		t.Errorf("invalid: got %+v", got)
	}
}

// A pipe in a directory does not block.
func TestCheck_PipeInDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runHerald("check", dir); got.status != 1 || !strings.Contains(got.stdout, "pipe.yaml: not a regular file") {
		t.Errorf("got exit status %d, output %q, want 1, not a regular file", got.status, got.stdout)
	}
}

func TestCheck_WriteFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	var stderr strings.Builder
	status := cli.Main([]string{"herald", "check", writeFile(t, "pod.yaml", validPod)}, nil, full, &stderr)
	if status != 1 || !strings.Contains(stderr.String(), "no space left") {
		t.Errorf("got exit status %d, error %q, want 1, no space left", status, stderr.String())
	}
}
