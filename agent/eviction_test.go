package agent_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/podid"
)

const cacheYAML = `apiVersion: v1
kind: Pod
metadata: {name: cache}
spec:
  containers: [{name: main, image: "cache:1"}]
  volumes: [{name: scratch, emptyDir: {sizeLimit: 1Mi}}]
`

// measuredVolumes are volumes of a configurable size.
type measuredVolumes struct {
	*fakeVolumes
	bytes *atomic.Int64
}

func (v measuredVolumes) VolumeUsage(context.Context, *v1.Pod) (map[string]int64, error) {
	return map[string]int64{"scratch": v.bytes.Load()}, nil
}

type measuredRuntime struct{ agent.Runtime }

func (measuredRuntime) ContainerUsage(context.Context, *v1.Pod) (map[string]int64, int64, error) {
	return nil, 0, nil
}

// The attack: a container fills the node's disk through a volume that is limited.
func TestEVI25_EmptyDirAboveLimit(t *testing.T) {
	run(t, func(h *harness) {
		h.manifests["cache.yaml"] = cacheYAML
		var bytes atomic.Int64
		h.configure = func(config *agent.Config) {
			config.Runtime = measuredRuntime{config.Runtime}
			config.Volumes = measuredVolumes{newFakeVolumes(), &bytes}
		}
		h.runCommands("start agent", "bind cache.yaml", "bind web.yaml", "wait 1m")
		bytes.Store(2 << 20)
		h.runCommands("wait 1m")
		status, found := h.node.Statuses.GetPodStatus("cache-1")
		if !found || status.Phase != v1.PodFailed || status.Reason != "Evicted" ||
			status.Message != `Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". ` {
			h.Errorf("got phase %s, reason %s, message %q; want Failed, Evicted", status.Phase, status.Reason, status.Message)
		}
		isDisrupted := func(c v1.PodCondition) bool {
			return c.Type == v1.DisruptionTarget && c.Reason == "TerminationByKubelet"
		}
		if !slices.ContainsFunc(status.Conditions, isDisrupted) { // EVI-20
			h.Errorf("got conditions %+v, want DisruptionTarget", status.Conditions)
		}
		if h.node.Workers.PodCouldHaveRunningContainers("cache-1") || h.runningUID("web") == "" {
			h.Error("got the wrong pods running, want web only")
		}
		if stored := h.server.Pod(podid.FullName{Namespace: namespace, Name: "cache"}); stored == nil || stored.UID != "cache-1" || stored.Status.Reason != "Evicted" {
			h.Errorf("API server: got %+v, want the evicted pod", stored)
		}
	})
}
