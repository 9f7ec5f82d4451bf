// Package readme_test runs the commands of the README and of the tutorial.
package readme_test

import (
	"strings"
	"testing"

	"github.com/heraldnode/herald/parity/internal/needs"
)

func TestReadme_Cluster(t *testing.T) {
	needs.Containers(t)
	needs.Kubectl(t)
	blocks := shellBlocks(t, readSection(t, "README.md", "In a cluster"))
	if len(blocks) != 1 || len(blocks[0].commands) != 6 {
		t.Fatalf("got README commands %q, want 6", blocks)
	}
	lines := blocks[0].commands
	for i := range lines {
		lines[i], _ = withoutComment(lines[i])
	}
	r := newRunner(t)
	r.open(t, lines[0]).waitFor(t, "The control plane is ready ...")
	r.open(t, lines[1]).waitFor(t, "containerd is ready ...")
	r.run(t, lines[2])
	r.open(t, lines[3]).waitFor(t, "... Starting node agent ...")
	watch := r.open(t, lines[5])
	r.run(t, lines[4])
	watch.waitFor(t, "... 1/1     Running ...")
	_, manifests, _ := strings.Cut(lines[4], "examples/web.yaml ")
	r.run(t, "rm "+manifests+"/web.yaml")
	watch.waitFor(t, "... Terminating ...")
}
