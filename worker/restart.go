package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// Errors of RestartContainer.
var (
	// ErrUnknownPod reports that the pod has no worker.
	ErrUnknownPod = errors.New("unknown pod")
	// ErrUnknownContainer reports that the pod has no such container.
	ErrUnknownContainer = errors.New("unknown container")
	// ErrNotRestartable reports that the container would not run again.
	ErrNotRestartable = errors.New("container cannot be restarted")
)

// Restarted is how the instance ended that RestartContainer replaced.
type Restarted struct {
	// ID is zero if the container had no instance.
	ID observed.ContainerID
	// WasRunning reports that the instance was stopped. Otherwise the container waited for its next start, which was brought
	// forward.
	WasRunning bool
	// ExitCode is that of the instance. It is -1 if the runtime does not know it any more.
	ExitCode int
	// Took is the time from the request to the end of the instance.
	Took time.Duration
}

// restartRequest is one call of RestartContainer. The pod's goroutine answers it exactly once.
type restartRequest struct {
	container   string
	request     plan.RestartRequest
	requestedAt time.Time
	answer      chan restartAnswer // has room for the answer

	// The fields below belong to the pod's goroutine.

	begun bool
	// instance is the newest one when the request began. It is nil if there was none. isRunning reports that it did not exit yet.
	instance  *observed.Container
	isRunning bool
}

type restartAnswer struct {
	restarted Restarted
	err       error
}

// RestartContainer stops the running instance of a container gracefully, with its preStop hook and grace period, and starts the
// next one without backoff. A container that waits for its next start is started now. It returns when the instance has ended, or
// when the start of the waiting container was attempted. If ctx ends, the restart continues.
//
// reason says who wants it and why. The container of a pod that terminates, an init container that runs to completion, an
// ephemeral container and a container that its policy does not restart are left alone.
func (w *Workers) RestartContainer(ctx context.Context, uid podid.UID, container, reason string) (Restarted, error) {
	return w.restartContainer(ctx, uid, container, plan.RestartRequest{Message: restartMessage(reason)})
}

// RestartContainerByAction is RestartContainer for an action of an alert rule: the crash-loop backoff applies to the next start, so that a
// container that waits for its next start is left alone.
func (w *Workers) RestartContainerByAction(ctx context.Context, uid podid.UID, container, reason string) (Restarted, error) {
	return w.restartContainer(ctx, uid, container, plan.RestartRequest{Message: restartMessage(reason), ByAction: true})
}

func (w *Workers) restartContainer(
	ctx context.Context, uid podid.UID, container string, restart plan.RestartRequest,
) (Restarted, error) {
	request := &restartRequest{container: container, request: restart, requestedAt: time.Now(), answer: make(chan restartAnswer, 1)}
	if err := w.requestRestart(uid, request); err != nil {
		return Restarted{}, fmt.Errorf("restart container %q of pod %s: %w", container, uid, err)
	}
	select {
	case answer := <-request.answer:
		if answer.err != nil {
			return answer.restarted, fmt.Errorf("restart container %q of pod %s: %w", container, uid, answer.err)
		}
		return answer.restarted, nil
	case <-ctx.Done():
		return Restarted{}, fmt.Errorf("restart container %q of pod %s: %w", container, uid, ctx.Err())
	}
}

func (w *Workers) requestRestart(uid podid.UID, request *restartRequest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, found := w.records[uid]
	if !found || r.lifecycle.Pod == nil {
		return ErrUnknownPod
	}
	if err := canRestart(r.lifecycle, request.container); err != nil {
		return err
	}
	if !r.admission.decided || r.admission.err != nil {
		return fmt.Errorf("%w: the pod is not admitted", ErrNotRestartable)
	}
	r.restarts = append(r.restarts, request)
	r.urgent = true
	w.wakeLocked(r)
	return nil
}

// canRestart returns why a container cannot be restarted by a user, or nil.
func canRestart(lifecycle plan.Lifecycle, name string) error {
	pod := lifecycle.Pod
	container, kind := plan.FindContainer(pod, name)
	switch {
	case container == nil:
		return ErrUnknownContainer
	case lifecycle.Stage != plan.Syncing || pod.DeletionTimestamp != nil:
		return errTerminating
	case kind == derive.InitContainer:
		return fmt.Errorf("%w: it is an init container that runs to completion", ErrNotRestartable)
	case kind == derive.EphemeralContainer:
		return fmt.Errorf("%w: it is an ephemeral container", ErrNotRestartable)
	case plan.RunsOnce(pod, plan.Start{Container: container, Kind: kind}):
		return fmt.Errorf("%w: with restartPolicy %s it would not start again", ErrNotRestartable, v1.RestartPolicyNever)
	default:
		return nil
	}
}

