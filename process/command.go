package process

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Environment variables that the runtime sets.
const (
	containerIDEnv    = "HERALD_CONTAINER_ID"
	execIDEnv         = "HERALD_EXEC_ID"
	rootEnv           = "HERALD_ROOT"
	terminationLogEnv = "HERALD_TERMINATION_LOG"

	// terminalEnv is containerd's default for a command at a terminal.
	terminalEnv = "TERM=xterm"

	// defaultPath is containerd's default for images without PATH.
	defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

	// terminationLogPath is where the kubelet mounts the termination log by default.
	terminationLogPath = "/dev/termination-log"
)

// command is a fully resolved command of a container.
type command struct {
	args       []string
	env        []string
	dir        string
	noNewPrivs bool
	logPath    string

	// stdin keeps the standard input open for clients that attach; stdinOnce closes it when the first of them ends it. tty
	// makes the standard streams a terminal.
	stdin, stdinOnce, tty bool
}

// loadCommand reads the command of the container in that directory.
func loadCommand(containerDir string) (command, error) {
	record, err := readRecord[containerRecord](filepath.Join(containerDir, containerFile))
	if err != nil {
		return command{}, err
	}
	config, err := record.config()
	if err != nil {
		return command{}, err
	}
	root := filepath.Join(containerDir, rootDir)
	return command{
		args:       slices.Concat(config.GetCommand(), config.GetArgs()),
		env:        containerEnv(record.ID, root, config),
		dir:        cmp.Or(config.GetWorkingDir(), root),
		noNewPrivs: config.GetLinux().GetSecurityContext().GetNoNewPrivs(),
		logPath:    record.LogPath,
		stdin:      config.GetStdin(), stdinOnce: config.GetStdinOnce(), tty: config.GetTty(),
	}, nil
}

// containerEnv returns the container's variables, then the runtime's. The last value of a name wins.
func containerEnv(id, root string, config *runtimeapi.ContainerConfig) []string {
	var env []string
	for _, pair := range config.GetEnvs() {
		env = setEnv(env, pair.GetKey()+"="+string(pair.GetValue()))
	}
	if getEnv(env, "PATH") == "" {
		env = setEnv(env, defaultPath)
	}
	env = setEnv(env, containerIDEnv+"="+id)
	env = setEnv(env, rootEnv+"="+root)
	for _, mount := range config.GetMounts() {
		if path.Clean(mount.GetContainerPath()) == terminationLogPath {
			env = setEnv(env, terminationLogEnv+"="+mountLink(root, mount))
		}
	}
	return env
}

func setEnv(env []string, pair string) []string {
	name, _, _ := strings.Cut(pair, "=")
	env = slices.DeleteFunc(env, func(other string) bool { return strings.HasPrefix(other, name+"=") })
	return append(env, pair)
}

func getEnv(env []string, name string) string {
	for _, pair := range env {
		if value, found := strings.CutPrefix(pair, name+"="); found {
			return value
		}
	}
	return ""
}

// mountLink returns the path of a mount below the container's root.
func mountLink(root string, mount *runtimeapi.Mount) string {
	return filepath.Join(root, filepath.FromSlash(path.Clean(mount.GetContainerPath())))
}

// linkMounts creates the container's root with a link for each mount. checkContainer has ensured that no mount is inside
// another, so no directory is created outside root.
func linkMounts(root string, mounts []*runtimeapi.Mount) error {
	if err := os.Mkdir(root, 0o700); err != nil {
		return err
	}
	for _, mount := range mounts {
		link := mountLink(root, mount)
		if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
			return err
		}
		if err := os.Symlink(mount.GetHostPath(), link); err != nil {
			return err
		}
	}
	return nil
}

// start runs the command as the leader of a new session with the given standard streams. With tty they are a terminal, which
// becomes the session's.
func (c command) start(files [3]*os.File) (pid int, err error) {
	file, err := c.lookPath()
	if err != nil {
		return 0, err
	}
	env := c.env
	if c.tty && getEnv(env, "TERM") == "" {
		env = setEnv(env, terminalEnv)
	}
	attr := &syscall.ProcAttr{
		Dir: c.dir, Env: env, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: c.tty}, // the terminal is descriptor 0
		Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()},
	}
	// The prctl flag belongs to the thread, and the child inherits it from the thread that forks. That thread is not
	// reused: it stays locked and ends with its goroutine.
	runtime.LockOSThread()
	if c.noNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return 0, fmt.Errorf("set no_new_privs: %w", err)
		}
	} else {
		defer runtime.UnlockOSThread()
	}
	pid, err = syscall.ForkExec(file, c.args, attr)
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", file, err)
	}
	return pid, nil
}

// lookPath finds the program as a shell in the command's directory and with its PATH would.
func (c command) lookPath() (string, error) {
	if info, err := os.Stat(c.dir); err != nil {
		return "", fmt.Errorf("working directory %s: %w", c.dir, err)
	} else if !info.IsDir() {
		return "", fmt.Errorf("working directory %s: %w", c.dir, syscall.ENOTDIR)
	}
	name := c.args[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(getEnv(c.env, "PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("start %q: %w", name, exec.ErrNotFound)
}
