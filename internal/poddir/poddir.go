// Package poddir locates the directories of pods.
package poddir

import (
	"os"
	"path/filepath"

	"github.com/heraldnode/herald/podid"
)

// Roots are the directories that contain the directories of pods.
type Roots struct {
	// Root contains the directories of new pods.
	Root string
	// Former contains the directories of pods that were started when another root was configured. Their containers have files
	// there mounted, so those pods stay there until they are removed. "" for none.
	Former string
}

// Of returns the directory of a pod, which need not exist. The UID must be a file name.
func (r Roots) Of(uid podid.UID) string { return filepath.Join(r.RootOf(uid), string(uid)) }

// RootOf returns the root that contains the pod's directory.
func (r Roots) RootOf(uid podid.UID) string {
	if r.Former == "" || exists(filepath.Join(r.Root, string(uid))) || !exists(filepath.Join(r.Former, string(uid))) {
		return r.Root
	}
	return r.Former
}

// All returns the roots.
func (r Roots) All() []string {
	if r.Former == "" {
		return []string{r.Root}
	}
	return []string{r.Root, r.Former}
}

func exists(dir string) bool {
	_, err := os.Lstat(dir)
	return err == nil
}
