package nodeagent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/node"
)

// AllocatedPods returns the pods that the cgroups of QoS classes are computed from.
func (n *NodeAgent) AllocatedPods() (pods []*v1.Pod, complete bool) { return n.allocatedPods() }

// RecordLevel records a change of the level of the node's load.
func (n *NodeAgent) RecordLevel(before, after load.Node) { n.recordLevel(before, after) }

// NewStartupTracker returns a startupTracker and its observe method.
func NewStartupTracker(api node.API, bootAt time.Time, registry prometheus.Registerer) (node.API, func(*v1.Node), error) {
	tracker, err := newStartupTracker(api, bootAt, registry)
	if err != nil {
		return nil, nil, err
	}
	return tracker, tracker.observe, nil
}

func NewCertificate(config *rest.Config) func() time.Time { return newCertificate(config).expires }
