package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/node/report"
)

// statusReporter registers the node and reports its status. It is owned by one goroutine.
type statusReporter struct {
	*Node
	pressure       eviction.State      // unless Config.Pressures decides
	isObserved     bool                // pressure has observed the machine
	runtimeVersion string              // the latest known
	images         []v1.ContainerImage // the latest known; nil before that
	imagesAt       time.Time
	nextReport     time.Time         // when an unchanged status is reported
	adoptedUID     types.UID         // of the Node object; empty before registration
	resetUID       types.UID         // of the Node object whose extended resources were reset
	reported       v1.NodeSystemInfo // by this agent; zero before the first report
	foreignReports []time.Time       // in the last minute, see shouldYield
	limited        error             // why the last sync did not report; nil if it did
}

const (
	// readyCheckInterval is how often readiness is checked, which needs no request.
	readyCheckInterval = time.Second
	// runtimeTimeout limits each request to the runtime.
	runtimeTimeout = 2 * time.Second
)

func (r *statusReporter) run(ctx context.Context) {
	ticker := time.NewTicker(readyCheckInterval)
	defer ticker.Stop()
	var nextSync time.Time
	var wasReady bool
	backoff := r.newBackoff()
	for ctx.Err() == nil {
		if isReady := r.notReadyMessage() == ""; isReady != wasReady || !time.Now().Before(nextSync) {
			wasReady = isReady
			pause := r.config.UpdateFrequency
			r.limited = nil
			err := r.sync(ctx)
			if err != nil {
				pause = backoff.Step()
				r.handleError(ctx, err, pause)
			} else {
				backoff = r.newBackoff()
			}
			r.setReported(cmp.Or(err, r.limited), pause)
			nextSync = time.Now().Add(pause)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-r.refresh:
			nextSync = time.Time{}
		}
	}
}

func (r *statusReporter) newBackoff() wait.Backoff {
	return wait.Backoff{Duration: readyCheckInterval, Factor: 2, Steps: 10, Cap: r.config.UpdateFrequency}
}

func (r *statusReporter) handleError(ctx context.Context, err error, pause time.Duration) {
	if ctx.Err() != nil {
		return
	}
	r.metrics.reports.WithLabelValues(resultFailed).Inc()
	r.config.Logger.Warn("Failed to report node status", "node", r.config.NodeName, "retryAfter", pause, "err", err)
	if isUnanswered(err) {
		r.config.Reconnect()
	}
}

// sync registers or adopts the Node object and reports the current status.
func (r *statusReporter) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.UpdateFrequency)
	defer cancel()
	machine := r.readMachine(ctx)
	if r.config.API == nil {
		r.syncWithoutCluster(machine)
		return nil
	}
	local, _ := r.statusOf(machine, r.lastKnownStatus()) // the API server may not answer
	r.setLocal(local)
	object, err := r.config.API.GetNode(ctx, r.config.NodeName)
	if apierrors.IsNotFound(err) {
		return r.register(ctx, machine)
	}
	if err != nil {
		return err
	}
	if object, err = r.adopt(ctx, object, machine); err != nil {
		return err
	}
	if previous := r.setObject(object); previous != nil {
		r.recordEvents(report.SchedulingEvents(previous, object)...)
	}
	return r.updateStatus(ctx, object, machine)
}

// readMachine returns the machine's current information, or the last known one if it cannot be read.
func (r *statusReporter) readMachine(ctx context.Context) report.MachineInfo {
	machine, err := r.config.MachineInfo()
	if err != nil {
		r.config.Logger.Warn("Failed to read machine information, using the last known", "node", r.config.NodeName, "err", err)
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.machine
	}
	machine.System.ContainerRuntimeVersion = r.readRuntimeVersion(ctx)
	machine.ImageFS, machine.ContainerFS = r.readImageFileSystems(ctx)
	machine.Images = r.readImages(ctx)
	if r.config.RuntimeFeatures != nil {
		machine.RuntimeHandlers, machine.Features = r.config.RuntimeFeatures()
	}
	r.setMachine(machine)
	return machine
}

