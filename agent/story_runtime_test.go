package agent_test

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// In a bubble everything would happen at once, and the order of what is told be that of the scheduler. So things take
// their time here as they do elsewhere, a deed longer than a look or a request.
const (
	moment = time.Millisecond
	deed   = 5 * moment
)

// unhurried is an engine that takes its time.
type unhurried struct{ *engine.Engine }

func (r unhurried) InspectPod(ctx context.Context, uid podid.UID) (*observed.Pod, error) {
	if err := spend(ctx, moment); err != nil {
		return nil, err
	}
	return r.Engine.InspectPod(ctx, uid)
}

func (r unhurried) StartSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (string, error) {
	if err := spend(ctx, deed); err != nil {
		return "", err
	}
	return r.Engine.StartSandbox(ctx, pod, attempt)
}

func (r unhurried) StartContainer(ctx context.Context, pod *v1.Pod, sandbox string, start plan.Start) error {
	if err := spend(ctx, deed); err != nil {
		return err
	}
	return r.Engine.StartContainer(ctx, pod, sandbox, start)
}

func (r unhurried) StopSandbox(ctx context.Context, id string) error {
	if err := spend(ctx, deed); err != nil {
		return err
	}
	return r.Engine.StopSandbox(ctx, id)
}

func (r unhurried) RemovePod(ctx context.Context, uid podid.UID) error {
	if err := spend(ctx, deed); err != nil {
		return err
	}
	return r.Engine.RemovePod(ctx, uid)
}

// spend lets d pass, or less when ctx ends.
func spend(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
