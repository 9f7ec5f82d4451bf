package agents

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// hierarchies are where cgroups are mounted: one of version 2, or one for each controller of version 1.
func hierarchies() []string {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil {
		return []string{root}
	}
	found, _ := filepath.Glob(root + "/*/cgroup.procs") // the pattern is right
	for i, file := range found {
		found[i] = filepath.Dir(file)
	}
	return found
}

func makeCgroup(name string) error {
	for _, hierarchy := range hierarchies() {
		if err := os.MkdirAll(filepath.Join(hierarchy, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroup removes the cgroup and those in it, the innermost first. The files in them cannot be removed, nor need they.
func removeCgroup(name string) error {
	var errs []error
	for _, hierarchy := range hierarchies() {
		var groups []string
		err := filepath.WalkDir(filepath.Join(hierarchy, name), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, group := range slices.Backward(groups) {
			if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
