package config

import "github.com/spf13/pflag"

// Flags are the flags of the fields that have one, and what they were set to.
type Flags struct {
	set   *pflag.FlagSet
	given Config
}

// Bind adds the flags to a command's.
func Bind(set *pflag.FlagSet) *Flags {
	flags := &Flags{set: set, given: Default()}
	c := &flags.given
	set.StringVar(&c.NodeName, "node-name", c.NodeName, "name of this node")
	set.StringVar(&c.Kubeconfig, "kubeconfig", "", "how to reach the API server; without it the node is alone")
	set.StringVar(&c.DataDir, "data-dir", c.DataDir, "folder of all that must survive the agent")
	set.StringVar(&c.Listen, "listen", "", "where to answer 'herald get': unix:///path or 127.0.0.1:port (default "+
		DefaultListen+", or herald.sock in another --data-dir)")
	set.StringVar(&c.StaticPodPath, "manifests", "", "folder of manifests of static pods, or one manifest")
	set.StringVar(&c.StaticPodURL, "manifest-url", "", "URL of manifests of static pods")
	set.StringVar(&c.Runtime, "runtime", c.Runtime, "cri: containerd or CRI-O; process: plain processes, no isolation at all")
	set.StringVar(&c.ContainerRuntimeEndpoint, "runtime-endpoint", "", "socket of the container runtime (default containerd's)")
	set.BoolVar(&c.AllowAPIPods, "allow-api-pods", false, "let --runtime=process run pods of the API server too")
	set.TextVar(&c.NodeIP, "node-ip", c.NodeIP, "address of this node (default that of the interface that leads out)")
	set.StringToStringVar(&c.NodeLabels, "node-labels", nil, "labels of the Node object, like disk=ssd,zone=a")
	set.IntVarP(&c.Logging.Verbosity, "verbosity", "v", 0, "0: what an operator should see, 4: everything")
	return flags
}
