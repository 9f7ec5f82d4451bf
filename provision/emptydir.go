package provision

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/provision/resolve"
)

// emptyDirMode lets every container in, as whatever user it runs.
const emptyDirMode os.FileMode = 0o777

// makeEmptyDir makes the folder once. From then on it is the containers': they may change its mode and owner.
func (p *Provisioner) makeEmptyDir(pod *v1.Pod, volume *v1.Volume) error {
	folder, err := p.folder(pod, volume)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o750); err != nil {
		return err
	}
	switch medium := volume.EmptyDir.Medium; medium {
	case v1.StorageMediumDefault:
		return makeOnDisk(folder, resolve.FSGroup(pod))
	case v1.StorageMediumMemory:
		size := resolve.EmptyDirMemorySize(pod, volume.EmptyDir, p.config.NodeInfo().Allocatable)
		return makeInMemory(folder, tmpfs{mode: emptyDirMode, group: resolve.FSGroup(pod), size: size})
	default:
		return fmt.Errorf(`emptyDir.medium: %q is not known here, use "" or Memory`, medium)
	}
}

// makeOnDisk prepares the folder under another name, which no volume can have: one that has its own name is complete.
func makeOnDisk(folder string, group *int64) error {
	info, err := os.Lstat(folder)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%s is not a folder", folder)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	above, err := os.OpenRoot(filepath.Dir(folder))
	if err != nil {
		return err
	}
	defer above.Close()
	name := filepath.Base(folder)
	making := "..new-" + name
	if err := above.Mkdir(making, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := share(above, making, emptyDirMode, group); err != nil {
		return err
	}
	return above.Rename(making, name)
}

// makeInMemory gives the mount its mode and group in the same step that makes it: what is mounted is complete.
func makeInMemory(folder string, with tmpfs) error {
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	isMounted, err := isTmpfs(folder)
	if err != nil || isMounted {
		return err
	}
	err = mountTmpfs(folder, with)
	if isNotAllowed(err) {
		return fmt.Errorf("emptyDir.medium: Memory needs a mount, which this process may not make (%w); "+
			"run it as root with CAP_SYS_ADMIN, or leave the medium out", err)
	}
	return err
}
