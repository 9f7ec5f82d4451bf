package agents

import (
	_ "embed"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

// settings fill in the agents' configurations.
type settings struct {
	Node       string
	Kubeconfig string
	Folder     string // of the agent's own
	Endpoint   string // of the CRI
	Manifests  string // the folder of static pods
	CgroupRoot string
	Port       int // on loopback, for the kubelet: it wants one
}

var (
	//go:embed herald.yaml
	heraldConfig string
	//go:embed kubelet.yaml
	kubeletConfig string
	//go:embed room.sh
	room string
)

func (p Place) settings() (*settings, error) {
	folder := filepath.Join(p.Runtime.Folder(), "agent")
	manifests := filepath.Join(folder, "manifests")
	if err := os.MkdirAll(manifests, 0o700); err != nil {
		return nil, err
	}
	kubeconfig, err := p.Cluster.NodeKubeconfig(p.Node)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	return &settings{
		Node: p.Node, Kubeconfig: kubeconfig, Folder: folder, Endpoint: p.Runtime.Endpoint(),
		Manifests: manifests, CgroupRoot: "/" + filepath.Base(p.Runtime.Folder()), Port: port,
	}, err
}

func heraldCommand(binary string, s *settings) ([]string, error) {
	file, err := s.write("herald.yaml", heraldConfig)
	return []string{binary, "run", "--config", file}, err
}

// kubeletCommand gives by flag what the configuration file has no field for. --containerd is where cAdvisor, which is a part
// of the kubelet, finds its containers.
func kubeletCommand(binary string, s *settings) ([]string, error) {
	file, err := s.write("kubelet.yaml", kubeletConfig)
	if err != nil {
		return nil, err
	}
	return []string{
		"unshare", "--mount", "/bin/sh", "-c", room, "room", s.Folder,
		binary, "--config", file, "--kubeconfig", s.Kubeconfig, "--hostname-override", s.Node, "--root-dir", s.Folder + "/root",
		"--cert-dir", s.Folder + "/certificates", "--containerd", strings.TrimPrefix(s.Endpoint, "unix://"),
	}, makeCgroup(s.CgroupRoot) // which it wants to find
}

// write fills in a configuration and returns its path.
func (s *settings) write(name, content string) (string, error) {
	path := filepath.Join(s.Folder, name)
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

// hierarchies are where cgroups are mounted: one of version 2, or one for each controller of version 1.
func hierarchies() []string {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil {
		return []string{root}
	}
	found, _ := filepath.Glob(root + "/*/cgroup.procs") // the pattern is right
	for i, file := range found {
		found[i] = filepath.Dir(file)
	}
	return found
}

func makeCgroup(name string) error {
	for _, hierarchy := range hierarchies() {
		if err := os.MkdirAll(filepath.Join(hierarchy, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroup removes the cgroup and those in it, the innermost first. The files in them cannot be removed, nor need they.
func removeCgroup(name string) error {
	var errs []error
	for _, hierarchy := range hierarchies() {
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
