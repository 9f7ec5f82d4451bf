package process

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The variables that the runtime adds.
const (
	containerVariable      = "HERALD_CONTAINER_ID"
	execVariable           = "HERALD_EXEC_ID"
	rootVariable           = "HERALD_ROOT"
	terminationLogVariable = "HERALD_TERMINATION_LOG"

	// defaultPath is what containerd gives to an image that has none.
	defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

	// terminationLog is where the kubelet mounts the file for a container's last words unless the pod says otherwise.
	terminationLog = "/dev/termination-log"
)

// commandOf is what a container runs, given its folder.
func commandOf(record *containerRecord, folder string) (command, error) {
	config, err := record.config()
	if err != nil {
		return command{}, err
	}
	root := filepath.Join(folder, rootFolder)
	c := command{
		Arguments:   slices.Concat(config.GetCommand(), config.GetArgs()),
		Environment: environment(record.ID, root, config),
		Folder:      config.GetWorkingDir(),
		NoNewPrivs:  config.GetLinux().GetSecurityContext().GetNoNewPrivs(),
	}
	if c.Folder == "" {
		c.Folder = root
	}
	return c, nil
}

// environment is the container's own, in which a name that is given twice has its last value, then the runtime's.
func environment(id, root string, config *runtimeapi.ContainerConfig) []string {
	own := []string{containerVariable + "=" + id, rootVariable + "=" + root}
	for _, mount := range config.GetMounts() {
		if path.Clean(mount.GetContainerPath()) == terminationLog {
			own = append(own, terminationLogVariable+"="+linkOf(root, mount))
		}
	}
	var all []string
	for _, pair := range config.GetEnvs() {
		all = setVariable(all, pair.GetKey()+"="+string(pair.GetValue()))
	}
	if variable(all, "PATH") == "" {
		all = setVariable(all, defaultPath)
	}
	for _, pair := range own {
		all = setVariable(all, pair)
	}
	return all
}

func setVariable(environment []string, pair string) []string {
	name, _, _ := strings.Cut(pair, "=")
	environment = slices.DeleteFunc(environment, func(one string) bool { return strings.HasPrefix(one, name+"=") })
	return append(environment, pair)
}

func variable(environment []string, name string) string {
	for _, pair := range environment {
		if value, found := strings.CutPrefix(pair, name+"="); found {
			return value
		}
	}
	return ""
}

// linkOf is where a mount appears below the container's root.
func linkOf(root string, mount *runtimeapi.Mount) string {
	return filepath.Join(root, filepath.FromSlash(path.Clean(mount.GetContainerPath())))
}

// linkMounts makes the container's root with a link for each mount. The mounts were accepted before: none lies in another,
// so that no folder is made outside of root.
func linkMounts(root string, mounts []*runtimeapi.Mount) error {
	if err := os.Mkdir(root, 0o700); err != nil {
		return err
	}
	for _, mount := range mounts {
		link := linkOf(root, mount)
		if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
			return err
		}
		if err := os.Symlink(mount.GetHostPath(), link); err != nil {
			return err
		}
	}
	return nil
}
