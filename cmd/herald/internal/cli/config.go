package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/heraldnode/herald/assembly"
)

// The identity of the configuration file.
const (
	configVersion = "heraldnode.github.io/v1alpha1"
	configKind    = "HeraldConfiguration"
)

// Config is what `herald run` can be told, by file and by flag. Fields that the kubelet has too have its names.
type Config struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`

	NodeName   string `yaml:"nodeName"`
	Kubeconfig string `yaml:"kubeconfig"`
	DataDir    string `yaml:"dataDir"`
	Listen     string `yaml:"listen"`

	StaticPodPath      string              `yaml:"staticPodPath"`
	StaticPodURL       string              `yaml:"staticPodURL"`
	StaticPodURLHeader map[string][]string `yaml:"staticPodURLHeader"`
	FileCheckFrequency time.Duration       `yaml:"fileCheckFrequency"`
	HTTPCheckFrequency time.Duration       `yaml:"httpCheckFrequency"`

	Runtime                  string `yaml:"runtime"`
	ContainerRuntimeEndpoint string `yaml:"containerRuntimeEndpoint"`
	ImageServiceEndpoint     string `yaml:"imageServiceEndpoint"`
	AllowAPIPods             bool   `yaml:"allowAPIPods"`

	PodLogsDir    string       `yaml:"podLogsDir"`
	NodeIP        netip.Addr   `yaml:"nodeIP"`
	RegisterNode  *bool        `yaml:"registerNode"`
	ClusterDNS    []netip.Addr `yaml:"clusterDNS"`
	ClusterDomain string       `yaml:"clusterDomain"`
	CgroupRoot    string       `yaml:"cgroupRoot"`
	MaxPods       int          `yaml:"maxPods"`

	KubeAPIQPS   float32 `yaml:"kubeAPIQPS"`
	KubeAPIBurst int     `yaml:"kubeAPIBurst"`
	Logging      logging `yaml:"logging"`
}

type logging struct {
	Format    string `yaml:"format"`    // text or json
	Verbosity int    `yaml:"verbosity"` // 0 is what an operator should see, 4 everything
}

func defaults() Config {
	name, err := os.Hostname()
	if err != nil {
		name = ""
	}
	return Config{
		NodeName: name, DataDir: "/var/lib/herald", Runtime: assembly.RuntimeCRI,
		KubeAPIQPS: 50, KubeAPIBurst: 100, Logging: logging{Format: "text"},
	}
}

// read lays a file over the configuration. Unknown fields, wrong types and a second document are errors with their line.
func (c *Config) read(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return usage("read the configuration: %w", err)
	}
	strict := yaml.NewDecoder(bytes.NewReader(data))
	strict.KnownFields(true)
	if err := strict.Decode(c); err != nil {
		return usage("%s: %w", file, err)
	}
	if err := strict.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return usage("%s: want one document", file)
	}
	if c.APIVersion != configVersion || c.Kind != configKind {
		return usage("%s: is apiVersion %q, kind %q; want apiVersion: %s, kind: %s", file, c.APIVersion, c.Kind, configVersion, configKind)
	}
	return nil
}

// assembly is the configuration as the node needs it.
func (c *Config) assembly() (assembly.Config, error) {
	m := assembly.Config{
		NodeName: c.NodeName, DataDir: c.DataDir,
		StaticPodPath: c.StaticPodPath, StaticPodURL: c.StaticPodURL, StaticPodURLHeader: http.Header(c.StaticPodURLHeader),
		FileCheckFrequency: c.FileCheckFrequency, HTTPCheckFrequency: c.HTTPCheckFrequency,
		Runtime: c.Runtime, ContainerRuntimeEndpoint: c.ContainerRuntimeEndpoint, ImageServiceEndpoint: c.ImageServiceEndpoint,
		AllowAPIPods: c.AllowAPIPods, PodLogsDir: c.PodLogsDir, NodeIP: c.NodeIP, ClusterDNS: c.ClusterDNS,
		ClusterDomain: c.ClusterDomain, CgroupRoot: c.CgroupRoot, MaxPods: c.MaxPods,
	}
	m.NoRegistration = c.RegisterNode != nil && !*c.RegisterNode
	var err error
	if m.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return m, usage("the data folder %q: %w", c.DataDir, err)
	}
	if c.StaticPodPath == "" && c.StaticPodURL == "" && c.Kubeconfig == "" {
		return m, usage("nothing to run: name a folder with --manifests, a URL with --manifest-url or an API server with --kubeconfig")
	}
	if c.Kubeconfig != "" {
		m.API, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
		if err != nil {
			return m, usage("read the kubeconfig: %w", err)
		}
		m.API.QPS, m.API.Burst = c.KubeAPIQPS, c.KubeAPIBurst
	}
	return m, nil
}

func (c *Config) listenAddress() string {
	if c.Listen != "" {
		return c.Listen
	}
	if c.DataDir == defaults().DataDir {
		return defaultListen
	}
	folder, err := filepath.Abs(c.DataDir)
	if err != nil {
		folder = c.DataDir
	}
	return fmt.Sprintf("unix://%s/herald.sock", folder)
}
