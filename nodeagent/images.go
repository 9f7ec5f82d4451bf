package nodeagent

import (
	"context"

	"github.com/heraldnode/herald/imagegc/manager"
)

// newImageCollector creates what removes unused images.
func (n *NodeAgent) newImageCollector() (err error) {
	if n.config.Runtime == RuntimeProcess {
		return nil
	}
	n.imageCollector, err = manager.New(manager.Config{
		NodeName: n.config.NodeName, Runtime: n.runtime, Policy: *n.config.ImageGC, State: n.state,
		Events: n.Events, Logger: n.config.Logger, Metrics: n.config.Metrics,
	})
	return err
}

// runImageCollector removes unused images until ctx ends.
func (n *NodeAgent) runImageCollector(ctx context.Context) {
	if n.imageCollector != nil {
		_ = n.imageCollector.Run(ctx)
	}
}
