package cri_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/resize"
)

// resizing is a pod with a running container whose memory grows and whose CPU shrinks.
type resizing struct {
	*harness
	pod      *v1.Pod
	sandbox  string
	change   resize.Change
	cgroups  *fakeCgroups
	actuated []string
}

func newResizing(h *harness, cgroups *fakeCgroups) *resizing {
	pod := newPod()
	container := h.startPod(pod)
	r := &resizing{harness: h, pod: pod, cgroups: cgroups, sandbox: container.SandboxID}
	before, after := resize.Quantities{MilliCPULimit: 1000, MemoryLimit: 1 << 20}, resize.Quantities{MilliCPULimit: 500, MemoryLimit: 2 << 20}
	pod.Spec.Containers[0].Resources = after.Requirements()
	r.change = resize.Change{Pod: true, Containers: []resize.Container{{
		Spec: &pod.Spec.Containers[0], ID: container.ID, Current: before, Desired: after,
	}}}
	cgroups.current = cgroup.Resources{Memory: new(int64(1 << 20)), CPUQuota: new(int64(100_000)), CPUShares: new(int64(1024))}
	cgroups.desired = cgroup.Resources{Memory: new(int64(2 << 20)), CPUQuota: new(int64(50_000)), CPUShares: new(int64(512))}
	cgroups.calls = nil
	return r
}

func (r *resizing) resize() error {
	return r.ResizePod(r.Context(), r.pod, r.sandbox, r.change, func(name string, q resize.Quantities) error {
		r.actuated = append(r.actuated, fmt.Sprintf("%q %d %d", name, q.MilliCPULimit, q.MemoryLimit))
		return nil
	})
}

func inResizing(t *testing.T, test func(*resizing)) {
	t.Helper()
	cgroups := &fakeCgroups{}
	inBubble(t, func(h *harness) { test(newResizing(h, cgroups)) }, func(config *cri.Config) { config.CgroupParent, config.Cgroups = "/kubepods", cgroups })
}

// The memory call carries the old CPU, the CPU call the new memory; what the runtime accepted is recorded after each.
func TestRSZ17_UpdateContainerResources(t *testing.T) {
	inResizing(t, func(r *resizing) {
		if err := r.resize(); err != nil {
			r.Fatal(err)
		}
		var updates []string
		for _, request := range requests[*runtimeapi.UpdateContainerResourcesRequest](r.fake) {
			updates = append(updates, fmt.Sprint(request.Linux.CpuQuota, " ", request.Linux.MemoryLimitInBytes))
		}
		if diff := cmp.Diff([]string{"100000 2097152", "50000 2097152"}, updates); diff != "" {
			r.Error(diff)
		}
		if diff := cmp.Diff([]string{"update pod memory 2097152", "update pod shares 512", "update pod quota 50000"}, r.cgroups.calls); diff != "" {
			r.Error(diff) // RSZ-16
		}
		if diff := cmp.Diff([]string{`"web" 1000 2097152`, `"web" 500 2097152`, `"" 500 2097152`}, r.actuated); diff != "" {
			r.Error(diff)
		}
	})
}

// A runtime that does not implement the update of sandboxes is not asked again; any other error refuses the step.
func TestRSZ18_UpdateSandbox(t *testing.T) {
	for name, test := range map[string]struct {
		code    codes.Code
		message string
		want    bool
	}{
		"unimplemented":  {codes.Unimplemented, "method UpdatePodSandboxResources not implemented", true},
		"containerd 2.2": {codes.Unknown, "UpdatePodSandboxResources is not implemented yet", true},
		"refused":        {codes.Internal, "no", false},
	} {
		t.Run(name, func(t *testing.T) {
			inResizing(t, func(r *resizing) {
				r.fake.inject("UpdatePodSandboxResources", fails(test.code, test.message), fails(codes.Internal, "asked again"))
				err := r.resize()
				if (err == nil) != test.want {
					r.Errorf("got error %v", err)
				}
				if !test.want && len(r.cgroups.calls) > 0 {
					r.Errorf("got %q after a refusal", r.cgroups.calls)
				}
			})
		})
	}
}

// The first error ends a resize; what was accepted until then is recorded.
func TestRSZ16_Error(t *testing.T) {
	inResizing(t, func(r *resizing) {
		executes := func(_ context.Context, execute func() (any, error)) (any, error) { return execute() }
		r.fake.inject("UpdateContainerResources", executes, fails(codes.Internal, "device busy"))
		err := r.resize()
		if err == nil || !strings.Contains(err.Error(), `update the cpu of container "web"`) {
			r.Errorf("got error %v", err)
		}
		if want := []string{`"web" 1000 2097152`}; !slices.Equal(r.actuated, want) {
			r.Errorf("got %q, want %q", r.actuated, want)
		}
	})
	inResizing(t, func(r *resizing) {
		r.cgroups.err = errors.New("read-only")
		if err := r.resize(); !errors.Is(err, r.cgroups.err) || len(r.actuated) > 0 {
			r.Errorf("got error %v, actuated %q", err, r.actuated)
		}
	})
}

// Nothing changes if a limit is below its use, or if the use is not known.
func TestRSZ19_UsageUnknown(t *testing.T) {
	inResizing(t, func(r *resizing) {
		r.change.Containers[0].Current.MemoryLimit = 3 << 20
		r.fake.inject("ContainerStats", fails(codes.Internal, "no stats"))
		err := r.resize()
		if err == nil || err.Error() != `cannot decrease memory limits: missing container "web" memory usage` {
			r.Errorf("got error %v", err)
		}
		if len(r.actuated)+len(r.cgroups.calls) > 0 {
			r.Errorf("got %q %q, want nothing done", r.actuated, r.cgroups.calls)
		}
	})
}
