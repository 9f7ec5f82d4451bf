package nodeagent

import (
	"context"
	"errors"

	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/node/machine"
	"github.com/heraldnode/herald/node/report"
	"github.com/heraldnode/herald/stats"
)

func (n *NodeAgent) newStats() (err error) {
	if n.meter, err = stats.NewMachine("/"); err != nil {
		return err
	}
	n.Stats, err = stats.New(stats.Config{
		OnNode: func() {
			n.Agent.Evictions.Wake()
			if n.Alerts != nil {
				n.Alerts.NodeSampled()
			}
		},
		OnPods: func() {
			if n.Alerts != nil {
				n.Alerts.PodsSampled()
			}
		},
		Machine: n.meter, Pods: n.runtime, FileSystems: n.statsFileSystems, OnLevel: n.tellLevel, Dir: n.path("load"),
		Logger: n.config.Logger,
	})
	if err != nil || n.config.Metrics == nil {
		return err
	}
	return n.config.Metrics.Register(n.Stats.LoadMetrics())
}

// recordLevel passes a change of the level of the node's load to the history.
func (n *NodeAgent) recordLevel(before, after load.Node) {
	saturation, _ := after.Saturation.Value.Get()
	n.History.LoadLevelChanged(string(before.Level), string(after.Level), string(after.Saturation.Culprit), saturation)
}

// statsFileSystems returns the directories of the file systems that the node's load includes. Those of the runtime are known once
// the node's status has been reported.
func (n *NodeAgent) statsFileSystems() map[string]string {
	dirs := map[string]string{stats.DataFileSystem: n.config.RootDir, stats.LogsFileSystem: n.config.PodLogsDir}
	if known := n.imageDirs.Load(); known != nil && len(*known) > 0 {
		dirs[stats.ImagesFileSystem], dirs[stats.ContainersFileSystem] = (*known)[0], (*known)[len(*known)-1]
	}
	return dirs
}

// imageFileSystems returns the file system in which the runtime keeps images, and that of the containers' own layers if it is in
// another directory.
func (n *NodeAgent) imageFileSystems(ctx context.Context) (images, containers report.FileSystem, err error) {
	dirs, err := n.runtime.ImageDirs(ctx)
	if err != nil {
		return images, containers, err
	}
	n.imageDirs.Store(&dirs)
	if len(dirs) > 0 {
		images, err = machine.StatFileSystem(dirs[0])
	}
	if len(dirs) > 1 {
		var containersErr error
		containers, containersErr = machine.StatFileSystem(dirs[len(dirs)-1])
		err = errors.Join(err, containersErr)
	}
	return images, containers, err
}
