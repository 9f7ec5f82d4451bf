package nodeagent

import (
	"context"
	"iter"

	"github.com/heraldnode/herald/containerlog"
	"github.com/heraldnode/herald/podid"
)

func (n *NodeAgent) newLogs() (err error) {
	n.Logs, err = containerlog.New(containerlog.Config{
		Dir: n.config.PodLogsDir, Paths: n.runtime, Pods: n.Agent.PLEG, Changes: n.changedPods, Logger: n.config.Logger,
	})
	return err
}

// changedPods yields the pods whose status changes until ctx ends.
func (n *NodeAgent) changedPods(ctx context.Context) iter.Seq[podid.UID] {
	changes := n.Agent.Statuses.Changes(ctx)
	return func(yield func(podid.UID) bool) {
		for change := range changes {
			if !yield(change.UID) {
				return
			}
		}
	}
}
