package deed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/action"
	"github.com/heraldnode/herald/view"
	"github.com/heraldnode/herald/worker"
)

// disruptionBudget is the cause of a refusal by a PodDisruptionBudget.
const disruptionBudget metav1.CauseType = "DisruptionBudget"

var errNoAPI = errors.New("the node has no API server")

// restartPod restarts the containers of a static pod in place, and evicts a pod of the API server.
func (d *Deeds) restartPod(ctx context.Context, request action.Request) (string, error) {
	pod, found := d.config.Inspector.Pod(ctx, nameOf(request.Object))
	if !found {
		return "", fmt.Errorf("%w: the node does not have the pod", action.ErrRefused)
	}
	if pod.Spec.Static {
		return d.restartAll(ctx, request, &pod)
	}
	if d.config.API == nil {
		return "", errNoAPI
	}
	err := d.config.API.EvictPod(ctx, pod.Metadata.Namespace, pod.Metadata.Name, types.UID(pod.Metadata.UID))
	switch {
	case err == nil:
		return "evicted", nil
	case apierrors.IsTooManyRequests(err) && apierrors.HasStatusCause(err, disruptionBudget):
		return "", fmt.Errorf("%w: disruption budget: %w", action.ErrRefused, err)
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "", fmt.Errorf("%w: %w", action.ErrRefused, err)
	default:
		return "", err
	}
}

// restartAll restarts the containers of a pod that run for its whole life, all at once.
func (d *Deeds) restartAll(ctx context.Context, request action.Request, pod *view.PodView) (string, error) {
	var names []string
	for _, container := range pod.Spec.Containers {
		if container.Kind == "regular" || container.Kind == "sidecar" {
			names = append(names, container.Name)
		}
	}
	errs := make([]error, len(names))
	var restarts sync.WaitGroup
	for i, name := range names {
		restarts.Go(func() {
			_, errs[i] = d.config.Inspector.RestartByAction(ctx, nameOf(request.Object), name, request.Reason())
		})
	}
	restarts.Wait()
	var restarted []string
	for i, name := range names {
		if errs[i] == nil {
			restarted = append(restarted, name)
		}
	}
	failed := slices.ContainsFunc(errs, func(err error) bool { return err != nil && !errors.Is(err, worker.ErrNotRestartable) })
	switch {
	case failed:
		return "", errors.Join(errs...)
	case len(restarted) == 0:
		return "", fmt.Errorf("%w: %w", action.ErrRefused, errors.Join(errs...))
	default: // the others wait for their next start anyway
		return "restarted " + strings.Join(restarted, ", "), nil
	}
}
