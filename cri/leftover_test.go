package cri_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
)

// What is left of an exited instance is killed before the next one is created, and when the pod stops.
func TestF15_ExitedInstanceKilled(t *testing.T) {
	cgroups := &fakeCgroups{}
	inBubble(t, func(h *harness) {
		pod := newPod()
		first := h.startPod(pod)
		h.fake.exit(first.ID.ID, 1)
		next := firstStart(pod)
		next.RestartCount = 1

		cgroups.calls, cgroups.killErr = nil, errors.New("killed processes did not exit")
		if err := h.StartContainer(h.Context(), pod, first.SandboxID, next); err == nil {
			h.Error("got no error although the first instance may run")
		}
		if created := requests[*runtimeapi.CreateContainerRequest](h.fake); len(created) > 1 {
			h.Errorf("got %d containers, want only the first", len(created))
		}
		if err := h.StopSandbox(h.Context(), first.SandboxID); err == nil {
			h.Error("got no error of StopSandbox although a process may run")
		}

		cgroups.calls, cgroups.killErr = nil, nil
		if err := h.StartContainer(h.Context(), pod, first.SandboxID, next); err != nil {
			h.Fatal(err)
		}
		if want := []string{"kill uid-1 [" + first.ID.ID + "]"}; !slices.Equal(cgroups.calls, want) {
			h.Errorf("got calls %q, want %q", cgroups.calls, want)
		}
		cgroups.calls = nil
		if err := h.StopSandbox(h.Context(), first.SandboxID); err != nil {
			h.Fatal(err)
		}
		if len(cgroups.calls) != 1 || !strings.Contains(cgroups.calls[0], first.ID.ID+" ") {
			h.Errorf("got calls %q, want one that kills both instances", cgroups.calls)
		}
	}, func(config *cri.Config) { config.CgroupParent, config.Cgroups = "/kubepods", cgroups })
}

// containerd cannot remove an exited container whose task exists.
func TestF15_TaskDeleted(t *testing.T) {
	for name, test := range map[string]struct {
		runtime string
		faults  []fault
		deleted int
		wantErr string
	}{
		"containerd": {
			runtime: "containerd", faults: []fault{fails(codes.FailedPrecondition, "cannot delete running task")}, deleted: 1,
		},
		"deletion without effect": {
			runtime: "containerd", deleted: 1, wantErr: "cannot delete running task",
			faults: []fault{
				fails(codes.FailedPrecondition, "cannot delete running task"), fails(codes.FailedPrecondition, "cannot delete running task"),
			},
		},
		"another error":   {runtime: "containerd", faults: []fault{fails(codes.Unknown, "device busy")}, wantErr: "device busy"},
		"another runtime": {runtime: "fake", faults: []fault{fails(codes.FailedPrecondition, "busy")}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				h.fake.name = test.runtime
				pod := newPod()
				container := h.startPod(pod)
				h.fake.exit(container.ID.ID, 128)
				h.fake.inject("RemoveContainer", test.faults...)
				err := h.RemovePod(h.Context(), "uid-1")
				if (err != nil) != (test.wantErr != "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
					h.Errorf("got error %v, want %q", err, test.wantErr)
				}
				if want := slices.Repeat([]string{"k8s.io/" + container.ID.ID}, test.deleted); !slices.Equal(h.fake.deletedTasks, want) {
					h.Errorf("got deleted tasks %q, want %q", h.fake.deletedTasks, want)
				}
			})
		})
	}
}
