package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/heraldnode/herald/cgroup/usage"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/heraldtest/runtimesuite"
	"github.com/heraldnode/herald/load"
)

const (
	containerdEndpoint = "unix:///run/containerd/containerd.sock"
	agentSocket        = "/run/herald/herald.sock"
	spinningMemory     = 64 << 20 // limit of the pod spinning
	memoryTolerance    = 8 << 20  // between two measurements
)

// measurement is what each source says about the container of the pod spinning. The files were read before and after the others.
type measurement struct {
	before, after usage.Sample
	runtime       *runtimeapi.ContainerStats // as containerd measures it
	pod           load.PodSample             // as the agent combines both
	container     load.ContainerSample
	summary       statsapi.PodStats // as the agent shows it
}

// sampling compares the use of resources from containerd, the files of the cgroup and the agent, of a pod that its CPU limit throttles.
func sampling(g *guest) {
	g.addPod("spinning", containerPod("spinning", "spin", "requests: {cpu: 20m}, limits: {cpu: 50m, memory: 64Mi}"))
	pod := g.runningPod("spinning")
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	cgroup := g.cgroupOf(g.instanceOf("spinning").PID)
	var last measurement
	g.eventually(func() (err error) {
		if last, err = measure(pod, id, cgroup); err != nil {
			return err
		}
		return errors.Join(last.compareCPU(), last.compareMemory(), last.checkProcesses(), last.checkPressure(cgroup))
	})
	throttled, _ := last.container.Usage.Throttling.Throttled.Get()
	workingSet, _ := last.container.Usage.WorkingSet.Get()
	g.printf("     %.0f periods throttled, working set %.1f MiB", throttled, workingSet/(1<<20))
	g.removePod("spinning")
	g.gone("spinning")
}

func measure(pod *v1.Pod, id, cgroup string) (m measurement, err error) {
	ctx := context.Background()
	group := usage.Reader{V2: true}.Group(cgroup)
	if !group.Exists() {
		return m, fmt.Errorf("cgroup %s does not exist", cgroup)
	}
	m.before = group.Read()
	if m.runtime, err = containerStats(ctx, id); err != nil {
		return m, err
	}
	if m.pod, err = podSample(ctx, pod); err != nil {
		return m, err
	}
	if len(m.pod.Containers) != 1 || m.pod.Containers[0].ID != id {
		return m, fmt.Errorf("pod %s has samples of containers %+v, want %s", pod.Name, m.pod.Containers, id)
	}
	m.container = m.pod.Containers[0]
	if m.summary, err = podSummary(ctx, pod); err != nil {
		return m, err
	}
	m.after = group.Read()
	return m, nil
}

// containerStats returns what containerd measures of a container.
func containerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	connection, err := grpc.NewClient(containerdEndpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	response, err := runtimeapi.NewRuntimeServiceClient(connection).ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{
		Filter: &runtimeapi.ContainerStatsFilter{Id: id},
	})
	if err != nil {
		return nil, err
	}
	if len(response.Stats) != 1 {
		return nil, fmt.Errorf("containerd has %d statistics of container %s, want 1", len(response.Stats), id)
	}
	return response.Stats[0], nil
}

// podSample returns what the agent's code measures of a pod.
func podSample(ctx context.Context, pod *v1.Pod) (load.PodSample, error) {
	runtime, err := cri.New(cri.Config{
		Endpoint: containerdEndpoint, Provisioner: runtimesuite.Provisioner{}, Root: filepath.Join(stateDir, "pods"), CgroupParent: "/kubepods",
	})
	if err != nil {
		return load.PodSample{}, err
	}
	defer func() { _ = runtime.Close() }()
	samples, err := runtime.ListPodStats(ctx)
	if err != nil {
		return load.PodSample{}, err
	}
	for _, sample := range samples {
		if string(sample.UID) == string(pod.UID) {
			return sample, nil
		}
	}
	return load.PodSample{}, fmt.Errorf("no sample of pod %s among %d", pod.Name, len(samples))
}

// podSummary returns what the agent shows of a pod in /stats/summary.
func podSummary(ctx context.Context, pod *v1.Pod) (found statsapi.PodStats, err error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", agentSocket)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/stats/summary", http.NoBody)
	if err != nil {
		return found, err
	}
	response, err := client.Do(request)
	if err != nil {
		return found, err
	}
	defer response.Body.Close()
	var summary statsapi.Summary
	if err := json.NewDecoder(response.Body).Decode(&summary); err != nil {
		return found, fmt.Errorf("read summary, %s: %w", response.Status, err)
	}
	for _, stats := range summary.Pods {
		if stats.PodRef.UID == string(pod.UID) && len(stats.Containers) == 1 {
			return stats, nil
		}
	}
	return found, fmt.Errorf("the summary of %d pods lacks pod %s or its container", len(summary.Pods), pod.Name)
}

