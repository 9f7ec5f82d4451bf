package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/source"
)

const manifests = 1000

// Manifests compares what a look at a folder of 1,000 manifests costs: when nothing changed, and when one file did. The
// folder is made in dir.
func Manifests(dir string) ([]Case, error) {
	for i := range manifests {
		if err := writeManifest(dir, i, "nginx:1"); err != nil {
			return nil, err
		}
	}
	theirs := kubelet.NewManifests(dir, "node")
	ours, err := source.NewFile(source.FileConfig{Path: dir, Node: "node"})
	if err != nil {
		return nil, fmt.Errorf("open the folder: %w", err)
	}
	edits := 0
	edit := func(b *testing.B) {
		edits++
		if err := writeManifest(dir, edits%manifests, fmt.Sprintf("nginx:%d", edits)); err != nil {
			b.Fatal(err)
		}
	}
	nobody := func(*testing.B) {}
	kubeletLists := func(before func(*testing.B)) func(*testing.B) {
		return looks(before, func() (int, error) { pods, err := theirs.List(); return len(pods), err })
	}
	heraldLists := func(before func(*testing.B)) func(*testing.B) {
		return looks(before, func() (int, error) { return len(ours.Rescan().Pods), nil })
	}
	return []Case{
		{
			Name: "manifests_unchanged", What: "look at 1,000 manifests, none changed",
			Kubelet: kubeletLists(nobody), Herald: heraldLists(nobody),
		},
		{
			Name: "manifests_one_changed", What: "look at 1,000 manifests, one changed",
			Kubelet: kubeletLists(edit), Herald: heraldLists(edit),
		},
	}, nil
}

func looks(before func(*testing.B), look func() (int, error)) func(*testing.B) {
	return func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			before(b)
			if pods, err := look(); err != nil || pods != manifests {
				b.Fatalf("%d pods, %v", pods, err)
			}
		}
	}
}

func writeManifest(dir string, i int, image string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: web-%d
  labels: {app: web}
spec:
  containers:
  - name: main
    image: %s
    ports: [{containerPort: 80}]
    readinessProbe: {httpGet: {port: 80}}
    resources: {requests: {cpu: 10m, memory: 16Mi}}
`, i, image)
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("web-%04d.yaml", i)), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write a manifest: %w", err)
	}
	return nil
}
