package node

import (
	"context"
	"net/netip"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/node/report"
)

// Node is this one. Run is called once; all other methods may be called by any goroutine, before, during and after it.
type Node struct {
	config     Config
	metrics    *metrics
	registered chan struct{} // closed when the object was first seen in the API server

	mu    sync.Mutex // guards all below
	facts report.MachineInfo
	// object is the newest that is known of the Node: from the API server where there is one, else as it would be.
	object *v1.Node
}

// New makes a Node and looks at the machine, so that its addresses are known from the beginning.
func New(config Config) (*Node, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	facts, err := config.MachineInfo()
	if err != nil {
		return nil, err
	}
	n := &Node{config: config, registered: make(chan struct{}), facts: facts}
	n.metrics, err = newMetrics(config.Metrics, config.NodeName)
	return n, err
}

// Run keeps the node's status and lease until ctx ends. An API server that does not answer, or refuses, is asked again
// for as long as it takes.
func (n *Node) Run(ctx context.Context) error {
	n.tell(report.Event{Type: v1.EventTypeNormal, Reason: "Starting", Message: "Starting herald."})
	var running sync.WaitGroup
	running.Go(func() { (&reporter{Node: n}).run(ctx) })
	if n.config.API != nil {
		running.Go(func() { (&tenant{Node: n}).run(ctx) })
	}
	running.Wait()
	return nil
}

// WaitForRegistration returns when the API server has the Node, or with the error of ctx when that ends first.
func (n *Node) WaitForRegistration(ctx context.Context) error {
	select {
	case <-n.registered:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Registered is closed when the API server has the Node.
func (n *Node) Registered() <-chan struct{} { return n.registered }

// HostIPs are the node's addresses, the primary one first, at most one of each family.
func (n *Node) HostIPs() []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return report.HostIPs(n.facts.Addresses)
}

// Addresses are all that the node is known by: those that others told the API server come last.
func (n *Node) Addresses() []v1.NodeAddress {
	n.mu.Lock()
	defer n.mu.Unlock()
	var before *v1.NodeStatus
	if n.object != nil {
		before = &n.object.Status
	}
	return report.Status(report.StatusInput{Machine: n.facts, Before: before}).Addresses
}

// Object is the newest that is known of the Node: what the API server has or, where there is none, what it would be told.
// It is the caller's; nil until Run knows, and when the Node was deleted.
func (n *Node) Object() *v1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.object.DeepCopy()
}

func (n *Node) remember(facts report.MachineInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.facts = facts
}

// seen takes note of the newest version of the object and returns the one before.
func (n *Node) seen(object *v1.Node) *v1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.object
	n.object = object
	return before
}

// tell is for operators. Like the kubelet's, the events have the node's name for its UID: they begin before the real one
// is known, and kubectl describe finds both.
func (n *Node) tell(events ...report.Event) {
	about := &v1.ObjectReference{Kind: "Node", Name: n.config.NodeName, UID: types.UID(n.config.NodeName)}
	for _, event := range events {
		n.config.Events.Event(about, event.Type, event.Reason, event.Message)
	}
}
