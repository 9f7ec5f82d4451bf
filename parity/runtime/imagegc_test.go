package runtime_test

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/imagegc"
	"github.com/heraldnode/herald/imagegc/manager"
	"github.com/heraldnode/herald/parity/containerd"
)

// TestIGC14_Containerd removes the unused images of a real containerd, and nothing else: IGC-3, IGC-4, IGC-9.
func TestIGC14_Containerd(t *testing.T) {
	c := containerd.ForTest(t)
	r, _ := newRuntime(t, c)
	const unused, ended, pinned = "test.local/unused:1", "test.local/ended:1", "test.local/pinned:1"
	for _, reference := range []string{unused, ended, pinned} {
		if err := c.ImportImage(t.Context(), reference, c.Testpod(), "exit", reference); err != nil { // other arguments, another image
			t.Fatal(err)
		}
	}
	pin(t, c, pinned)
	running, exited := newPod("pause"), newPod("exit", "0")
	exited.Spec.Containers[0].Image = ended
	run(t, r, running)
	defer remove(t, r, running)
	run(t, r, exited)

	collector, err := manager.New(manager.Config{
		NodeName: "n1", Runtime: r, Policy: imagegc.Policy{HighThresholdPercent: 1, LowThresholdPercent: 0},
	})
	if err != nil {
		t.Fatal(err)
	}
	reclaim := func(want ...string) {
		t.Helper()
		if err := collector.ReclaimImages(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := imageNames(t, r); !slices.Equal(got, want) {
			t.Fatalf("got images %v, want %v", got, want)
		}
	}
	keeps := []string{containerd.SandboxImage, containerd.TestpodImage, ended}
	if knowsPinned(t, r) { // containerd 1.6 does not
		keeps = append(keeps, pinned)
	}
	slices.Sort(keeps)
	reclaim(keeps...) // an image of a container that has exited is in use: the container may be restarted
	remove(t, r, exited)
	reclaim(slices.DeleteFunc(keeps, func(name string) bool { return name == ended })...)

	again := newPod("pause") // what is left works
	run(t, r, again)
	remove(t, r, again)
	if usage, err := r.ImageFileSystem(t.Context()); err != nil || usage.Bytes.Capacity <= 0 || usage.Bytes.Available <= 0 {
		t.Errorf("got file system %+v, error %v", usage, err)
	}
}

// pin protects the image from removal, as an operator does.
func pin(t *testing.T, c *containerd.Containerd, reference string) {
	t.Helper()
	ctr := exec.CommandContext(t.Context(), "ctr", "-a", c.Dir()+"/containerd.sock", "-n", "k8s.io", "images", "label", reference,
		"io.cri-containerd.pinned=pinned")
	if output, err := ctr.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

// knowsPinned reports whether the runtime says which images are pinned.
func knowsPinned(t *testing.T, r *cri.Runtime) bool {
	t.Helper()
	images, err := r.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(images, func(image imagegc.Image) bool { return image.Pinned })
}

// imageNames returns the tags of all images, sorted.
func imageNames(t *testing.T, r *cri.Runtime) []string {
	t.Helper()
	images, err := r.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, image := range images {
		names = append(names, image.Names[0])
	}
	slices.Sort(names)
	return names
}
