package readme_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/heraldnode/herald/parity/internal/needs"
)

const tutorial = "docs/tutorial.md"

// runSection runs every command of a section of the tutorial.
func runSection(t *testing.T, r *runner, headline string) {
	t.Helper()
	defer r.stopPods(t)
	for _, b := range shellBlocks(t, readSection(t, tutorial, headline)) {
		r.runBlock(t, b)
	}
}

// TestTutorial_Complete checks that no command stands outside of the sections that the other tests run.
func TestTutorial_Complete(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, tutorial))
	if err != nil {
		t.Fatal(err)
	}
	inSections := len(shellBlocks(t, readSection(t, tutorial, "Without a cluster"))) + len(shellBlocks(t, readSection(t, tutorial, "In a cluster")))
	if all := len(shellBlocks(t, string(text))); all != inSections || all == 0 {
		t.Errorf("the tutorial has %d blocks of commands, and %d are run", all, inSections)
	}
}

func TestTutorial_WithoutCluster(t *testing.T) { runSection(t, newRunner(t), "Without a cluster") }

func TestTutorial_Cluster(t *testing.T) {
	needs.Containers(t)
	needs.Kubectl(t)
	runSection(t, newRunner(t, "10250", "10260"), "In a cluster")
}
