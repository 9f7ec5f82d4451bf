package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/heraldnode/herald/internal/permission"
)

// MaxBytes is the maximum size of a configuration file.
const MaxBytes = 1 << 20

// Flags holds the values of the flags.
type Flags struct {
	set    *pflag.FlagSet
	values Config
}

// Bind defines a flag in set for each field that has one.
func Bind(set *pflag.FlagSet) *Flags {
	flags := &Flags{set: set, values: Default()}
	c := &flags.values
	set.StringVar(&c.NodeName, "node-name", c.NodeName, "name of this node (default that of the host)")
	set.Lookup("node-name").DefValue = "" // the help is the same on all machines
	set.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig file for the API server; without it the node runs without a cluster")
	set.StringVar(&c.BootstrapKubeconfig, "bootstrap-kubeconfig", "", "kubeconfig file with a bootstrap token, to get a client certificate; "+
		"--kubeconfig is written then")
	set.StringVar(&c.CertDir, "cert-dir", "", "directory of certificates, in the kubelet's layout (default pki in --root-dir)")
	set.BoolVar(&c.AllowInsecureAPI, "allow-insecure-api", false, "allow an API server with http, or without verifying its certificate")
	set.StringVar(&c.DataDir, "data-dir", c.DataDir, "directory for state that must survive a restart of the agent")
	set.StringVar(&c.RootDir, "root-dir", "", "directory of the pods' volumes and files, like the kubelet's (default --data-dir)")
	set.StringVar(&c.Listen, "listen", "", "address of the local server: unix:///path or 127.0.0.1:port (default "+
		DefaultListen+", or herald.sock in --data-dir if that is set)")
	set.StringVar(&c.KubectlListen, "kubectl-listen", "", "loopback address for kubectl, like 127.0.0.1:10260; see 'herald kubeconfig'")
	set.IntVar(&c.Port, "port", 0, "port of the node's HTTPS server, or 0 for none (default 10250 with --kubeconfig)")
	set.IntVar(&c.HealthzPort, "healthz-port", 0, "port of the health server, or 0 for none (default 10248 with --kubeconfig)")
	set.StringVar(&c.StaticPodPath, "manifests", "", "directory of static pod manifests, or a single manifest file")
	set.StringVar(&c.StaticPodURL, "manifest-url", "", "URL of static pod manifests")
	set.StringVar(&c.Runtime, "runtime", c.Runtime, "cri for containerd or CRI-O, process for host processes without isolation")
	set.StringVar(&c.ContainerRuntimeEndpoint, "runtime-endpoint", "", "socket of the container runtime (default containerd's)")
	set.BoolVar(&c.AllowAPIPods, "allow-api-pods", false, "allow pods from the API server with --runtime=process")
	set.TextVar(&c.NodeIP, "node-ip", c.NodeIP, "IP address of this node, or one of each family (default those of the interfaces "+
		"with the default routes)")
	set.StringToStringVar(&c.NodeLabels, "node-labels", nil, "labels of the Node object, like disk=ssd,zone=a")
	set.IntVarP(&c.Logging.Verbosity, "verbosity", "v", 0, "log verbosity: 0 for what an operator needs, 4 for everything")
	return flags
}

// Load reads the file, the drop-ins of dir in lexical order, and the flags. Later sources override earlier ones. An empty file or
// dir is skipped. The error has a line for each problem.
func Load(file, dir string, flags *Flags) (Config, error) {
	c, _, err := load(file, dir, flags)
	return c, err
}

// load also returns where each field was set, by path.
func load(file, dir string, flags *Flags) (Config, map[string]string, error) {
	c, origins := Default(), map[string]string{}
	files, err := findFiles(file, dir)
	for _, name := range files {
		err = errors.Join(err, c.readFile(name, origins))
	}
	if err == nil {
		c.applyFlags(flags, origins)
		if file != "" && c.Alerting.RuleFiles == nil {
			c.Alerting.RuleFiles = []string{filepath.Join(filepath.Dir(file), "alerts.d")}
		}
		c.setServerDefaults(origins)
		err = c.makePathsAbsolute()
	}
	if err == nil {
		err = c.validate(origins)
	}
	return c, origins, err
}

func findFiles(file, dir string) ([]string, error) {
	var files []string
	if file != "" {
		files = append(files, file)
	}
	if dir == "" {
		return files, nil
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("read drop-in directory %s: %w; use --config for a file", dir, syscall.ENOTDIR)
	}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if err := permissions.CheckFile(path); err != nil {
				return err
			}
		}
		isHidden := strings.HasPrefix(entry.Name(), ".") && path != dir // files of editors and of mounted ConfigMaps
		switch {
		case isHidden && entry.IsDir():
			return fs.SkipDir
		case !isHidden && !entry.IsDir() && filepath.Ext(path) == ".conf":
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; create it or omit --config-dir", err)
		}
		return nil, fmt.Errorf("read drop-in directory: %w", err)
	}
	return files, nil
}

// permissions checks files that decide what the agent does.
var permissions = permission.New("configure the agent")

// readFile applies a file to the configuration. A file that other users can modify is rejected.
func (c *Config) readFile(file string, origins map[string]string) error {
	if err := permissions.CheckFile(file); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	text, err := ReadFile(file)
	if err != nil {
		return err
	}
	return newDecoder(file, origins).decode(text, c)
}

// ReadFile returns the content of a regular file of at most MaxBytes.
func ReadFile(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("read configuration: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > MaxBytes {
		return "", fmt.Errorf("read configuration: %s: must be a regular file of at most %d bytes", file, MaxBytes)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read configuration: %w", err)
	}
	return string(text), nil
}

// applyFlags applies the flags that were set.
func (c *Config) applyFlags(flags *Flags, origins map[string]string) {
	values := reflect.ValueOf(&flags.values).Elem()
	for l := range leaves(reflect.ValueOf(c).Elem(), "") {
		if flag := l.Tag.Get("flag"); flag != "" && flags.set.Changed(flag) {
			l.value.Set(leafValue(values, l.path))
			origins[l.path] = "--" + flag
		}
	}
}

func (c *Config) makePathsAbsolute() error { return makeAbsolute(reflect.ValueOf(c).Elem(), "") }

// makeAbsolute makes the paths of a struct absolute, also those in lists.
func makeAbsolute(parent reflect.Value, prefix string) error {
	for l := range leaves(parent, prefix) {
		isPath, values := l.Tag.Get("format") == "path", []reflect.Value{l.value}
		if l.Type.Kind() == reflect.Slice {
			values = nil
			for i := range l.value.Len() {
				values = append(values, l.value.Index(i))
			}
		}
		for _, value := range values {
			switch {
			case isStruct(value.Type()):
				if err := makeAbsolute(value, l.path+"[]."); err != nil {
					return err
				}
			case isPath && value.String() != "":
				path, err := filepath.Abs(value.String())
				if err != nil {
					return fmt.Errorf("%s: %w", l.path, err)
				}
				value.SetString(path)
			}
		}
	}
	return nil
}
