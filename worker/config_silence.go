package worker

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

type noVolumes struct{}

func (noVolumes) Mount(context.Context, *v1.Pod) error     { return nil }
func (noVolumes) Unmount(context.Context, podid.UID) error { return nil }

type noProbes struct{}

func (noProbes) AddPod(*v1.Pod)                 {}
func (noProbes) StopLivenessAndStartup(*v1.Pod) {}
func (noProbes) RemovePod(podid.UID)            {}
func (noProbes) Results(podid.UID) (derive.ProbeResults, map[observed.ContainerID]string) {
	return nil, nil
}
