package agents

import (
	_ "embed"
	"net"
	"os"
	"path/filepath"
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
