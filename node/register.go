package node

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/heraldnode/herald/node/report"
)

func (r *reporter) registration() report.Registration {
	return report.Registration{
		Name: r.config.NodeName, Labels: r.config.Labels, Taints: r.config.Taints, ProviderID: r.config.ProviderID,
	}
}

var (
	errNotRegistered = errors.New("the Node does not exist, and this agent was told not to register it")
	errDeleted       = errors.New("the Node was deleted; it is registered again when the agent is started again")
)

// register creates the object that is not there. A node that was deleted while its agent ran stays deleted, as with the kubelet: it comes
// back without its taints and open to pods, which is not what somebody wants who has just emptied and removed it.
func (r *reporter) register(ctx context.Context, facts report.MachineInfo) error {
	r.seen(nil)
	switch {
	case r.config.NoRegistration:
		return errNotRegistered
	case r.adopted != "":
		return errDeleted
	}
	created, err := r.config.API.CreateNode(ctx, report.NewNode(r.registration(), facts.Hostname, r.wanted(facts, nil)))
	if err != nil {
		return err
	}
	r.config.Logger.Info("Node registered", "node", created.Name)
	r.acknowledged(&v1.NodeStatus{}, created)
	r.take(created)
	return nil
}

// adopt makes an object that was there before this agent, or is another than before, this node's. That it may not be
// labelled is no reason not to be alive.
func (r *reporter) adopt(ctx context.Context, object *v1.Node, facts report.MachineInfo) (*v1.Node, error) {
	if r.adopted == object.UID {
		return object, nil
	}
	patch, err := report.AdoptionPatch(object, r.registration(), facts.Hostname, facts.System)
	if err != nil {
		return nil, err
	}
	if patch != nil {
		patched, err := r.config.API.PatchNode(ctx, object.Name, patch)
		switch {
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			r.config.Logger.Warn("The node's labels are not brought up to date", "node", object.Name, "err", err)
		case err != nil:
			return nil, err
		default:
			object = patched
		}
	}
	r.take(object)
	return object, nil
}

// take makes the object this node's: from now on the lease can have it for an owner.
func (r *reporter) take(object *v1.Node) {
	first := r.adopted == ""
	r.adopted = object.UID
	if first {
		r.seen(object)
		close(r.registered)
	}
}

// rivalry is how often in the last minute somebody else told something else of the same machine.
type rivalry []time.Time

// Two agents of one node would overwrite each other for ever (F30).
const (
	rivalWindow = time.Minute
	rivalLimit  = 3
)

// yields reports whether to let another agent's word stand for now. What a controller changes, such as the state of a
// node that was not heard of, is no rival's; the versions and IDs of a machine are only its agent's.
func (r *reporter) yields(object *v1.Node) bool {
	now := time.Now()
	r.rivals = slices.DeleteFunc(r.rivals, func(at time.Time) bool { return now.Sub(at) > rivalWindow })
	if r.told == (v1.NodeSystemInfo{}) || report.SameSystem(r.told, object.Status.NodeInfo) {
		return false
	}
	if len(r.rivals) >= rivalLimit {
		return true
	}
	r.rivals = append(r.rivals, now)
	r.config.Logger.Warn("Somebody else tells something else of this node; is there another agent with its name?",
		"node", object.Name, "version", object.Status.NodeInfo.KubeletVersion)
	return false
}
