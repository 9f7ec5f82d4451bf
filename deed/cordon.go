package deed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/action"
)

const (
	// CordonAnnotation is on a Node that an action made unschedulable. Its value says which one.
	CordonAnnotation = "heraldnode.github.io/cordoned-by"
	// cordonManager owns spec.unschedulable as long as nobody else has set it since.
	cordonManager  = "herald-actions"
	cordonAttempts = 5
)

// cordon makes the node unschedulable, unless it is.
func (d *Deeds) cordon(ctx context.Context, request action.Request) (string, error) {
	return d.changeNode(ctx, func(node *v1.Node) (map[string]any, string, error) {
		switch _, isOurs := node.Annotations[CordonAnnotation]; {
		case node.Spec.Unschedulable && isOurs:
			return nil, "it was unschedulable because of an action already", nil
		case node.Spec.Unschedulable:
			return nil, "", fmt.Errorf("%w: somebody else made the node unschedulable", action.ErrRefused)
		}
		by := fmt.Sprintf("action %d, %s", request.ID, request.Reason())
		return nodePatch(node, by, map[string]any{"unschedulable": true}), "made the node unschedulable", nil
	})
}

// uncordon makes the node schedulable if an action made it unschedulable and nobody else has set it since.
func (d *Deeds) uncordon(ctx context.Context) (string, error) {
	return d.changeNode(ctx, func(node *v1.Node) (map[string]any, string, error) {
		switch _, isOurs := node.Annotations[CordonAnnotation]; {
		case !isOurs:
			return nil, "the node was not made unschedulable by an action", nil
		case !node.Spec.Unschedulable:
			return nodePatch(node, nil, nil), "somebody else has made the node schedulable", nil
		case !ownsCordon(node):
			return nodePatch(node, nil, nil), "it stays unschedulable: somebody else wants it, too", nil
		}
		return nodePatch(node, nil, map[string]any{"unschedulable": nil}), "made the node schedulable", nil
	})
}

// changeNode reads the node and applies a patch, which is nil if nothing is to be done. If somebody else changes it meanwhile, it begins
// again.
func (d *Deeds) changeNode(ctx context.Context, change func(*v1.Node) (map[string]any, string, error)) (string, error) {
	if d.config.API == nil {
		return "", errNoAPI
	}
	var errs []error
	for range cordonAttempts {
		node, err := d.config.API.GetNode(ctx, d.config.NodeName)
		if err != nil {
			return "", err
		}
		patch, message, err := change(node)
		if err != nil || patch == nil {
			return message, err
		}
		body, err := json.Marshal(patch)
		if err != nil {
			return "", err
		}
		_, err = d.config.API.PatchNodeAs(ctx, d.config.NodeName, cordonManager, body)
		switch {
		case err == nil:
			return message, nil
		case apierrors.IsForbidden(err):
			return "", fmt.Errorf("%w: %w", action.ErrRefused, err)
		case !apierrors.IsConflict(err):
			return "", err
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// nodePatch returns a patch of exactly this version of the node. by is the value of the annotation; nil removes it.
func nodePatch(node *v1.Node, by any, spec map[string]any) map[string]any {
	patch := map[string]any{"metadata": map[string]any{
		"uid": node.UID, "resourceVersion": node.ResourceVersion, "annotations": map[string]any{CordonAnnotation: by},
	}}
	if spec != nil {
		patch["spec"] = spec
	}
	return patch
}

// ownsCordon reports whether the last one who set spec.unschedulable was an action. An API server that does not track it leaves only the
// annotation to go by.
func ownsCordon(node *v1.Node) bool {
	if len(node.ManagedFields) == 0 {
		return true
	}
	return slices.ContainsFunc(node.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		isOurs := entry.Manager == cordonManager && entry.Subresource == ""
		return isOurs && entry.FieldsV1 != nil && hasUnschedulable(entry.FieldsV1.GetRawBytes())
	})
}

// hasUnschedulable reports whether a set of fields contains spec.unschedulable.
func hasUnschedulable(fields []byte) bool {
	var set struct {
		Spec struct {
			Unschedulable *struct{} `json:"f:unschedulable"`
		} `json:"f:spec"`
	}
	return json.Unmarshal(fields, &set) == nil && set.Spec.Unschedulable != nil
}
