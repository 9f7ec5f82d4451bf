package manager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/heraldnode/herald/cgroup"
)

// Files of cgroup version 2.
const (
	controllersFile = "cgroup.controllers"     // those that may be used here
	subtreeFile     = "cgroup.subtree_control" // those that children may use
)

// apply creates the cgroup if it does not exist, and writes the values that differ.
func (m *Manager) apply(ctx context.Context, driver string, name cgroup.Name, resources cgroup.Resources) error {
	if m.isDisabled() {
		return nil
	}
	path := name.Path(driver)
	defer m.metrics.observe(m.applyOperation(path), time.Now())
	if driver == cgroup.DriverSystemd && resources.CPUQuota != nil {
		resources.CPUQuota = new(cgroup.SystemdCPUQuota(*resources.CPUQuota))
	}
	settings := resources.Settings(m.host)
	if driver == cgroup.DriverSystemd {
		if !m.config.systemd.isRunning() { // the runtime creates the slices with those of containers
			if m.isFirst("systemd") {
				m.config.Logger.Warn("Systemd is not running: pods run without cgroup values of their own")
			}
			return nil
		}
		if err := m.applySlice(ctx, name, resources, settings); err != nil {
			return err
		}
	}
	if err := m.create(path); err != nil { // for systemd, only in hierarchies that it does not manage
		return err
	}
	return m.write(path, settings)
}

