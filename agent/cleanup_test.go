package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/podid"
)

// slowCollector is a runtime with a garbage collector that takes long to list its pods.
type slowCollector struct {
	agent.Runtime
	listDelay time.Duration
	collect   func(isWanted func(podid.UID) bool)
}

func (c slowCollector) CollectGarbage(ctx context.Context, isWanted func(podid.UID) bool) error {
	if err := sleep(ctx, c.listDelay); err != nil {
		return err
	}
	c.collect(isWanted)
	return nil
}

func (c slowCollector) RotateLogs(context.Context) error { return nil }

func TestGarbageCollection_PodCreatedDuringList(t *testing.T) {
	run(t, func(h *harness) {
		collected := false
		h.configure = func(config *agent.Config) {
			config.Runtime = slowCollector{config.Runtime, 2 * time.Minute, func(isWanted func(podid.UID) bool) {
				collected = true
				if uid := h.runningUID("web"); !isWanted(uid) || isWanted("unknown") {
					h.Errorf("isWanted: got %q %v, unknown %v, want true, false", uid, isWanted(uid), isWanted("unknown"))
				}
			}}
		}
		h.runCommands("start agent", "wait 90s", "bind web.yaml", "wait 100s")
		if !collected {
			h.Error("got no garbage collection, want one")
		}
	})
}

func TestOrphanedVolumes_AllSourcesReady(t *testing.T) {
	run(t, func(h *harness) {
		volumes := newFakeVolumes("gone")
		h.configure = func(config *agent.Config) { config.Volumes = volumes }
		h.runCommands("api-down", "start agent", "wait 1m")
		volumes.want(h.T, "gone")
		h.runCommands("api-up", "wait 1m")
		volumes.want(h.T)
		h.runCommands("bind web.yaml", "wait 1m")
		volumes.want(h.T, "web-1")
		h.runCommands("delete web 5s", "wait 10s")
		volumes.want(h.T)
	})
}

func TestOrphanedVolumes_PodInRuntime(t *testing.T) {
	run(t, func(h *harness) {
		volumes := newFakeVolumes("web-1")
		h.configure = func(config *agent.Config) { config.Volumes = volumes }
		h.runCommands("script main ignores-term", "run-orphan web.yaml", "hang", "start agent", "wait 5m")
		volumes.want(h.T, "web-1")
		h.runCommands("heal", "wait 1m")
		volumes.want(h.T)
	})
}

func TestOrphanedVolumes_PodReCreated(t *testing.T) {
	run(t, func(h *harness) {
		volumes := newFakeVolumes("web-1")
		volumes.unmountDelay = 10 * time.Second
		h.configure = func(config *agent.Config) { config.Volumes = volumes }
		h.runCommands("start agent", "wait 5s", "bind web.yaml", "wait 1m")
		if volumes.overlaps > 0 {
			h.Errorf("got %d mounts during the removal, want 0", volumes.overlaps)
		}
		volumes.want(h.T, "web-1")
	})
}

func TestOrphanedVolumes_ListFails(t *testing.T) {
	run(t, func(h *harness) {
		volumes := newFakeVolumes("gone")
		volumes.listErr = errors.New("fake failure")
		h.configure = func(config *agent.Config) { config.Volumes = volumes }
		h.runCommands("start agent", "wait 1m")
		volumes.want(h.T, "gone")
	})
}
