package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/nodeagent"
)

// longestSocket is what the kernel's address of a Unix socket has room for.
const longestSocket = 107

func (c *Config) checkRuntime(k *checker) {
	c.checkEndpoint(k, "containerRuntimeEndpoint", c.ContainerRuntimeEndpoint)
	c.checkEndpoint(k, "imageServiceEndpoint", c.ImageServiceEndpoint)
	switch c.Runtime {
	case nodeagent.RuntimeCRI:
		k.refuse(c.AllowAPIPods, "allowAPIPods", "is for runtime: process; a container runtime takes pods of the API server anyway")
	case nodeagent.RuntimeProcess:
		socket := filepath.Join(c.DataDir, "process.sock")
		k.refuse(len(socket) > longestSocket, "dataDir", "is too long by %d bytes for the name of a socket in it: take a shorter one",
			len(socket)-longestSocket)
	default:
		k.refuse(true, "runtime", "is %q: want %s or %s", c.Runtime, nodeagent.RuntimeCRI, nodeagent.RuntimeProcess)
	}
}

func (c *Config) checkContainers(k *checker) {
	k.positive("runtimeRequestTimeout", c.RuntimeRequestTimeout)
	k.refuse(c.MaxParallelImagePulls < 0, "maxParallelImagePulls", "is %d: want more than 0, or 0 for no limit", c.MaxParallelImagePulls)
	size, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	k.refuse(err != nil || size.IsZero() || !size.RoundUp(0), "containerLogMaxSize",
		"is %q: want a quantity of bytes, like 10Mi", c.ContainerLogMaxSize)
	k.refuse(c.ContainerLogMaxFiles < 2, "containerLogMaxFiles", "is %d: want at least 2", c.ContainerLogMaxFiles)
	k.refuse(!slices.Contains([]string{"", "cgroupfs", "systemd"}, c.CgroupDriver), "cgroupDriver",
		"is %q: want cgroupfs or systemd, or leave it out", c.CgroupDriver)
	k.refuse(c.CgroupRoot != "" && !filepath.IsAbs(c.CgroupRoot), "cgroupRoot", "is %q: begin it with a slash", c.CgroupRoot)
	k.refuse(c.ResolvConf == "", "resolvConf", "name a file; /dev/null has no name servers")
	for i, pattern := range c.AllowedUnsafeSysctls {
		k.refuse(!sysctl.MatchString(pattern), fmt.Sprintf("allowedUnsafeSysctls[%d]", i),
			"is %q: want the name of a sysctl, like net.core.somaxconn, or the beginning of some, like net.core.*", pattern)
	}
}

// sysctl is a name, or with a star the beginning of some; a star alone would let pods set what is the whole machine's.
var sysctl = regexp.MustCompile(`^[a-z0-9][-_.a-z0-9]*\*?$`)

func (c *Config) checkEndpoint(k *checker, path, endpoint string) {
	if endpoint == "" {
		return
	}
	k.refuse(c.Runtime == nodeagent.RuntimeProcess, path, "is for runtime: cri; leave it out with runtime: process")
	k.refuse(!strings.HasPrefix(endpoint, "unix:///"), path, "is %q: want a socket, like unix:///run/containerd/containerd.sock", endpoint)
}
