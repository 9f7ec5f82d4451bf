package containerd_test

import (
	"bufio"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/needs"
)

func TestClose_RemovesEverything(t *testing.T) {
	cases := map[string]func(*containerd.Containerd) error{
		"running": func(*containerd.Containerd) error { return nil },
		"killed":  (*containerd.Containerd).Kill,
		"frozen":  (*containerd.Containerd).Freeze,
	}
	for name, before := range cases {
		t.Run(name, func(t *testing.T) {
			c := containerd.ForTest(t)
			startPod(t, c)
			traces := findTraces(t, c.Dir())
			traces.requireExist(t)

			if err := before(c); err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			traces.requireGone(t)
			if err := c.Close(); err != nil {
				t.Errorf("second Close: %v", err)
			}
		})
	}
}

func TestStart_FailureRemovesEverything(t *testing.T) {
	needs.Containers(t)
	// This ctr fails and prints the bridge that belongs to its socket.
	programs, ctr := t.TempDir(), "#!/bin/sh\ncat ${2%/*}/bridge; exit 1\n"
	if err := os.WriteFile(filepath.Join(programs, "ctr"), []byte(ctr), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	dir := t.TempDir()

	_, err := containerd.Start(t.Context(), containerd.Config{ParentDir: dir, Version: containerd.VersionInstalled})
	if err == nil {
		t.Fatal("got no error although images cannot be imported")
	}
	bridge := regexp.MustCompile(`herald\d+`).FindString(err.Error())
	if left := interfaces(t, bridge); bridge == "" || len(left) != 0 {
		t.Errorf("bridge %q: got %q, want nothing; error: %v", bridge, left, err)
	}
	if left := append(glob(t, dir+"/*"), processes(t, dir)...); len(left) != 0 {
		t.Errorf("got %q, want nothing", left)
	}
}

// ownerProcess is an environment variable that marks the process of this test binary that is killed.
const ownerProcess = "HERALD_CONTAINERD_OWNER"

func TestSupervisor_OwnerKilled(t *testing.T) {
	if os.Getenv(ownerProcess) != "" {
		c := containerd.ForTest(t)
		startPod(t, c)
		fmt.Println("dir:", c.Dir())
		select {}
	}
	needs.Containers(t)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), ownerProcess+"=yes", "TMPDIR="+t.TempDir())
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	dir := ""
	for lines := bufio.NewScanner(output); dir == "" && lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "dir: "); ok {
			dir = rest
		}
	}
	traces := findTraces(t, dir)
	traces.requireExist(t)

	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // killed
	heraldtest.Eventually(t, func() error {
		if _, err := os.Stat(dir); err == nil {
			return fmt.Errorf("%s still exists", dir)
		}
		return nil
	})
	traces.requireGone(t)
}

func startPod(t *testing.T, c *containerd.Containerd) {
	t.Helper()
	n := newClient(t, c)
	n.runContainer(n.runPod("leftover"), "serve", "serve", "--port", "8080")
}

// traces maps each kind of resource that a containerd with a running pod uses on the machine to a function that finds it.
type traces map[string]func() []string

// findTraces must be called while a pod runs: the names of some resources are lost later.
func findTraces(t *testing.T, dir string) traces {
	t.Helper()
	bridge, err := os.ReadFile(filepath.Join(dir, "bridge"))
	if err != nil {
		t.Fatal(err)
	}
	containers := baseNames(glob(t, dir+"/runc/k8s.io/*"))
	namespaces := findNetworkNamespaces(t, dir)
	sockets := findShimSockets(t, dir)
	return traces{
		"directory":          func() []string { return glob(t, dir) },
		"processes":          func() []string { return processes(t, dir) },
		"mounts":             func() []string { return mountPoints(t, dir) },
		"bridge":             func() []string { return interfaces(t, string(bridge)) },
		"network namespaces": func() []string { return namespaceUsers(t, namespaces) },
		"cgroups":            func() []string { return cgroups(t, containers) },
		"shim sockets":       func() []string { return slices.DeleteFunc(slices.Clone(sockets), isMissing) },
		"CNI results":        func() []string { return cniResults(t, containers) },
	}
}

func (tr traces) requireExist(t *testing.T) {
	t.Helper()
	for kind, find := range tr {
		if len(find()) == 0 {
			t.Errorf("%s: got none while a pod runs; the test looks in the wrong place", kind)
		}
	}
}

func (tr traces) requireGone(t *testing.T) {
	t.Helper()
	for kind, find := range tr {
		if left := find(); len(left) != 0 {
			t.Errorf("%s: got %q, want none", kind, left)
		}
	}
}

func processes(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	for _, file := range glob(t, "/proc/[0-9]*/cmdline") {
		// A process may end between the listing and the reading.
		if line, _ := os.ReadFile(file); strings.Contains(string(line), dir) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// mountInfo returns the fields of each line of the kernel's mount table with a mount below dir.
func mountInfo(t *testing.T, dir string) [][]string {
	t.Helper()
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found [][]string
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[4], dir+"/") {
			found = append(found, fields)
		}
	}
	return found
}

func mountPoints(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	for _, fields := range mountInfo(t, dir) {
		found = append(found, fields[4])
	}
	return found
}

// findNetworkNamespaces returns the namespaces, such as "net:[4026532281]", that are mounted below dir.
func findNetworkNamespaces(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	for _, fields := range mountInfo(t, dir) {
		if root := fields[3]; strings.HasPrefix(root, "net:") {
			found = append(found, root)
		}
	}
	return found
}

// namespaceUsers returns the processes in one of the network namespaces.
func namespaceUsers(t *testing.T, namespaces []string) []string {
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
	for _, link := range all {
		if link.Name == name {
			found = append(found, link.Name)
		}
	}
	return found
}

// cgroups returns the cgroups with the name of one of the containers.
func cgroups(t *testing.T, containers []string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // removed since it was listed
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

// cniResults returns the files that the CNI keeps about the networks of the containers.
func cniResults(t *testing.T, containers []string) []string {
	t.Helper()
	var found []string
	for _, container := range containers {
		found = append(found, glob(t, "/var/lib/cni/results/*"+container+"*")...)
	}
	return found
}

// findShimSockets returns the sockets of the shims, as containerd 1.x and 2.x record them.
func findShimSockets(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	for _, bundle := range glob(t, dir+"/state/io.containerd.runtime.v2.task/k8s.io/*") {
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
