package agents

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"golang.org/x/sys/unix"
)

// settings is the data of the configuration templates.
type settings struct {
	NodeName    string
	Kubeconfig  string
	Dir         string // the agent's own directory
	Endpoint    string // CRI endpoint
	ManifestDir string // static pods
	CgroupRoot  string
	Address     string // of the HTTPS server
	Port        int    // of the HTTPS server; the kubelet cannot run without one
	CAFile      string // of the clients of the HTTPS server
	Handover    bool
	NodeIP      string
	HTTPPort    int // plain HTTP on loopback; 0 without Config.ServeHTTP
	Extra       string
	// KubeletExtra is added to the kubelet's configuration.
	KubeletExtra string
}

var (
	//go:embed herald.yaml
	heraldConfig string
	//go:embed kubelet.yaml
	kubeletConfig string
	//go:embed mount-namespace.sh
	mountNamespaceScript string
)

func (c Config) newSettings() (*settings, error) {
	dir := filepath.Join(c.Containerd.Dir(), "agent")
	manifestDir := filepath.Join(dir, "manifests")
	if err := os.MkdirAll(manifestDir, 0o700); err != nil {
		return nil, err
	}
	kubeconfig := c.Kubeconfig
	if kubeconfig == "" {
		var err error
		if kubeconfig, err = c.ControlPlane.NodeKubeconfig(c.NodeName); err != nil {
			return nil, err
		}
	}
	port, err := freePort()
	httpPort := 0
	if err == nil && c.ServeHTTP {
		httpPort, err = freePort()
	}
	return &settings{
		HTTPPort: httpPort, Extra: c.HeraldConfig, KubeletExtra: c.KubeletConfig,
		Address: cmp.Or(c.Address, "127.0.0.1"), CAFile: c.ControlPlane.CAFile(),
		Handover: c.Handover, NodeIP: c.NodeIP, NodeName: c.NodeName, Kubeconfig: kubeconfig, Dir: dir, Endpoint: c.Containerd.Endpoint(),
		ManifestDir: manifestDir, CgroupRoot: "/" + filepath.Base(c.Containerd.Dir()), Port: cmp.Or(c.Port, port),
	}, err
}

// IgnoresDisks reports whether Herald does not care about the machine's disks, unless its configuration is about them.
func (s *settings) IgnoresDisks() bool { return !strings.Contains(s.Extra, "evictionHard:") }

func heraldCommand(binary string, s *settings) ([]string, error) {
	if s.Handover {
		return convertedHeraldCommand(binary, s)
	}
	file, err := s.write("herald.yaml", heraldConfig)
	return []string{binary, "run", "--config", file}, err
}

// convertedHeraldCommand follows docs/handover.md.
func convertedHeraldCommand(binary string, s *settings) ([]string, error) {
	kubelet, err := s.write("kubelet.yaml", kubeletConfig)
	if err != nil {
		return nil, err
	}
	convert := exec.CommandContext(context.Background(), binary, "config", "convert", kubelet)
	convert.Stderr = new(strings.Builder) // the fields that are ignored
	converted, err := convert.Output()
	if err != nil {
		return nil, fmt.Errorf("convert %s: %w: %s", kubelet, err, convert.Stderr)
	}
	file := filepath.Join(s.Dir, "herald.yaml")
	command := []string{
		binary, "run", "--config", file, "--kubeconfig", s.Kubeconfig, "--node-name", s.NodeName, "--root-dir", s.Dir + "/root",
		"--data-dir", s.Dir + "/data", "--node-ip", s.NodeIP,
	}
	if s.HTTPPort != 0 {
		command = append(command, "--listen", fmt.Sprintf("127.0.0.1:%d", s.HTTPPort))
	}
	return command, os.WriteFile(file, converted, 0o600)
}

// kubeletCommand passes by flag what the configuration file has no field for. --containerd is where cAdvisor, which is
// part of the kubelet, finds its containers.
func kubeletCommand(binary string, s *settings) ([]string, error) {
	file, err := s.write("kubelet.yaml", kubeletConfig)
	if err != nil {
		return nil, err
	}
	if err := shareMounts(s.Dir + "/root"); err != nil {
		return nil, fmt.Errorf("share the mounts of volumes with containerd: %w", err)
	}
	return []string{
		"unshare", "--mount", "--propagation", "unchanged", "/bin/sh", "-c", mountNamespaceScript, "mount-namespace", s.Dir,
		binary, "--config", file, "--kubeconfig", s.Kubeconfig, "--hostname-override", s.NodeName, "--root-dir", s.Dir + "/root",
		"--cert-dir", s.Dir + "/certificates", "--node-ip", s.NodeIP, "--containerd", strings.TrimPrefix(s.Endpoint, "unix://"),
	}, createCgroup(s.CgroupRoot) // which must exist when the kubelet starts
}

// shareMounts creates a directory whose mounts in the agent's mount namespace appear in this one too, where containerd needs
// them. They are removed with containerd's directory.
func shareMounts(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", dir, "", unix.MS_SHARED, "")
}

// write renders a configuration and returns its path.
func (s *settings) write(name, content string) (string, error) {
	path := filepath.Join(s.Dir, name)
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return path, template.Must(template.New(name).Parse(content)).Execute(file, s)
}

func freePort() (int, error) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// cgroupMounts returns where cgroups are mounted: one directory for version 2, or one per controller for version 1.
func cgroupMounts() []string {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil {
		return []string{root}
	}
	found, _ := filepath.Glob(root + "/*/cgroup.procs") // the pattern is valid
	for i, file := range found {
		found[i] = filepath.Dir(file)
	}
	return found
}

func createCgroup(name string) error {
	for _, hierarchy := range cgroupMounts() {
		if err := os.MkdirAll(filepath.Join(hierarchy, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// RemoveCgroups removes the cgroup and its descendants, innermost first. The files in them cannot and need not be
// removed.
func RemoveCgroups(name string) error {
	var errs []error
	for _, hierarchy := range cgroupMounts() {
		var groups []string
		err := filepath.WalkDir(filepath.Join(hierarchy, name), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, group := range slices.Backward(groups) {
			if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
