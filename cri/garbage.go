package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/internal/nolinks"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// minGarbageAge protects new objects, which their creator may not have reported yet.
const minGarbageAge = time.Minute

// CollectGarbage removes the remains of exited containers and sandboxes, and the logs of pods that no longer exist. It limits the
// size of hosts files and termination messages, to which containers write. Call it every minute. isWanted reports whether
// anything of the pod may still be requested: it runs, it terminates, it has terminated and was not deleted, or a source that
// is not ready yet may want it. It is called after the runtime was listed. An object that cannot be removed does not stop the
// removal of others; the error joins all failures. Package imagegc/manager collects
// images.
func (r *Runtime) CollectGarbage(ctx context.Context, isWanted func(podid.UID) bool) error {
	if isWanted == nil {
		return errors.New("cri: collect garbage: isWanted is required")
	}
	pods, err := r.ListPods(ctx)
	if err != nil {
		return fmt.Errorf("cri: collect garbage: %w", err)
	}
	now := time.Now()
	err = errors.Join(
		r.removeGarbage(ctx, findGarbage(pods, isWanted, now)),
		r.removeOrphanedLogs(pods, isWanted, now),
		r.removeDanglingLinks(pods, now),
		r.prunePullRecords(ctx),
		r.trimPodFiles())
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("cri: collect garbage: %w", err)
	}
	return nil
}

// prunePullRecords removes the pull records of images that the node no longer has.
func (r *Runtime) prunePullRecords(ctx context.Context) error {
	return r.pullManager.Prune(func() ([]string, error) { return r.imageIDs(ctx) })
}

// garbage lists the objects to remove, containers before their sandboxes.
type garbage struct {
	containers []garbageContainer
	sandboxes  []observed.Sandbox
}

type garbageContainer struct {
	observed.Container
	pod *observed.Pod
}

// findGarbage selects what the kubelet selects by default. A wanted pod keeps the newest exited instance of each container,
// which is its last state, and the newest sandbox; any other pod keeps nothing. Running and new objects are never garbage.
func findGarbage(pods []*observed.Pod, isWanted func(podid.UID) bool, now time.Time) garbage {
	var found garbage
	for _, pod := range pods {
		if isWanted(pod.UID) {
			found.addSurplus(pod)
		} else {
			found.addAll(pod, now.Add(-minGarbageAge))
		}
	}
	return found
}

// addSurplus adds older exited instances and older sandboxes. Containers that never ran are left to StartContainer.
func (g *garbage) addSurplus(pod *observed.Pod) {
	hasExited, inUse := map[string]bool{}, map[string]bool{} // by container name, by sandbox ID
	for _, container := range pod.Containers {               // newest first
		if container.State == observed.Exited && hasExited[container.Name] {
			g.containers = append(g.containers, garbageContainer{container, pod})
			continue
		}
		hasExited[container.Name] = hasExited[container.Name] || container.State == observed.Exited
		inUse[container.SandboxID] = true
	}
	for i, sandbox := range pod.Sandboxes { // newest first
		if i > 0 && !sandbox.Ready && !inUse[sandbox.ID] {
			g.sandboxes = append(g.sandboxes, sandbox)
		}
	}
}

// addAll adds everything that does not run and was created before the deadline.
func (g *garbage) addAll(pod *observed.Pod, deadline time.Time) {
	inUse := map[string]bool{} // by sandbox ID
	for _, container := range pod.Containers {
		if container.State == observed.Running || container.CreatedAt.After(deadline) {
			inUse[container.SandboxID] = true
			continue
		}
		g.containers = append(g.containers, garbageContainer{container, pod})
	}
	for _, sandbox := range pod.Sandboxes {
		if !sandbox.Ready && !inUse[sandbox.ID] && !sandbox.CreatedAt.After(deadline) {
			g.sandboxes = append(g.sandboxes, sandbox)
		}
	}
}

func (r *Runtime) removeGarbage(ctx context.Context, found garbage) error {
	var errs []error
	inUse := map[string]bool{} // sandboxes whose containers could not be removed
	for _, container := range found.containers {
		if err := r.removeGarbageContainer(ctx, container); err != nil {
			errs = append(errs, err)
			inUse[container.SandboxID] = true
		}
	}
	for _, sandbox := range found.sandboxes {
		if !inUse[sandbox.ID] {
			errs = append(errs, r.removeSandbox(ctx, sandbox.ID))
		}
	}
	return errors.Join(errs...)
}

// removeGarbageContainer removes a container and its files. A container in an unknown state may run, so it is stopped first.
func (r *Runtime) removeGarbageContainer(ctx context.Context, container garbageContainer) error {
	if container.State == observed.Unknown {
		if err := r.StopContainer(ctx, nil, plan.Stop{ID: container.ID}); err != nil {
			return err
		}
	}
	if err := r.removeContainer(ctx, container.pod.UID, container.ID.ID); err != nil {
		return err
	}
	return errors.Join(r.unlinkLogs([]string{container.ID.ID}), r.removeInstanceFiles(container))
}

// removeInstanceFiles removes the instance's log, including rotated ones, and its termination message. If a lost restart count
// was used twice, another instance has the same files; then they are removed with the pod.
func (r *Runtime) removeInstanceFiles(container garbageContainer) error {
	pod := container.pod
	for _, other := range pod.Containers {
		if other.Name == container.Name && other.RestartCount == container.RestartCount && other.ID != container.ID {
			return nil
		}
	}
	logDir := pod.Name.Namespace + "_" + pod.Name.Name + "_" + string(pod.UID)
	log := filepath.Join(logDir, criconfig.ContainerLogPath(container.Name, container.RestartCount))
	message := filepath.Join(messagesDirName, container.Name, strconv.Itoa(container.RestartCount))
	if !filepath.IsLocal(log) || !filepath.IsLocal(message) { // labels may hold anything
		return fmt.Errorf("container %s has labels that are no file names: %q, %q", container.ID, log, message)
	}
	err := os.Remove(filepath.Join(r.podDir(pod.UID), message))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, r.removeLog(filepath.Join(r.config.LogDir, log)))
}

