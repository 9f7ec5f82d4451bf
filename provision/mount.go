package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/provision/resolve"
)

// Mount sees to it that all volumes of the pod are there, and that their files are what the API server and the pod say
// now. The error names each volume that has never been complete, and why, in the kubelet's words for events; one that was
// complete keeps its files if they cannot be brought up to date, and an event says so.
func (p *Provisioner) Mount(ctx context.Context, pod *v1.Pod) error {
	var failed []error
	for i := range pod.Spec.Volumes {
		if err := p.mountVolume(ctx, pod, &pod.Spec.Volumes[i]); err != nil {
			failed = append(failed, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", pod.Spec.Volumes[i].Name, err))
		}
	}
	return errors.Join(failed...)
}

func (p *Provisioner) mountVolume(ctx context.Context, pod *v1.Pod, volume *v1.Volume) error {
	begun := time.Now()
	plugin, err := pluginOf(volume)
	if err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case volume.HostPath != nil:
		err = prepareHostPath(volume.HostPath)
	case volume.EmptyDir != nil:
		err = p.makeEmptyDir(pod, volume)
	default:
		err = p.mountFiles(ctx, pod, volume)
	}
	p.metrics.mounted(plugin, begun, err)
	return err
}

// mountFiles makes or renews a volume whose files are written here.
func (p *Provisioner) mountFiles(ctx context.Context, pod *v1.Pod, volume *v1.Volume) error {
	folder, err := p.folder(pod, volume)
	if err != nil {
		return err
	}
	isComplete := hasFiles(folder)
	files, err := p.collect(ctx, pod, volume)
	if err == nil {
		err = p.write(pod, volume, folder, files)
	}
	if err != nil && isComplete && ctx.Err() == nil {
		p.tellStale(pod, volume, err)
		return nil
	}
	return err
}

func (p *Provisioner) tellStale(pod *v1.Pod, volume *v1.Volume, err error) {
	message := fmt.Sprintf("volume %q keeps its files, they could not be brought up to date: %v", volume.Name, err)
	p.config.Logger.Warn("a volume could not be brought up to date, it keeps its files",
		"pod", podid.FullNameOf(pod), "volume", volume.Name, "error", err)
	p.config.Events.Event(pod, v1.EventTypeWarning, "FailedMount", message)
}

func (p *Provisioner) write(pod *v1.Pod, volume *v1.Volume, folder string, files resolve.Files) error {
	group := resolve.FSGroup(pod)
	mode, err := p.makeFolder(volume, folder, group)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("open the volume's folder: %w", err)
	}
	defer root.Close()
	if err := share(root, ".", mode, group); err != nil {
		return err
	}
	return (&writer{root: root, group: group, nested: resolve.NestedMounts(pod, volume.Name)}).write(files)
}

// makeFolder makes the folder and returns the mode that it shall have. What may be secret is kept in memory if it can be,
// and else where only this process's user, and the pod's group, can enter.
func (p *Provisioner) makeFolder(volume *v1.Volume, folder string, group *int64) (os.FileMode, error) {
	if err := os.MkdirAll(filepath.Dir(folder), 0o750); err != nil {
		return 0, err
	}
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return 0, err
	}
	if info, err := os.Lstat(folder); err == nil && !info.IsDir() {
		return 0, fmt.Errorf("%s is not a folder", folder)
	}
	if volume.Secret == nil && volume.Projected == nil {
		return 0o755, nil
	}
	isMounted, err := isTmpfs(folder)
	if err != nil {
		return 0, err
	}
	// Files that are on disk already are in use: nothing is mounted over them.
	if !isMounted && !hasFiles(folder) && mayMount() {
		err := mountTmpfs(folder, tmpfs{mode: 0o755, private: true})
		if err != nil && !isNotAllowed(err) {
			return 0, err
		}
		isMounted = err == nil
	}
	switch {
	case isMounted:
		return 0o755, nil
	case group != nil:
		return 0o750, nil
	}
	return 0o700, nil
}
