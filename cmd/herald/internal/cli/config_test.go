package cli_test

import (
	"strings"
	"testing"
)

func TestConfigConvertPrintsOursAndNamesWhatItLeavesOut(t *testing.T) {
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 20\nevictionHard: {memory.available: 1Gi}\n"
	ours := "apiVersion: heraldnode.github.io/v1alpha1\nkind: HeraldConfiguration\nmaxPods: 20\n"
	file := write(t, "kubelet.yaml", text)
	want := result{0, ours, file + ":4: evictionHard: left out: Herald tells pressure and evicts nothing\n"}
	if got := herald("config", "convert", file); got != want {
		t.Errorf("%+v", got)
	}
	want.err = strings.Replace(want.err, file, "-", 1)
	if got := heraldReading(text, "config", "convert", "-"); got != want {
		t.Errorf("of the standard input: %+v", got)
	}
	if got := heraldReading(strings.Repeat("#\n", 1<<20), "config", "convert", "-"); got.status != 2 || !strings.Contains(got.err, "more than") {
		t.Errorf("of too much: %+v", got)
	}
}

func TestConfigShowPrintsWhatRunWouldBeTold(t *testing.T) {
	file := write(t, "c.yaml", "apiVersion: heraldnode.github.io/v1alpha1\nkind: HeraldConfiguration\nmaxPods: 20\n")
	got := herald("config", "show", "--config", file, "--manifests", "/m", "-v4")
	for _, line := range []string{"maxPods: 20\n", "staticPodPath: /m\n", "  verbosity: 4\n", "kubeAPIQPS: 50\n"} {
		if got.status != 0 || got.err != "" || !strings.Contains(got.out, line) {
			t.Errorf("exit status %d, %q is not in: %s%s", got.status, line, got.out, got.err)
		}
	}
}
