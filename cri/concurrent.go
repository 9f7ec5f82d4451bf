package cri

import (
	"cmp"
	"context"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/podid"
)

// concurrently runs the calls at the same time, waits for all of them and returns the error of the first that failed, in the order of
// the arguments.
func concurrently(calls ...func() error) error {
	errs := make([]error, len(calls))
	var running sync.WaitGroup
	for i, call := range calls[1:] {
		running.Go(func() { errs[i+1] = call() })
	}
	errs[0] = calls[0]()
	running.Wait()
	return cmp.Or(errs...)
}

// listPod lists the sandboxes and containers of one pod.
func (r *Runtime) listPod(ctx context.Context, uid podid.UID) (
	sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container, err error,
) {
	err = concurrently(
		func() (err error) { sandboxes, err = r.listSandboxes(ctx, uid); return err },
		func() (err error) { containers, err = r.listContainers(ctx, uid); return err },
	)
	return sandboxes, containers, err
}