// compareCPU wants the CPU time of the runtime and the agent between those of the files. The agent may show an earlier sample.
func (m measurement) compareCPU() error {
	first, isKnown := m.before.CPUSeconds.Get()
	last, _ := m.after.CPUSeconds.Get()
	sampled, _ := m.container.Usage.CPUSeconds.Get()
	measured := float64(m.runtime.GetCpu().GetUsageCoreNanoSeconds().GetValue()) / 1e9
	for name, seconds := range map[string]float64{"containerd": measured, "sample": sampled} {
		if !isKnown || first == 0 || seconds < first || seconds > last {
			return fmt.Errorf("CPU time of %s: got %f s, want between %f and %f, the files' before and after", name, seconds, first, last)
		}
	}
	shown := m.summary.Containers[0].CPU
	if shown == nil || shown.UsageCoreNanoSeconds == nil || *shown.UsageCoreNanoSeconds == 0 ||
		float64(*shown.UsageCoreNanoSeconds)/1e9 > last {
		return fmt.Errorf("CPU of the summary: got %+v, want at most the %f s of the files", shown, last)
	}
	throttling := m.container.Usage.Throttling
	for name, value := range map[string]load.Value{
		"periods": throttling.Periods, "throttled periods": throttling.Throttled, "throttled seconds": throttling.Seconds,
	} {
		if number, isKnown := value.Get(); !isKnown || number <= 0 {
			return fmt.Errorf("%s: got %v, want more than 0 of a container that needs more than its limit", name, value)
		}
	}
	return nil
}

// compareMemory wants about the same working set from every source.
func (m measurement) compareMemory() error {
	want, isKnown := m.before.WorkingSet.Get()
	if !isKnown || want <= 0 || want > spinningMemory {
		return fmt.Errorf("working set of the files: got %v, want more than 0 and at most the limit", m.before.WorkingSet)
	}
	shown := m.summary.Containers[0].Memory
	if shown == nil || shown.WorkingSetBytes == nil {
		return errors.New("the summary has no working set")
	}
	sampled, _ := m.container.Usage.WorkingSet.Get()
	for name, got := range map[string]float64{
		"containerd": float64(m.runtime.GetMemory().GetWorkingSetBytes().GetValue()), "sample": sampled,
		"summary": float64(*shown.WorkingSetBytes),
	} {
		if got <= 0 || got > want+memoryTolerance || got < want-memoryTolerance {
			return fmt.Errorf("working set of %s: got %.0f, want about the %.0f of the files", name, got, want)
		}
	}
	return nil
}

// checkProcesses wants the processes of the container, and more of the pod, in which the sandbox is.
func (m measurement) checkProcesses() error {
	ofContainer, isKnown := m.after.PIDs.Get()
	ofPod, _ := m.pod.PIDs.Get()
	if !isKnown || ofContainer < 1 || ofPod <= 1 {
		return fmt.Errorf("processes: got %v of the container and %v of the pod, want some, and those of the sandbox", m.after.PIDs, m.pod.PIDs)
	}
	if stats := m.summary.ProcessStats; stats == nil || stats.ProcessCount == nil || *stats.ProcessCount <= 1 {
		return fmt.Errorf("processes of the summary: got %+v, want more than one", stats)
	}
	return nil
}

// checkPressure wants the pressure stall information of the container, if the kernel measures it.
func (m measurement) checkPressure(cgroup string) error {
	if _, err := os.Stat(filepath.Join(cgroupMount, cgroup, "cpu.pressure")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	stalls := m.container.Usage.Stalls
	if stalls.CPU == nil || stalls.Memory == nil || stalls.IO == nil {
		return fmt.Errorf("pressure: got %+v, want all resources", stalls)
	}
	if stalls.CPU.Some.Total <= 0 {
		return errors.New("pressure: the container has not waited for the CPU, want that its limit makes it wait")
	}
	if !m.container.Usage.Pressure.CPU.IsKnown() {
		return errors.New("pressure: the share of the CPU is unknown")
	}
	return nil
}
