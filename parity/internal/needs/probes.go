package needs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lack is something that this machine does not have or allow.
type lack struct {
	why    string
	remedy string
}

// containers are the probes of what containers need.
var containers = []func() *lack{root, containerPrograms, mounts, cgroups}

func root() *lack {
	if uid := os.Geteuid(); uid != 0 {
		return &lack{fmt.Sprintf("the user id is %d", uid), "run the tests as root"}
	}
	return nil
}

func kubectl() *lack {
	if _, err := exec.LookPath("kubectl"); err != nil {
		return &lack{"no kubectl in PATH", "install kubectl"}
	}
	return nil
}

func containerPrograms() *lack {
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
	return &lack{strings.Join(missing, ", "), "run hack/install-containers"}
}

// CNIPlugins returns the folder that has the CNI plugins which a bridge network needs.
func CNIPlugins() (string, error) {
	folders := []string{"/usr/lib/cni", "/opt/cni/bin"}
	for _, folder := range folders {
		if hasPrograms(folder, "bridge", "host-local", "loopback") {
			return folder, nil
		}
	}
	return "", fmt.Errorf("no CNI plugins bridge, host-local and loopback in %s", strings.Join(folders, " or "))
}

func hasPrograms(folder string, names ...string) bool {
	for _, name := range names {
		if unix.Access(filepath.Join(folder, name), unix.X_OK) != nil {
			return false
		}
	}
	return true
}

// mounts tries a mount: the capability alone does not tell what a surrounding container forbids.
func mounts() *lack {
	if err := tryMount(); err != nil {
		return &lack{err.Error(), "run the tests on a machine, or in a privileged container"}
	}
	return nil
}

func tryMount() error {
	folder, err := os.MkdirTemp("", "herald-needs-")
	if err != nil {
		return err
	}
	defer os.Remove(folder)
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size=4k"); err != nil {
		return fmt.Errorf("mounting a tmpfs: %w", err)
	}
	return unix.Unmount(folder, 0)
}

// cgroups tries to make a cgroup in every hierarchy, as a container runtime will.
func cgroups() *lack {
	if err := tryCgroups(); err != nil {
		return &lack{err.Error(), "run the tests where cgroups are mounted and writable"}
	}
	return nil
}

func tryCgroups() error {
	hierarchies, err := cgroupMounts()
	if err != nil {
		return err
	}
	if len(hierarchies) == 0 {
		return fmt.Errorf("no cgroups are mounted")
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

// cgroupMounts returns where the cgroup hierarchies of either version are mounted.
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
