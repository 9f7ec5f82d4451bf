package cri_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cri"
)

// files are all below a folder.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if name, _ := filepath.Rel(dir, path); name != "." {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestNothingOfARemovedPodIsLeft(t *testing.T) {
	links := t.TempDir()
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].TerminationMessagePath = "/msg" })
		other := newPod(func(pod *v1.Pod) { pod.Name, pod.UID = "other", "uid-2" })
		before := files(w.T, w.root)
		c := w.run(pod)
		w.run(other)
		if got := files(w.T, links); !slices.Contains(got, "shop_prod_web-"+c.ID.ID+".log") || len(got) != 2 {
			w.Errorf("links to logs: %v", got)
		}
		if err := w.RemovePod(w.Context(), "uid-1"); err == nil {
			w.Error("a pod that runs was removed")
		}
		if c := w.only(pod); c.Exit != nil {
			w.Errorf("the container is %+v", c)
		}
		for _, one := range []*v1.Pod{pod, other} {
			if err := w.StopSandbox(w.Context(), w.inspect(one).Sandboxes[0].ID); err != nil {
				w.Fatal(err)
			}
		}
		w.fake.next("RemoveContainer", refuses(codes.NotFound, "gone"))
		if err := w.RemovePod(w.Context(), "uid-1"); err != nil {
			w.Fatal(err)
		}
		if len(files(w.T, links)) != 1 || len(w.inspect(other).Containers) != 1 {
			w.Error("another pod was removed too")
		}
		if err := w.RemovePod(w.Context(), "uid-2"); err != nil {
			w.Fatal(err)
		}
		if after := files(w.T, w.root); !slices.Equal(append(before, "logs", "pods"), after) {
			w.Errorf("left: %v", after)
		}
		if pods, err := w.ListPods(w.Context()); err != nil || len(pods) > 1 {
			w.Errorf("listed: %+v, %v", pods, err)
		}
		if err := w.RemovePod(w.Context(), "../uid-2"); err == nil {
			w.Error("a path is taken for a UID")
		}
	}, func(config *cri.Config) { config.ContainerLogDir = links })
}