// readRuntimeVersion does not ask a runtime that is known not to respond.
func (r *statusReporter) readRuntimeVersion(ctx context.Context) string {
	if r.config.RuntimeVersion == nil || (r.runtimeVersion != "" && r.config.Ready() != nil) {
		return r.runtimeVersion
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	if name, version, err := r.config.RuntimeVersion(ctx); err == nil {
		r.runtimeVersion = report.RuntimeVersion(name, version)
	}
	return r.runtimeVersion
}

// readImageFileSystems returns nothing while the runtime does not respond: a pressure that was observed before lasts for some
// time anyway.
func (r *statusReporter) readImageFileSystems(ctx context.Context) (images, containers report.FileSystem) {
	if r.config.ImageFileSystems == nil || r.config.Ready() != nil {
		return report.FileSystem{}, report.FileSystem{}
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	images, containers, err := r.config.ImageFileSystems(ctx)
	if err != nil {
		r.config.Logger.Debug("Failed to read image file systems", "node", r.config.NodeName, "err", err)
	}
	return images, containers
}

// maxImagesAge is how old the list of images may be (RES-7).
const maxImagesAge = 30 * time.Second

// readImages returns the images to report as last known, nil before that. It does not ask a runtime that is known not to respond.
func (r *statusReporter) readImages(ctx context.Context) []v1.ContainerImage {
	now := time.Now()
	if r.config.Images == nil || now.Before(r.imagesAt.Add(maxImagesAge)) || r.config.Ready() != nil {
		return r.images
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	images, err := r.config.Images(ctx)
	if err != nil {
		r.config.Logger.Debug("Failed to list images", "node", r.config.NodeName, "err", err)
		return r.images
	}
	r.images, r.imagesAt = report.Images(images, r.config.MaxImages), now
	return r.images
}

// notReadyMessage returns why pods cannot run, or "". A runtime that does not respond has the same reason for both checks,
// which is reported once.
func (r *statusReporter) notReadyMessage() string {
	err := r.config.Ready()
	networkErr := r.config.NetworkReady()
	if networkErr != nil && (err == nil || !strings.Contains(err.Error(), networkErr.Error())) {
		err = errors.Join(err, fmt.Errorf("container runtime network not ready: %w", networkErr))
	}
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// desiredStatus returns the status to report.
func (r *statusReporter) desiredStatus(machine report.MachineInfo, previous *v1.NodeStatus) *v1.NodeStatus {
	var desired *v1.NodeStatus
	desired, r.pressure = r.statusOf(machine, previous)
	r.isObserved = true
	return desired
}

// statusOf returns the status of the machine, and the state of its pressure.
func (r *statusReporter) statusOf(machine report.MachineInfo, previous *v1.NodeStatus) (*v1.NodeStatus, eviction.State) {
	now := time.Now()
	pressures, state := r.pressures(machine, previous, now)
	return report.Status(report.StatusInput{
		Machine: machine, Previous: previous, Pressures: pressures, NotReady: r.notReadyMessage(), MaxPods: r.config.MaxPods,
		Reserved: r.config.Reserved, Eviction: *r.config.Eviction, Port: r.config.Port, Features: r.config.Features,
		Conditions: r.config.Conditions(), Now: now,
	}), state
}

// pressures returns the conditions of pressure that hold. A pressure that an earlier agent has reported counts as observed now.
func (r *statusReporter) pressures(
	machine report.MachineInfo, previous *v1.NodeStatus, now time.Time,
) ([]v1.NodeConditionType, eviction.State) {
	if r.config.Pressures != nil {
		return r.config.Pressures(), r.pressure
	}
	state := r.pressure
	if !r.isObserved && previous != nil {
		state = state.Restore(previous.Conditions, now)
	}
	state, verdict := r.config.Eviction.Observe(state, eviction.Input{Observations: report.Observations(machine), Now: now})
	return verdict.Conditions, state
}

// syncWithoutCluster stores the object that would be reported.
func (r *statusReporter) syncWithoutCluster(machine report.MachineInfo) {
	previous := cmp.Or(r.lastKnownStatus(), &v1.NodeStatus{})
	object := report.NewNode(r.registration(), machine.Hostname, report.WithoutRemoved(r.desiredStatus(machine, previous)))
	r.setObject(object)
	r.setLocal(&object.Status)
	r.recordEvents(report.StatusEvents(object.Name, previous, &object.Status)...)
}

// lastKnownStatus returns a copy of the status of the latest known Node, or nil.
func (r *statusReporter) lastKnownStatus() *v1.NodeStatus {
	if object := r.Object(); object != nil {
		return &object.Status
	}
	return nil
}

// updateStatus reports the status if it has changed or is due.
func (r *statusReporter) updateStatus(ctx context.Context, object *v1.Node, machine report.MachineInfo) error {
	desired := r.desiredStatus(machine, &object.Status)
	if r.resetUID != object.UID {
		report.ResetExtendedResources(&object.Status, desired)
	}
	r.setLocal(desired)
	if !report.StatusChanged(&object.Status, desired) && time.Now().Before(r.nextReport) {
		r.resetUID = object.UID
		r.metrics.reports.WithLabelValues(resultUnchanged).Inc()
		return nil
	}
	if r.shouldYield(object) {
		r.limited = errOtherAgent
		r.metrics.reports.WithLabelValues(resultConflict).Inc()
		return nil
	}
	patch, err := report.StatusPatch(object, desired)
	if err != nil {
		return err
	}
	updated, err := r.config.API.PatchNodeStatus(ctx, object.Name, patch)
	if err != nil {
		return err
	}
	r.resetUID = object.UID
	r.recordReport(&object.Status, updated)
	return nil
}

// recordReport records a successful report. The next one is randomized, so that nodes that were started together do not
// report in step.
func (r *statusReporter) recordReport(previous *v1.NodeStatus, object *v1.Node) {
	r.metrics.reports.WithLabelValues(resultReported).Inc()
	r.nextReport = time.Now().Add(r.config.ReportFrequency + rand.N(r.config.ReportFrequency/2+1))
	r.reported = object.Status.NodeInfo
	r.setObject(object)
	r.recordEvents(report.StatusEvents(object.Name, previous, &object.Status)...)
}

// Two agents of one node would overwrite each other forever (F30).
const (
	foreignReportWindow = time.Minute
	maxForeignReports   = 3
)

// shouldYield reports whether to accept the report of another agent of the same node for now. Changes by controllers, such as
// the conditions of a node that lost contact, do not count: only an agent changes the versions and IDs of a machine.
func (r *statusReporter) shouldYield(object *v1.Node) bool {
	now := time.Now()
	r.foreignReports = slices.DeleteFunc(r.foreignReports, func(at time.Time) bool { return now.Sub(at) > foreignReportWindow })
	if r.reported == (v1.NodeSystemInfo{}) || report.SameSystem(r.reported, object.Status.NodeInfo) {
		return false
	}
	if len(r.foreignReports) >= maxForeignReports {
		return true
	}
	r.foreignReports = append(r.foreignReports, now)
	r.config.Logger.Warn("Node status was overwritten, another agent may use the same node name",
		"node", object.Name, "version", object.Status.NodeInfo.KubeletVersion)
	return false
}

var (
	errNotRegistered = errors.New("the Node does not exist, and registration is disabled")
	errOtherAgent    = errors.New("limited: another agent keeps reporting the status of this node")
	errDeleted       = errors.New("the Node was deleted; restart the agent to register it again")
)

func (r *statusReporter) registration() report.Registration {
	return report.Registration{
		Name: r.config.NodeName, Labels: r.config.Labels, Taints: r.config.Taints, ProviderID: r.config.ProviderID,
	}
}

// register creates the Node object. A node that was deleted while its agent runs stays deleted, as with the kubelet: it would
// come back without its taints and schedulable, after an operator has drained and removed it.
func (r *statusReporter) register(ctx context.Context, machine report.MachineInfo) error {
	r.setObject(nil)
	switch {
	case r.config.NoRegistration:
		return errNotRegistered
	case r.adoptedUID != "":
		return errDeleted
	}
	desired := report.WithoutRemoved(r.desiredStatus(machine, nil))
	created, err := r.config.API.CreateNode(ctx, report.NewNode(r.registration(), machine.Hostname, desired))
	if err != nil {
		return err
	}
	r.config.Logger.Info("Registered node", "node", created.Name)
	r.recordReport(&v1.NodeStatus{}, created)
	r.setAdopted(created)
	return nil
}

// adopt takes over an object that existed before this agent, or that was recreated. Labels that may not be changed do not
// prevent it.
func (r *statusReporter) adopt(ctx context.Context, object *v1.Node, machine report.MachineInfo) (*v1.Node, error) {
	if r.adoptedUID == object.UID {
		return object, nil
	}
	patch, err := report.AdoptionPatch(object, r.registration(), machine.Hostname, machine.System)
	if err != nil {
		return nil, err
	}
	if patch != nil {
		patched, err := r.config.API.PatchNode(ctx, object.Name, patch)
		switch {
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			r.config.Logger.Warn("Failed to update node labels", "node", object.Name, "err", err)
		case err != nil:
			return nil, err
		default:
			object = patched
		}
	}
	r.setAdopted(object)
	return object, nil
}

// setAdopted records the object as this node's. From now on it can own the lease.
func (r *statusReporter) setAdopted(object *v1.Node) {
	isFirst := r.adoptedUID == ""
	r.adoptedUID = object.UID
	if isFirst {
		r.setObject(object)
		close(r.registered)
	}
}
