package heraldtest_test

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/podid"
)

func TestNewPod(t *testing.T) {
	pod := heraldtest.NewPod("web", heraldtest.OnNode("n1"), heraldtest.Static(podid.File),
		heraldtest.WithContainers(v1.Container{Name: "a"}, v1.Container{Name: "b"}))
	if !podid.IsStatic(pod) || podid.SourceOf(pod) != podid.File || pod.Spec.NodeName != "n1" || len(pod.Spec.Containers) != 2 {
		t.Fatalf("got %+v", pod)
	}
}

func TestEventually_RetriesUntilNil(t *testing.T) {
	calls := 0
	heraldtest.Eventually(t, func() error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if calls != 3 {
		t.Fatalf("condition was called %d times, want 3", calls)
	}
}