// removeLog removes a log and its rotated files.
func (r *Runtime) removeLog(log string) error {
	root, name, err := r.openLogRoot(log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	files, err := rotatedLogs(root, name)
	errs := []error{err}
	for _, file := range append(files, name) {
		if err := root.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeOrphanedLogs removes the log directories of unwanted pods that the runtime does not hold.
func (r *Runtime) removeOrphanedLogs(pods []*observed.Pod, isWanted func(podid.UID) bool, now time.Time) error {
	held := map[podid.UID]bool{}
	for _, pod := range pods {
		held[pod.UID] = true
	}
	entries, err := os.ReadDir(r.config.LogDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, entry := range entries {
		uid, ok := logDirPod(entry)
		if ok && !held[uid] && !isWanted(uid) && !isNew(entry, now) {
			errs = append(errs, os.RemoveAll(filepath.Join(r.config.LogDir, entry.Name())))
		}
	}
	return errors.Join(errs...)
}

// logDirPod returns the pod of a log directory <namespace>_<pod>_<uid>. Other entries are not this agent's.
func logDirPod(entry fs.DirEntry) (uid podid.UID, ok bool) {
	parts := strings.Split(entry.Name(), "_")
	return podid.UID(parts[len(parts)-1]), entry.IsDir() && len(parts) == 3 && parts[2] != ""
}

// isNew reports whether the entry is younger than minGarbageAge. An entry that cannot be read counts as new: it is gone, or the
// next collection handles it.
func isNew(entry fs.DirEntry, now time.Time) bool {
	info, err := entry.Info()
	return err != nil || info.ModTime().After(now.Add(-minGarbageAge))
}

// removeDanglingLinks removes symlinks to logs that no longer exist. A log is briefly absent while it is rotated, so links of
// containers that may still write are kept.
func (r *Runtime) removeDanglingLinks(pods []*observed.Pod, now time.Time) error {
	if r.config.ContainerLogDir == "" {
		return nil
	}
	entries, err := os.ReadDir(r.config.ContainerLogDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, entry := range entries {
		link := filepath.Join(r.config.ContainerLogDir, entry.Name())
		if r.isDangling(link) && !isNew(entry, now) && !isActiveLink(pods, entry.Name()) {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}

// isDangling reports whether the link points to a missing log below LogDir.
func (r *Runtime) isDangling(link string) bool {
	target, err := os.Readlink(link)
	if err != nil || !strings.HasPrefix(target, filepath.Clean(r.config.LogDir)+"/") {
		return false
	}
	_, err = os.Lstat(target)
	return errors.Is(err, fs.ErrNotExist)
}

// isActiveLink reports whether the link belongs to a container that may still write.
func isActiveLink(pods []*observed.Pod, link string) bool {
	for _, pod := range pods {
		for _, container := range pod.Containers {
			if container.State != observed.Exited && strings.HasSuffix(link, "-"+container.ID.ID+".log") {
				return true
			}
		}
	}
	return false
}

// Limits of the files of the node that are mounted into containers.
const (
	maxMessageUsage = 64 << 10
	// maxHostsFileSize fits every file that this package writes: a pod has less than 2 MiB.
	maxHostsFileSize = 16 << 20
)

// trimPodFiles limits the disk usage of all hosts files and termination messages. Between two calls a container can exceed it,
// as it can in its own layer.
func (r *Runtime) trimPodFiles() error {
	var errs []error
	for _, dir := range r.dirs().All() {
		errs = append(errs, trimPodFiles(dir))
	}
	return errors.Join(errs...)
}

func trimPodFiles(dir string) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	var errs []error
	for _, pattern := range []struct {
		files string
		trim  func(*os.File) error
	}{
		{"*/" + hostsFileName, trimHostsFile},
		{"*/" + messagesDirName + "/*/*", trimMessageFile},
	} {
		files, err := fs.Glob(root.FS(), pattern.files)
		errs = append(errs, err)
		for _, name := range files {
			errs = append(errs, trimFile(root, name, pattern.trim))
		}
	}
	return errors.Join(errs...)
}

func trimFile(root *os.Root, name string, trim func(*os.File) error) error {
	file, err := nolinks.Open(root, name, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if err := trim(file); err != nil {
		return fmt.Errorf("trim %s: %w", name, err)
	}
	return nil
}

// trimHostsFile keeps the beginning, which this package has written.
func trimHostsFile(file *os.File) error {
	size, usage, err := fileSize(file)
	if err != nil || max(size, usage) <= maxHostsFileSize {
		return err
	}
	return file.Truncate(min(size, maxHostsFileSize))
}

// trimMessageFile keeps the end, which is the message. It frees the space before it and leaves the size as it is, so that a
// running container can go on writing.
func trimMessageFile(file *os.File) error {
	size, usage, err := fileSize(file)
	if err != nil || usage <= maxMessageUsage {
		return err
	}
	if size > maxMessageSize {
		const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
		if err := unix.Fallocate(int(file.Fd()), punch, 0, size-maxMessageSize); err != nil {
			return err
		}
		if size, usage, err = fileSize(file); err != nil || usage <= maxMessageUsage {
			return err
		}
	}
	return file.Truncate(size) // frees space behind the end
}

// fileSize returns the size of the file and the space that it takes on disk.
func fileSize(file *os.File) (size, usage int64, err error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return 0, 0, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, 0, errNotRegular
	}
	return stat.Size, stat.Blocks * 512, nil
}
