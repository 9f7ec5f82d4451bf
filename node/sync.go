package node

import (
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/apierror"
	"github.com/heraldnode/herald/node/report"
)

// SyncState says how the Node object compares with the local status. The values are those of status.SyncState.
type SyncState string

// The states.
const (
	SyncSynced   SyncState = "synced"   // the Node object has the local status
	SyncSending  SyncState = "sending"  // a report is under way or will be at once
	SyncWaiting  SyncState = "waiting"  // a report failed or is limited, and is retried
	SyncRefused  SyncState = "refused"  // the API server rejects the report; it is retried
	SyncGone     SyncState = "gone"     // the Node object does not exist
	SyncNoServer SyncState = "noServer" // there is no API server
)

// Sync compares the local status of the node with the Node object. Its pointers are shared and must not be modified.
type Sync struct {
	State SyncState
	// Local is the status of the last check, at LocalAt. Nil before the first one.
	Local   *v1.NodeStatus
	LocalAt time.Time
	// Synced is the status of the Node object in the version ResourceVersion, SyncedAt when this agent last reported to it or found
	// that it is up to date. Nil if the object is not known.
	Synced          *v1.NodeStatus
	SyncedAt        time.Time
	ResourceVersion string
	// Since is since when the Node object does not have the local status. Zero if it has.
	Since time.Time
	// Reason says why the status is not synced, or why the last check of it failed. Failures counts the failed ones in a row. NextTry is
	// when the next one begins.
	Reason   string
	Failures int
	NextTry  time.Time
	Lease    LeaseSync
}

// LeaseSync is the state of the node's lease. It is zero without an API server.
type LeaseSync struct {
	// RenewedAt is when the lease was last renewed. Zero if it was not.
	RenewedAt time.Time
	Duration  time.Duration
	// Problem is why the last renewal failed, after Failures in a row. NextTry is when the next one begins.
	Problem  string
	Failures int
	NextTry  time.Time
}

// syncState is what Sync reports. Node.mu guards it.
type syncState struct {
	local    *v1.NodeStatus
	localAt  time.Time
	syncedAt time.Time
	since    time.Time
	err      error // of the last report; nil if it succeeded
	failures int
	nextTry  time.Time
	lease    LeaseSync
	told     toldSync
}

// toldSync is what OnSync was last called for.
type toldSync struct {
	state                      SyncState
	isFailing, hasLeaseProblem bool
}

// Sync compares the local status with the Node object.
func (n *Node) Sync() Sync {
	n.mu.Lock()
	defer n.mu.Unlock()
	state := &n.sync
	sync := Sync{Local: state.local, LocalAt: state.localAt}
	if n.config.API == nil {
		sync.State = SyncNoServer
		return sync
	}
	sync.SyncedAt, sync.Failures, sync.NextTry = state.syncedAt, state.failures, state.nextTry
	sync.Lease = state.lease
	sync.Lease.Duration = n.config.LeaseDuration
	if n.object != nil {
		sync.Synced, sync.ResourceVersion = &n.object.Status, n.object.ResourceVersion
	}
	sync.State, sync.Reason = state.decide(sync.Synced)
	if sync.State != SyncSynced {
		sync.Since = state.since
	}
	return sync
}

// decide returns the state and why it is that.
func (s *syncState) decide(synced *v1.NodeStatus) (SyncState, string) {
	reason := ""
	if s.err != nil {
		reason = apierror.Describe(s.err)
	}
	switch {
	case errors.Is(s.err, errDeleted), errors.Is(s.err, errNotRegistered):
		return SyncGone, reason
	case synced != nil && s.local != nil && !report.StatusChanged(synced, s.local):
		return SyncSynced, reason
	case s.err == nil:
		return SyncSending, ""
	case apierror.Classify(s.err) == apierror.Rejected:
		return SyncRefused, reason
	default:
		return SyncWaiting, reason
	}
}

// setLocal stores the status of a check.
func (n *Node) setLocal(local *v1.NodeStatus) {
	now := time.Now()
	defer n.reportSync()
	n.mu.Lock()
	defer n.mu.Unlock()
	local = report.WithoutRemoved(local)
	n.sync.local, n.sync.localAt = local, now
	switch {
	case n.object != nil && !report.StatusChanged(&n.object.Status, local):
		n.sync.since = time.Time{}
	case n.sync.since.IsZero():
		n.sync.since = now
	}
}

// setReported stores the result of a report, and when the next one begins.
func (n *Node) setReported(err error, pause time.Duration) {
	now := time.Now()
	defer n.reportSync()
	n.mu.Lock()
	defer n.mu.Unlock()
	state := &n.sync
	state.err, state.nextTry = err, now.Add(pause)
	if err != nil {
		state.failures++
		return
	}
	state.failures, state.since, state.syncedAt = 0, time.Time{}, now
}

// reportSync calls OnSync if the state has changed since the last call.
func (n *Node) reportSync() {
	sync := n.Sync()
	told := toldSync{state: sync.State, isFailing: sync.Failures > 0, hasLeaseProblem: sync.Lease.Problem != ""}
	n.mu.Lock()
	changed := n.sync.told != told
	n.sync.told = told
	n.mu.Unlock()
	if changed {
		n.config.OnSync()
	}
}

// setRenewed stores the result of a renewal of the lease, and when the next one begins. renewed is nil if there is no lease.
func (n *Node) setRenewed(renewed *coordinationv1.Lease, err error, pause time.Duration) {
	now := time.Now()
	defer n.reportSync()
	n.mu.Lock()
	defer n.mu.Unlock()
	lease := &n.sync.lease
	lease.NextTry = now.Add(pause)
	if err != nil {
		lease.Problem, lease.Failures = apierror.Describe(err), lease.Failures+1
		return
	}
	lease.Problem, lease.Failures = "", 0
	if renewed != nil && renewed.Spec.RenewTime != nil {
		lease.RenewedAt = renewed.Spec.RenewTime.Time
	}
}
