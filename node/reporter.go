package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/heraldnode/herald/node/report"
)

// reporter keeps the Node's status. One goroutine owns it.
type reporter struct {
	*Node
	pressures report.Pressures
	runtime   string            // the newest known version
	due       time.Time         // when the status is told even if it did not change
	adopted   types.UID         // of the object that is this node's; empty: none yet
	told      v1.NodeSystemInfo // by this agent; empty: nothing yet
	rivals    rivalry
}

const (
	// lookEvery is how soon a change between ready and not ready is told; to look costs no request.
	lookEvery = time.Second
	// askTimeout bounds what the runtime may take to tell its version.
	askTimeout = 2 * time.Second
)

func (r *reporter) run(ctx context.Context) {
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	var next time.Time
	var wasReady bool
	pause := r.backoff()
	for ctx.Err() == nil {
		if ready := r.notReady() == ""; ready != wasReady || !time.Now().Before(next) {
			wasReady = ready
			again := r.config.UpdateFrequency
			if err := r.keep(ctx); err != nil {
				again = pause.Step()
				r.failed(ctx, err, again)
			} else {
				pause = r.backoff()
			}
			next = time.Now().Add(again)
		}
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
}

func (r *reporter) backoff() wait.Backoff {
	return wait.Backoff{Duration: lookEvery, Factor: 2, Steps: 10, Cap: r.config.UpdateFrequency}
}

func (r *reporter) failed(ctx context.Context, err error, again time.Duration) {
	if ctx.Err() != nil {
		return
	}
	r.metrics.reports.WithLabelValues("failed").Inc()
	r.config.Logger.Warn("The node's status is not told", "node", r.config.NodeName, "again", again, "err", err)
	if unanswered(err) {
		r.config.Reconnect()
	}
}

// keep makes the API server say what is true of the node.
func (r *reporter) keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.UpdateFrequency)
	defer cancel()
	facts := r.look(ctx)
	if r.config.API == nil {
		r.alone(facts)
		return nil
	}
	object, err := r.config.API.GetNode(ctx, r.config.NodeName)
	if apierrors.IsNotFound(err) {
		return r.register(ctx, facts)
	}
	if err != nil {
		return err
	}
	if object, err = r.adopt(ctx, object, facts); err != nil {
		return err
	}
	if before := r.seen(object); before != nil {
		r.tell(report.SchedulingEvents(before, object)...)
	}
	return r.update(ctx, object, facts)
}

// look finds out how the machine is. What cannot be found out stays as it was.
func (r *reporter) look(ctx context.Context) report.MachineInfo {
	facts, err := r.config.MachineInfo()
	if err != nil {
		r.config.Logger.Warn("The machine cannot be looked at; what was known counts on", "err", err)
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.facts
	}
	facts.System.ContainerRuntimeVersion = r.runtimeVersion(ctx)
	r.remember(facts)
	return facts
}

// runtimeVersion is not asked for where it would only cost time: of a runtime that is known not to answer.
func (r *reporter) runtimeVersion(ctx context.Context) string {
	if r.config.RuntimeVersion == nil || (r.runtime != "" && r.config.Ready() != nil) {
		return r.runtime
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if name, version, err := r.config.RuntimeVersion(ctx); err == nil {
		r.runtime = fmt.Sprintf("%s://%s", name, version)
	}
	return r.runtime
}

// notReady says why pods cannot run here, or nothing. A runtime that does not answer has one reason for both.
func (r *reporter) notReady() string {
	err := r.config.Ready()
	network := r.config.NetworkReady()
	if network != nil && (err == nil || !strings.Contains(err.Error(), network.Error())) {
		err = errors.Join(err, fmt.Errorf("container runtime network not ready: %w", network))
	}
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

func (r *reporter) wanted(facts report.MachineInfo, before *v1.NodeStatus) *v1.NodeStatus {
	var conditions []v1.NodeCondition
	if before != nil {
		conditions = before.Conditions
	}
	now := time.Now()
	r.pressures = r.pressures.Next(facts, conditions, now)
	return report.Status(report.StatusInput{
		Machine: facts, Before: before, Pressures: r.pressures, NotReady: r.notReady(), MaxPods: r.config.MaxPods,
		Reserved: r.config.Reserved, Port: r.config.Port, Now: now,
	})
}

// alone is for a node without a cluster.
func (r *reporter) alone(facts report.MachineInfo) {
	before := &v1.NodeStatus{}
	if object := r.Object(); object != nil {
		before = &object.Status
	}
	now := report.NewNode(r.registration(), facts.Hostname, r.wanted(facts, before))
	r.seen(now)
	r.tell(report.Events(now.Name, before, &now.Status)...)
}

// update tells the status if it changed or is due.
func (r *reporter) update(ctx context.Context, object *v1.Node, facts report.MachineInfo) error {
	wanted := r.wanted(facts, &object.Status)
	if !report.Changed(&object.Status, wanted) && time.Now().Before(r.due) {
		r.metrics.reports.WithLabelValues("unchanged").Inc()
		return nil
	}
	if r.yields(object) {
		r.metrics.reports.WithLabelValues("rival").Inc()
		return nil
	}
	patch, err := report.StatusPatch(object, wanted)
	if err != nil {
		return err
	}
	updated, err := r.config.API.PatchNodeStatus(ctx, object.Name, patch)
	if err != nil {
		return err
	}
	r.acknowledged(&object.Status, updated)
	return nil
}

// acknowledged takes note that the API server says what it should. Nodes that were started together do not report
// together for ever.
func (r *reporter) acknowledged(before *v1.NodeStatus, now *v1.Node) {
	r.metrics.reports.WithLabelValues("told").Inc()
	r.due = time.Now().Add(r.config.ReportFrequency + rand.N(r.config.ReportFrequency/2+1))
	r.told = now.Status.NodeInfo
	r.seen(now)
	r.tell(report.Events(now.Name, before, &now.Status)...)
}