var errTerminating = fmt.Errorf("%w: the pod is terminating or has ended", ErrNotRestartable)

// maxRestartReason limits the text of a request.
const maxRestartReason = 256

// restartMessage returns a text that is safe to show in an event.
func restartMessage(reason string) string {
	reason = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(reason, "�"))
	if reason = strings.TrimSpace(reason); reason == "" {
		return "no reason given"
	}
	return strings.ToValidUTF8(reason[:min(len(reason), maxRestartReason)], "")
}

// takeRestartsLocked assigns the new requests to the iteration, if it can execute them.
func (iter *iteration) takeRestartsLocked() {
	if iter.step != plan.StepSync || iter.delay > 0 {
		return
	}
	for _, request := range iter.restarts {
		if !request.begun {
			request.begun = true
			iter.begun = append(iter.begun, request)
		}
	}
}

// requestedRestarts returns the restarts that begin in this iteration, for plan.
func (iter *iteration) requestedRestarts() map[string]plan.RestartRequest {
	if len(iter.begun) == 0 {
		return nil
	}
	restarts := make(map[string]plan.RestartRequest, len(iter.begun))
	for _, request := range iter.begun {
		if first, found := restarts[request.container]; !found || first.ByAction { // a user's request is the stronger one
			restarts[request.container] = request.request
		}
	}
	return restarts
}

// completeRestarts notes the instances of the requests that begin and answers the others whose instance has ended.
func (w *Workers) completeRestarts(iter *iteration, runtimePod *observed.Pod) {
	for _, request := range iter.begun {
		request.instance, request.isRunning = nil, false
		instance := runtimePod.Newest(request.container)
		if instance != nil && derive.ContainerState(instance) != observed.Created {
			request.instance, request.isRunning = instance, derive.ContainerState(instance) != observed.Exited
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	iter.answerRestartsLocked(func(request *restartRequest) (restartAnswer, bool) {
		if !request.isRunning || slices.Contains(iter.begun, request) {
			return restartAnswer{}, false
		}
		instance := findInstance(runtimePod, request.instance.ID)
		if instance != nil && derive.ContainerState(instance) != observed.Exited {
			return restartAnswer{}, false
		}
		return restartAnswer{restarted: request.restarted(instance)}, true
	})
}

// finishRestarts answers the requests that began in this iteration, except those that wait for the end of an instance.
func (w *Workers) finishRestarts(iter *iteration, res result) {
	if len(iter.begun) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	iter.answerRestartsLocked(func(request *restartRequest) (restartAnswer, bool) {
		switch {
		case !slices.Contains(iter.begun, request):
			return restartAnswer{}, false
		case iter.planned == nil: // the next iteration takes it
			request.begun, request.isRunning = false, false
			return restartAnswer{}, false
		case request.isRunning:
			return restartAnswer{}, false
		default:
			return restartAnswer{restarted: request.restarted(request.instance), err: iter.startError(request.container, res)}, true
		}
	})
}

// startError returns why a container that a user wants to start was not started, or nil.
func (iter *iteration) startError(container string, res result) error {
	if failure, failed := iter.state.startFailures[container]; failed {
		return failure.err
	}
	if res.backoff > 0 {
		return res.err
	}
	isStart := func(start plan.Start) bool { return start.Container.Name == container }
	if !slices.ContainsFunc(iter.planned.Start, isStart) {
		return fmt.Errorf("%w: it is not running and nothing is to start it", ErrNotRestartable)
	}
	return nil
}

// restarted returns the answer to the request after the end of the instance, which is nil if the runtime has no record of it.
func (q *restartRequest) restarted(instance *observed.Container) Restarted {
	restarted := Restarted{WasRunning: q.isRunning, ExitCode: -1, Took: time.Since(q.requestedAt)}
	if q.instance != nil {
		restarted.ID = q.instance.ID
	}
	if instance != nil && instance.Exit != nil {
		restarted.ExitCode = instance.Exit.Code
	}
	return restarted
}

// answerRestartsLocked answers and removes the requests for which answer returns true.
func (r *record) answerRestartsLocked(answer func(*restartRequest) (restartAnswer, bool)) {
	r.restarts = slices.DeleteFunc(r.restarts, func(request *restartRequest) bool {
		a, ok := answer(request)
		if ok {
			request.answer <- a
		}
		return ok
	})
}

// refuseRestartsLocked answers all requests of a pod that terminates.
func (r *record) refuseRestartsLocked() {
	r.answerRestartsLocked(func(*restartRequest) (restartAnswer, bool) { return restartAnswer{err: errTerminating}, true })
}
