package config

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/heraldnode/herald/assembly"
	"github.com/heraldnode/herald/server"
)

// checker holds the values against each other.
type checker struct {
	said     map[string]string // where each field was said
	problems []error
}

// refuse complains about a field at the place that said it.
func (k *checker) refuse(when bool, path, format string, args ...any) {
	if !when {
		return
	}
	at := k.said[path]
	switch {
	case at == "":
		at = path
	case !strings.HasPrefix(at, "--"): // a flag says enough
		at += ": " + path
	}
	k.problems = append(k.problems, errors.New(at+": "+fmt.Sprintf(format, args...)))
}

// check finds what is wrong although each value by itself could be read.
func (c *Config) check(said map[string]string) error {
	k := &checker{said: said}
	c.checkNode(k)
	c.checkSources(k)
	c.checkRuntime(k)
	if err := server.CheckAddress(c.ListenAddress()); err != nil {
		k.refuse(true, "listen", "%v", err)
	}
	k.refuse(c.KubeAPIQPS <= 0 && c.KubeAPIQPS != -1, "kubeAPIQPS", "is %d: want more than 0, or -1 for no limit", c.KubeAPIQPS)
	k.refuse(c.KubeAPIBurst <= 0, "kubeAPIBurst", "is %d: want more than 0", c.KubeAPIBurst)
	k.refuse(c.Logging.Format != "text" && c.Logging.Format != "json", "logging.format", "is %q: want text or json", c.Logging.Format)
	k.refuse(c.Logging.Verbosity < 0, "logging.verbosity", "is %d: want 0 to 4", c.Logging.Verbosity)
	return errors.Join(k.problems...)
}

func (c *Config) checkNode(k *checker) {
	problems := validation.IsDNS1123Subdomain(c.NodeName)
	k.refuse(len(problems) > 0, "nodeName", "%q is no name of a node: %s", c.NodeName, strings.Join(problems, "; "))
	k.refuse(c.DataDir == "", "dataDir", "name a folder")
	k.refuse(c.MaxPods <= 0, "maxPods", "is %d: want more than 0", c.MaxPods)
	for _, key := range slices.Sorted(maps.Keys(c.NodeLabels)) {
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(c.NodeLabels[key])...)
		k.refuse(len(problems) > 0, "nodeLabels", "%s=%s is no label: %s", key, c.NodeLabels[key], strings.Join(problems, "; "))
	}
	for i, taint := range c.RegisterWithTaints {
		path := fmt.Sprintf("registerWithTaints[%d]", i)
		problems := append(validation.IsQualifiedName(taint.Key), validation.IsValidLabelValue(taint.Value)...)
		k.refuse(len(problems) > 0, path, "%s=%s is no taint: %s", taint.Key, taint.Value, strings.Join(problems, "; "))
		effects := []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute}
		k.refuse(!slices.Contains(effects, taint.Effect), path+".effect", "is %q: want NoSchedule, PreferNoSchedule or NoExecute", taint.Effect)
	}
}

func (c *Config) checkSources(k *checker) {
	if c.StaticPodPath == "" && c.StaticPodURL == "" && c.Kubeconfig == "" {
		k.problems = append(k.problems, errors.New(
			"nothing to run: name a folder with --manifests, a URL with --manifest-url or an API server with --kubeconfig"))
	}
	if _, err := os.Stat(c.Kubeconfig); c.Kubeconfig != "" && err != nil {
		k.refuse(true, "kubeconfig", "%v", err)
	}
	k.refuse(c.FileCheckFrequency <= 0, "fileCheckFrequency", "is %v: want more than 0s", c.FileCheckFrequency)
	k.refuse(c.HTTPCheckFrequency <= 0, "httpCheckFrequency", "is %v: want more than 0s", c.HTTPCheckFrequency)
	k.refuse(c.StaticPodURL != "" && !isSafeURL(c.StaticPodURL), "staticPodURL",
		"want an https URL, or an http one on this machine: whoever can change pods on the way is root here")
	k.refuse(c.StaticPodURL == "" && len(c.StaticPodURLHeader) > 0, "staticPodURLHeader", "there is no staticPodURL to send it to")
	k.refuse((c.StaticPodURLCertFile == "") != (c.StaticPodURLKeyFile == ""), "staticPodURLCertFile",
		"is of use with staticPodURLKeyFile only: give both or none")
}

// isSafeURL reports whether nobody on the way can change what is read. The value is not shown, for people put secrets into it.
func isSafeURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && address.IsLoopback()
	return u.Scheme == "https" || u.Scheme == "http" && local
}

// longestSocket is what the kernel's address of a Unix socket has room for.
const longestSocket = 107

func (c *Config) checkRuntime(k *checker) {
	c.checkEndpoint(k, "containerRuntimeEndpoint", c.ContainerRuntimeEndpoint)
	c.checkEndpoint(k, "imageServiceEndpoint", c.ImageServiceEndpoint)
	switch c.Runtime {
	case assembly.RuntimeCRI:
		k.refuse(c.AllowAPIPods, "allowAPIPods", "is for runtime: process; a container runtime takes pods of the API server anyway")
	case assembly.RuntimeProcess:
		socket := filepath.Join(c.DataDir, "process.sock")
		k.refuse(len(socket) > longestSocket, "dataDir", "is too long by %d bytes for the name of a socket in it: take a shorter one",
			len(socket)-longestSocket)
	default:
		k.refuse(true, "runtime", "is %q: want %s or %s", c.Runtime, assembly.RuntimeCRI, assembly.RuntimeProcess)
	}
}

func (c *Config) checkEndpoint(k *checker, path, endpoint string) {
	if endpoint == "" {
		return
	}
	k.refuse(c.Runtime == assembly.RuntimeProcess, path, "is for runtime: cri; leave it out with runtime: process")
	k.refuse(!strings.HasPrefix(endpoint, "unix:///"), path, "is %q: want a socket, like unix:///run/containerd/containerd.sock", endpoint)
}
