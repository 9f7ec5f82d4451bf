package containerd_test

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// traces is where a containerd with a running pod shows on the machine, by kind.
type traces map[string]func() []string

// tracesOf learns from a containerd's folder, while a pod runs, where to look later.
func tracesOf(t *testing.T, folder string) traces {
	t.Helper()
	bridge, err := os.ReadFile(filepath.Join(folder, "bridge"))
	if err != nil {
		t.Fatal(err)
	}
	containers := baseNames(glob(t, folder+"/runc/k8s.io/*"))
	namespaces := networkNamespaces(t, folder)
	sockets := shimSockets(t, folder)
	return traces{
		"the folder":         func() []string { return glob(t, folder) },
		"processes":          func() []string { return processes(t, folder) },
		"mounts":             func() []string { return mountPoints(t, folder) },
		"the bridge":         func() []string { return interfaces(t, string(bridge)) },
		"network namespaces": func() []string { return users(t, namespaces) },
		"cgroups":            func() []string { return cgroups(t, containers) },
		"shims' sockets":     func() []string { return slices.DeleteFunc(slices.Clone(sockets), isMissing) },
		"CNI results":        func() []string { return results(t, containers) },
	}
}

func (tr traces) mustExist(t *testing.T) {
	t.Helper()
	for kind, look := range tr {
		if len(look()) == 0 {
			t.Errorf("while a pod runs, there are no %s: the test looks in the wrong place", kind)
		}
	}
}

func (tr traces) mustBeGone(t *testing.T) {
	t.Helper()
	for kind, look := range tr {
		if left := look(); len(left) != 0 {
			t.Errorf("left behind, %s: %q", kind, left)
		}
	}
}

func processes(t *testing.T, folder string) []string {
	t.Helper()
	var found []string
	for _, file := range glob(t, "/proc/[0-9]*/cmdline") {
		// A process may end between the listing and the reading.
		if line, _ := os.ReadFile(file); strings.Contains(string(line), folder) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// mountInfo returns the fields of each of the kernel's lines about a mount below folder.
func mountInfo(t *testing.T, folder string) [][]string {
	t.Helper()
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found [][]string
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[4], folder+"/") {
			found = append(found, fields)
		}
	}
	return found
}

func mountPoints(t *testing.T, folder string) []string {
	t.Helper()
	var found []string
	for _, fields := range mountInfo(t, folder) {
		found = append(found, fields[4])
	}
	return found
}

// networkNamespaces returns the namespaces, as "net:[4026532281]", that are mounted below folder.
func networkNamespaces(t *testing.T, folder string) []string {
	t.Helper()
	var found []string
	for _, fields := range mountInfo(t, folder) {
		if root := fields[3]; strings.HasPrefix(root, "net:") {
			found = append(found, root)
		}
	}
	return found
}

// users returns the processes that are in one of the network namespaces.
func users(t *testing.T, namespaces []string) []string {
	t.Helper()
	var found []string
	for _, link := range glob(t, "/proc/[0-9]*/ns/net") {
		if namespace, _ := os.Readlink(link); slices.Contains(namespaces, namespace) {
			found = append(found, link)
		}
	}
	return found
}

func interfaces(t *testing.T, name string) []string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, one := range all {
		if one.Name == name {
			found = append(found, one.Name)
		}
	}
	return found
}

// cgroups returns the cgroups that are named after one of the containers.
func cgroups(t *testing.T, containers []string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // another one's, which ended meanwhile
		}
		if err == nil && entry.IsDir() && slices.Contains(containers, entry.Name()) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// results returns what the CNI keeps about networks that it gave to one of the containers.
func results(t *testing.T, containers []string) []string {
	t.Helper()
	var found []string
	for _, container := range containers {
		found = append(found, glob(t, "/var/lib/cni/results/*"+container+"*")...)
	}
	return found
}

// shimSockets returns the sockets that containerd 1.x and 2.x noted for the shims of their containers.
func shimSockets(t *testing.T, folder string) []string {
	t.Helper()
	var found []string
	for _, bundle := range glob(t, folder+"/state/io.containerd.runtime.v2.task/k8s.io/*") {
		address, _ := os.ReadFile(bundle + "/address")
		bootstrap, _ := os.ReadFile(bundle + "/bootstrap.json")
		_, path, _ := strings.Cut(string(address)+string(bootstrap), "unix://")
		path, _, _ = strings.Cut(path, `"`)
		found = append(found, path)
	}
	return found
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func baseNames(paths []string) []string {
	var names []string
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

func isMissing(path string) bool {
	_, err := os.Stat(path)
	return err != nil
}
