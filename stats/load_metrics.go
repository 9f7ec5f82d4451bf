package stats

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/load"
)

// LoadMetrics returns a collector of the node's load. What is unknown is left out.
func (c *Collector) LoadMetrics() prometheus.Collector { return loadMetrics{collector: c} }

type loadMetrics struct{ collector *Collector }

var (
	resourceLabel   = []string{"resource"}
	fileSystemLabel = []string{"file_system"}

	saturationDesc = prometheus.NewDesc("herald_node_load_saturation",
		"How close a resource of the node is to its limit: 0 is none, 1 is all.", resourceLabel, nil)
	levelDesc = prometheus.NewDesc("herald_node_load_level",
		"1 for the level of the node's load, 0 for the others: idle, normal, busy, saturated.", []string{"level"}, nil)
	usageDesc = prometheus.NewDesc("herald_node_usage_ratio",
		"Share of a resource that is in use, mean of one minute.", resourceLabel, nil)
	pressureDesc = prometheus.NewDesc("herald_node_pressure_ratio",
		"Share of time in which tasks wait for a resource, mean of one minute: some of them, or all.", []string{"resource", "tasks"}, nil)
	diskDesc = prometheus.NewDesc("herald_node_file_system_usage_ratio",
		"Share of a file system that is in use.", fileSystemLabel, nil)
	inodesDesc = prometheus.NewDesc("herald_node_file_system_inode_usage_ratio",
		"Share of a file system's inodes that is in use.", fileSystemLabel, nil)
	fullDesc = prometheus.NewDesc("herald_node_file_system_full_seconds",
		"Time until a file system is full if it fills as in the last hours. Absent if it does not.", fileSystemLabel, nil)
	oomDesc = prometheus.NewDesc("herald_node_oom_kills_total",
		"Processes that the kernel killed since the boot because memory was short.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m loadMetrics) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		saturationDesc, levelDesc, usageDesc, pressureDesc, diskDesc, inodesDesc, fullDesc, oomDesc,
	} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (m loadMetrics) Collect(metrics chan<- prometheus.Metric) {
	node := m.collector.Node()
	send := sender{metrics: metrics}
	for resource, value := range node.Saturation.Resources.All() {
		send.gauge(saturationDesc, value, string(resource))
	}
	if node.Level != load.LevelUnknown {
		for _, level := range load.Levels() {
			value := 0.0
			if level == node.Level {
				value = 1
			}
			send.gauge(levelDesc, load.Known(value), string(level))
		}
	}
	for resource, windows := range map[string]load.Windows{
		"cpu": node.CPU, "iowait": node.IOWait, "steal": node.Steal, "memory": node.Memory, "pids": node.PIDs,
	} {
		send.gauge(usageDesc, windows.OneMinute.Mean, resource)
	}
	pressure := node.Pressure
	send.gauge(pressureDesc, pressure.CPU, "cpu", "some")
	send.gauge(pressureDesc, pressure.Memory, "memory", "some")
	send.gauge(pressureDesc, pressure.MemoryFull, "memory", "all")
	send.gauge(pressureDesc, pressure.IO, "io", "some")
	send.gauge(pressureDesc, pressure.IOFull, "io", "all")
	for _, fileSystem := range node.FileSystems {
		send.gauge(diskDesc, fileSystem.Use, fileSystem.Name)
		send.gauge(inodesDesc, fileSystem.InodeUse, fileSystem.Name)
		if hours, known := fileSystem.HoursToFull.Get(); known {
			send.gauge(fullDesc, load.Known(hours*3600), fileSystem.Name)
		}
	}
	send.counter(oomDesc, node.OOMKills)
}
