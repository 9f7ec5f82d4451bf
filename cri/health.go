package cri

import (
	"context"
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version is the runtime's name and version, "containerd" and "1.6.20".
func (r *Runtime) Version(ctx context.Context) (name, version string, err error) {
	answer, err := r.pods.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return "", "", fmt.Errorf("cri: asking the runtime for its version: %w", err)
	}
	return answer.RuntimeName, answer.RuntimeVersion, nil
}

// Ready says why the runtime cannot run pods, and why it cannot connect them; nil means that it can. A runtime that does
// not answer can do neither.
func (r *Runtime) Ready(ctx context.Context) (runtime, network error) {
	answer, err := r.pods.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		err = fmt.Errorf("cri: asking the runtime for its state: %w", err)
		return err, err
	}
	conditions := answer.GetStatus().GetConditions()
	return condition(conditions, runtimeapi.RuntimeReady), condition(conditions, runtimeapi.NetworkReady)
}

func condition(conditions []*runtimeapi.RuntimeCondition, kind string) error {
	for _, c := range conditions {
		switch {
		case c.Type != kind:
		case c.Status:
			return nil
		default:
			return fmt.Errorf("%s is false: reason:%s message:%s", kind, c.Reason, c.Message)
		}
	}
	return errors.New("the runtime does not report " + kind)
}