// create creates the cgroup and its parents in every hierarchy, and enables the controllers on the way (CGR-6).
func (m *Manager) create(path string) error {
	for _, hierarchy := range m.hierarchies() {
		dir := hierarchy
		for element := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
			if err := m.enableControllers(dir); err != nil {
				return err
			}
			dir = filepath.Join(dir, element)
			if _, err := os.Stat(dir); err == nil {
				continue
			}
			if err := m.config.mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	return nil
}

// enableControllers lets the children of a cgroup of version 2 use the controllers that pods need.
func (m *Manager) enableControllers(dir string) error {
	if !m.host.V2 {
		return nil
	}
	available, err := readWords(filepath.Join(dir, controllersFile))
	if err != nil {
		return err
	}
	enabled, err := readWords(filepath.Join(dir, subtreeFile))
	if err != nil {
		return err
	}
	for _, controller := range cgroup.Controllers {
		if slices.Contains(available, controller) && !slices.Contains(enabled, controller) {
			if err := writeFile(filepath.Join(dir, subtreeFile), "+"+controller); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes the values that differ. It tries all of them.
func (m *Manager) write(path string, settings []cgroup.Setting) error {
	var errs []error
	for _, setting := range settings {
		dir := filepath.Join(m.config.Mount, path)
		if !m.host.V2 {
			dir = filepath.Join(m.config.Mount, setting.Controller, path)
		}
		file := filepath.Join(dir, setting.File)
		current, err := os.ReadFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist): // the kernel does not offer it
			if m.isFirst(setting.File) {
				m.config.Logger.Warn("The kernel does not offer a cgroup value", "file", setting.File)
			}
		case err != nil:
			errs = append(errs, err)
		case !setting.IsApplied(string(current), int64(os.Getpagesize())):
			errs = append(errs, writeFile(file, setting.Value))
		}
	}
	return errors.Join(errs...)
}

// hierarchies returns the directories that cgroups are created in. In version 1 the runtime creates those of the controllers
// that have no values here.
func (m *Manager) hierarchies() []string {
	if m.host.V2 {
		return []string{m.config.Mount}
	}
	var dirs []string
	for _, controller := range []string{"cpu", "memory", "pids", "hugetlb"} {
		dir := filepath.Join(m.config.Mount, controller)
		if _, err := os.Stat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// exists reports whether the cgroup is in any hierarchy.
func (m *Manager) exists(path string) bool {
	return slices.ContainsFunc(m.hierarchies(), func(hierarchy string) bool {
		_, err := os.Stat(filepath.Join(hierarchy, path))
		return err == nil
	})
}

func readWords(file string) ([]string, error) {
	content, err := os.ReadFile(file)
	return strings.Fields(string(content)), err
}

// writeFile writes a value in one system call, as the kernel requires. It never creates the file.
func writeFile(path, value string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value)
	if err != nil {
		err = fmt.Errorf("write %q: %w", value, err)
	}
	return errors.Join(err, file.Close())
}

// removeTimeout is how long killed processes may take to exit.
const removeTimeout = 2 * time.Second

// find returns the cgroup's directories in every hierarchy, also in those that only the runtime uses.
func (m *Manager) find(path string) []string {
	dirs, _ := filepath.Glob(filepath.Join(m.config.Mount, "*", path)) // names in path were checked
	dirs = append(dirs, filepath.Join(m.config.Mount, path))
	return slices.DeleteFunc(dirs, func(dir string) bool { _, err := os.Stat(dir); return err != nil })
}

// containerDirs returns the cgroups of these containers below a pod's. CRI-O's monitor of a container exits by itself.
func containerDirs(podDir string, containerIDs []string) []string {
	entries, _ := os.ReadDir(podDir) // it may be gone
	var dirs []string
	for _, entry := range entries {
		if slices.ContainsFunc(containerIDs, func(id string) bool { return cgroup.IsContainer(entry.Name(), id) }) {
			dirs = append(dirs, filepath.Join(podDir, entry.Name()))
		}
	}
	return dirs
}

// remove removes the cgroup from every hierarchy.
func (m *Manager) remove(ctx context.Context, driver string, name cgroup.Name) error {
	dirs := m.find(name.Path(driver))
	if len(dirs) == 0 {
		return nil
	}
	defer m.metrics.observe(operationDestroy, time.Now())
	errs := []error{killProcesses(ctx, dirs)}
	if driver == cgroup.DriverSystemd && m.config.systemd.isRunning() {
		errs = append(errs, m.stopSlice(ctx, name.Slice()))
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	for _, dir := range dirs {
		errs = append(errs, removeDir(ctx, dir))
	}
	return errors.Join(errs...)
}

// removeDir removes a cgroup without processes, children before their parent, as the kernel requires. A cgroup stays busy for
// a moment after its last process has exited.
func removeDir(ctx context.Context, dir string) error {
	for {
		err := removeTree(dir)
		if !errors.Is(err, syscall.EBUSY) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, entry := range entries {
		if entry.IsDir() {
			errs = append(errs, removeTree(filepath.Join(dir, entry.Name())))
		}
	}
	// Rmdir and not Remove, which would try to unlink and report that error.
	if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, &fs.PathError{Op: "rmdir", Path: dir, Err: err})
	}
	return errors.Join(errs...)
}

// killProcesses kills the processes in these cgroups and waits until they are gone. The runtime does not know them or has
// reported their container as exited: it died between creating a container and recording it (F22), or gave up its start (F15).
// Without this they would run forever, and the cgroup could not be removed.
func killProcesses(ctx context.Context, dirs []string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	for {
		var pids []int
		for _, dir := range dirs {
			found, err := processes(dir)
			if err != nil {
				return err
			}
			pids = append(pids, found...)
		}
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d in cgroups %v: %w", pid, dirs, err)
			}
		}
		thaw(dirs)
		select {
		case <-ctx.Done():
			return fmt.Errorf("killed processes %v in cgroups %v did not exit: %w", pids, dirs, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// thaw resumes the frozen processes of these cgroups and their children: in cgroup v1 they do not exit before. runc freezes a
// container while it kills its processes, and may be killed meanwhile.
func thaw(dirs []string) {
	for _, dir := range dirs {
		for _, pattern := range []string{"freezer.state", "*/freezer.state"} {
			files, _ := filepath.Glob(filepath.Join(dir, pattern)) // names in dir were checked
			for _, file := range files {
				_ = writeFile(file, "THAWED") // if it fails, the processes do not exit, which is reported
			}
		}
	}
}

// processes returns the processes in a cgroup and its descendants. It skips 0, which stands for a process in a PID namespace
// that is not visible here.
func processes(dir string) (pids []int, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.IsDir() {
			return err
		}
		words, err := readWords(filepath.Join(path, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, word := range words {
			if pid, _ := strconv.Atoi(word); pid > 0 {
				pids = append(pids, pid)
			}
		}
		return err
	})
	return pids, err
}
