// Package needs lets a test declare its requirements on the machine.
//
// A missing requirement skips the test with one line, "needs <what>: <why>; <remedy>". With CI=true it fails the test instead: a
// suite that skips its tests must not pass there.
package needs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// TB is the part of testing.TB that this package uses.
type TB interface {
	Helper()
	Skip(args ...any)
	Fatal(args ...any)
}

// Root skips the test unless it runs as root.
func Root(t TB) {
	t.Helper()
	require(t, "root", root)
}

// Kubectl skips the test unless kubectl is in PATH.
func Kubectl(t TB) {
	t.Helper()
	require(t, "kubectl", kubectl)
}

// Prometheus skips the test unless prometheus and promtool are in PATH.
func Prometheus(t TB) {
	t.Helper()
	require(t, "Prometheus", prometheus)
}

// Alertmanager skips the test unless prometheus-alertmanager and amtool are in PATH.
func Alertmanager(t TB) {
	t.Helper()
	require(t, "Alertmanager", alertmanager)
}

// Busybox returns the path of a statically linked busybox. It skips the test if there is none.
func Busybox(t TB) string {
	t.Helper()
	require(t, "busybox", func() *problem { return unpacked("hack/install-shells", "busybox") })
	path, _ := exec.LookPath("busybox") // require has found it
	return path
}

// Containers skips the test unless a private containerd can run pods on a bridge network.
func Containers(t TB) {
	t.Helper()
	require(t, "containers", containerProbes...)
}

// CheckContainers is for programs: it returns the message of Containers as an error, or nil if containers can run.
func CheckContainers() error {
	if line := missing("containers", containerProbes...); line != "" {
		return errors.New(line)
	}
	return nil
}

// require skips or fails the test if something is missing.
func require(t TB, what string, probes ...probe) {
	t.Helper()
	line := missing(what, probes...)
	switch {
	case line == "":
	case os.Getenv("CI") == "true":
		t.Fatal(line)
	default:
		t.Skip(line)
	}
}

// missing describes the first problem: later ones often follow from it.
func missing(what string, probes ...probe) string {
	for _, probe := range probes {
		if found := probe(); found != nil {
			return fmt.Sprintf("needs %s: %s; %s", what, found.why, found.remedy)
		}
	}
	return ""
}

// problem is a requirement that the machine does not meet.
type problem struct {
	why    string
	remedy string
}

// probe checks one requirement and returns nil if it is met.
type probe func() *problem

// containerProbes check the requirements of containers.
var containerProbes = []probe{root, containerPrograms, mounts, cgroups}

func root() *problem {
	if uid := os.Geteuid(); uid != 0 {
		return &problem{fmt.Sprintf("the user id is %d", uid), "run the tests as root"}
	}
	return nil
}

func kubectl() *problem {
	if _, err := exec.LookPath("kubectl"); err != nil {
		return &problem{"no kubectl in PATH", "install kubectl"}
	}
	return nil
}

func prometheus() *problem { return unpacked("hack/install-prometheus", "prometheus", "promtool") }

func alertmanager() *problem {
	return unpacked("hack/install-alertmanager", "prometheus-alertmanager", "amtool")
}

// unpacked checks for programs that a script unpacks.
func unpacked(script string, programs ...string) *problem {
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			return &problem{"no " + name + " in PATH", "add what " + script + " prints to PATH"}
		}
	}
	return nil
}

func containerPrograms() *problem {
	var missing []string
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "ip"} {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, "no "+name+" in PATH")
		}
	}
	if _, err := CNIPlugins(); err != nil {
		missing = append(missing, err.Error())
	}
	if len(missing) == 0 {
		return nil
	}
	return &problem{strings.Join(missing, ", "), "run hack/install-containers"}
}

// CNIPlugins returns the directory with the CNI plugins of a bridge network.
func CNIPlugins() (string, error) {
	dirs := []string{"/usr/lib/cni", "/opt/cni/bin"}
	for _, dir := range dirs {
		if hasPrograms(dir, "bridge", "host-local", "loopback") {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no CNI plugins bridge, host-local and loopback in %s", strings.Join(dirs, " or "))
}

func hasPrograms(dir string, names ...string) bool {
	for _, name := range names {
		if unix.Access(filepath.Join(dir, name), unix.X_OK) != nil {
			return false
		}
	}
	return true
}

// mounts tries a mount: a surrounding container may forbid it despite the capability.
func mounts() *problem {
	if err := tryMount(); err != nil {
		return &problem{err.Error(), "run the tests on a machine, or in a privileged container"}
	}
	return nil
}

func tryMount() error {
	dir, err := os.MkdirTemp("", "herald-needs-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4k"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	return unix.Unmount(dir, 0)
}

// cgroups tries to create a cgroup in every hierarchy, as a container runtime does.
func cgroups() *problem {
	if err := tryCgroups(); err != nil {
		return &problem{err.Error(), "run the tests where cgroups are mounted and writable"}
	}
	return nil
}

func tryCgroups() error {
	hierarchies, err := cgroupMounts()
	if err != nil {
		return err
	}
	if len(hierarchies) == 0 {
		return errors.New("no cgroups are mounted")
	}
	for _, hierarchy := range hierarchies {
		group, err := os.MkdirTemp(hierarchy, "herald-needs-")
		if err != nil {
			return err
		}
		if err := os.Remove(group); err != nil {
			return err
		}
	}
	return nil
}

// cgroupMounts returns the mount points of the cgroup hierarchies, v1 and v2.
func cgroupMounts() ([]string, error) {
	file, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 2 && strings.HasPrefix(fields[2], "cgroup") {
			found = append(found, fields[1])
		}
	}
	return found, lines.Err()
}
