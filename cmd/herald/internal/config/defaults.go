package config

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/heraldnode/herald/nodeagent"
)

// DefaultListen is where an agent answers that was not told otherwise.
const DefaultListen = "unix:///run/herald/herald.sock"

const (
	defaultDataDir       = "/var/lib/herald"
	defaultCheckInterval = 20 * time.Second
	defaultMaxPods       = 110
	defaultQPS           = 50
	defaultBurst         = 100
	defaultResync        = time.Minute
	defaultTimeout       = 2 * time.Minute
	defaultLogSize       = "10Mi"
	defaultLogFiles      = 5
	defaultResolvConf    = "/etc/resolv.conf"
	defaultNodeUpdate    = 10 * time.Second
	defaultNodeReport    = 5 * time.Minute
	defaultLeaseSeconds  = 40
)

// Default is what holds where nothing is said.
func Default() Config {
	name, err := os.Hostname()
	if err != nil {
		name = "" // which is then asked for
	}
	return Config{
		NodeName: strings.ToLower(strings.TrimSpace(name)), DataDir: defaultDataDir,
		FileCheckFrequency: defaultCheckInterval, HTTPCheckFrequency: defaultCheckInterval,
		SyncFrequency: defaultResync, Runtime: nodeagent.RuntimeCRI, RuntimeRequestTimeout: defaultTimeout,
		ContainerLogMaxSize: defaultLogSize, ContainerLogMaxFiles: defaultLogFiles, ResolvConf: defaultResolvConf,
		RegisterNode: true, MaxPods: defaultMaxPods, NodeStatusUpdateFrequency: defaultNodeUpdate,
		NodeStatusReportFrequency: defaultNodeReport, NodeLeaseDurationSeconds: defaultLeaseSeconds,
		KubeAPIQPS: defaultQPS, KubeAPIBurst: defaultBurst, EventRecordQPS: defaultQPS, EventBurst: defaultBurst,
		Logging: Logging{Format: "text"},
	}
}

// ListenAddress is where the agent answers.
func (c *Config) ListenAddress() string {
	switch {
	case c.Listen != "":
		return c.Listen
	case c.DataDir == defaultDataDir:
		return DefaultListen
	default:
		return "unix://" + filepath.Join(c.DataDir, "herald.sock")
	}
}
