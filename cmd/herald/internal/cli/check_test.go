package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/heraldnode/herald/cmd/herald/internal/cli"
)

const goodPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: nginx}]}\n"

func TestCheckNamesFileLineAndField(t *testing.T) {
	unsupported := "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(goodPod), "\n", "\n  ") +
		"\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: db}\n  spec:\n    containers: [{name: main, image: nginx}]\n    hostUsers: false\n"
	tests := map[string]struct {
		text   string
		status int
		says   string
	}{
		"good":             {goodPod, 0, "pod.yaml: pod default/web is valid"},
		"a typo":           {strings.Replace(goodPod, "image:", "imagee:", 1), 1, "pod.yaml:4: spec.containers[0].imagee"},
		"no YAML":          {"a: [", 1, "pod.yaml:2: not valid YAML"},
		"nothing":          {"", 1, "pod.yaml: no pod"},
		"what is not done": {strings.Replace(goodPod, "spec: {", "spec: {hostUsers: false, ", 1), 1, "pod.yaml:4: spec.hostUsers"},
		"in a list":        {unsupported, 1, "pod.yaml:13: spec.hostUsers"},
		"a missing name":   {strings.Replace(goodPod, "name: main, ", "", 1), 1, "spec.containers[0].name"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := herald("check", write(t, "pod.yaml", test.text)); got.status != test.status || !strings.Contains(got.out, test.says) {
				t.Errorf("exit status %d, says %s%s\nwant %s", got.status, got.out, got.err, test.says)
			}
			if got := heraldReading(test.text, "check", "-"); got.status != test.status ||
				!strings.Contains(got.out, strings.Replace(test.says, "pod.yaml", "-", 1)) {
				t.Errorf("of the standard input: exit status %d, says %s%s", got.status, got.out, got.err)
			}
		})
	}
}

func TestCheckReadsAFolderAsRunWould(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": goodPod, "b.yml": strings.Replace(goodPod, "web}", "db}", 1), "c.json": `{"kind": "Pod"}`, "d.YAML": goodPod,
		"e.yaml.bak": "x", ".f.yaml": "x", "README": "x",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(folder)
	got := herald("check", ".", "nowhere")
	for _, part := range []string{
		"a.yaml: pod default/web is valid\nb.yml: pod default/db is valid\n", "c.json:1: ", "d.YAML:3: metadata.name: the pod default/web is in a.yaml already", "nowhere: no such file or directory",
	} {
		if !strings.Contains(got.out, part) {
			t.Errorf("%q is not in: %s", part, got.out)
		}
	}
	if got.status != 1 || got.err != "herald: 3 of 5 would not be accepted\n" {
		t.Errorf("exit status %d: %s", got.status, got.err)
	}
	if got := herald("check", t.TempDir()); got.status != 0 || !strings.Contains(got.out, "no manifest in this folder") {
		t.Errorf("of an empty folder: exit status %d: %s", got.status, got.out)
	}
}

func TestCheckIsNotHeldUpByAPipeInAFolder(t *testing.T) {
	folder := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(folder, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := herald("check", folder); got.status != 1 || !strings.Contains(got.out, "pipe.yaml: is no regular file") {
		t.Errorf("exit status %d: %s", got.status, got.out)
	}
}

func TestACheckThatNobodyCouldReadIsNoSuccess(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	var errs strings.Builder
	if status := cli.Main([]string{"check", write(t, "pod.yaml", goodPod)}, nil, full, &errs); status != 1 || !strings.Contains(errs.String(), "no space left") {
		t.Errorf("exit status %d: %s", status, errs.String())
	}
}
