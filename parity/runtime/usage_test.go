package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/containerd"
)

// containerd measures writable layers every ten seconds.
func TestEVI27_WritableLayer(t *testing.T) {
	c := containerd.ForTest(t)
	r, _ := newRuntime(t, c)
	pod, other := newPod("pause"), newPod("pause")
	container := run(t, r, pod).Containers[0].ID
	run(t, r, other)
	defer remove(t, r, pod)
	defer remove(t, r, other)
	text := strings.Repeat("x", 100_000)
	for range 10 {
		if output, code, err := r.Exec(t.Context(), container, testpod("note", "/big", text)); err != nil || code != 0 {
			t.Fatalf("exit code %d, error %v: %s", code, err, output)
		}
	}
	heraldtest.Eventually(t, func() error {
		usage, _, err := r.ContainerUsage(t.Context(), pod)
		if err == nil && usage["main"] < 1_000_000 {
			err = fmt.Errorf("got %v, want 1 MB of main", usage)
		}
		return err
	})
	if usage, _, err := r.ContainerUsage(t.Context(), other); err != nil || usage["main"] > 500_000 {
		t.Errorf("other pod: got %v, error %v", usage, err)
	}
}
