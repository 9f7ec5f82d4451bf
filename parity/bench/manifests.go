package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/source"
)

const manifests = 1000

// manifestCalls compares what a look at a folder of 1,000 manifests costs: when nothing changed, and when one file did.
func manifestCalls(_ context.Context, lab *Lab) ([]Row, error) {
	dir := lab.Folder
	for i := range manifests {
		if err := writeManifest(dir, i, "nginx:1"); err != nil {
			return nil, err
		}
	}
	theirs := kubelet.NewManifests(dir, "node")
	ours, err := source.NewFile(source.FileConfig{Path: dir, NodeName: "node"})
	if err != nil {
		return nil, fmt.Errorf("open the folder: %w", err)
	}
	kubeletLists := func() (int, error) { pods, err := theirs.List(); return len(pods), err }
	heraldLists := func() (int, error) { return len(ours.Scan().Pods), nil }
	edits := 0
	edit := func() error {
		edits++
		return writeManifest(dir, edits%manifests, fmt.Sprintf("nginx:%d", edits))
	}
	nobody := func() error { return nil }
	return compare(lab, []call{
		{
			name: "manifests_unchanged", what: "look at 1,000 manifests, none changed",
			kubelet: looks(nobody, kubeletLists), herald: looks(nobody, heraldLists),
		},
		{
			name: "manifests_one_changed", what: "look at 1,000 manifests, one changed",
			kubelet: looks(edit, kubeletLists), herald: looks(edit, heraldLists),
		},
	})
}

func looks(before func() error, look func() (int, error)) repeat {
	return func(n int) error {
		for range n {
			if err := before(); err != nil {
				return err
			}
			if pods, err := look(); err != nil || pods != manifests {
				return fmt.Errorf("%d pods of %d, %w", pods, manifests, err)
			}
		}
		return nil
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
