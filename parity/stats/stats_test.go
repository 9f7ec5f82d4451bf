package stats_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/agents"
)

// numbers is what an agent serves.
type numbers struct {
	summary, cpuAndMemory fields
	metrics               []series
}

// TestRES15_SameNumbersAsKubelet covers the whole of RES-15 to RES-30.
func TestRES15_SameNumbersAsKubelet(t *testing.T) {
	n := newNode(t)
	n.start(n.kubelet)
	n.createPods()
	kubelet := n.measure(t, n.kubelet, "kubelet")
	herald := n.measure(t, n.handOver(), "herald")
	t.Run("fields of the summary", func(t *testing.T) { compareFields(t, "summary", kubelet.summary, herald.summary) })
	t.Run("fields of CPU and memory", func(t *testing.T) {
		compareFields(t, "cpu and memory", kubelet.cpuAndMemory, herald.cpuAndMemory)
	})
	t.Run("values", func(t *testing.T) { compareValues(t, kubelet.summary, herald.summary) })
	t.Run("metrics", func(t *testing.T) { compareSeries(t, kubelet.metrics, herald.metrics) })
}

// measure waits until the agent has measured everything that it ever measures, and returns its numbers.
func (n *node) measure(t *testing.T, agent *agents.Agent, name string) numbers {
	t.Helper()
	var result numbers
	heraldtest.Eventually(t, func() error {
		text, err := get(t.Context(), agent, "/stats/summary")
		if err != nil {
			return err
		}
		var summary statsapi.Summary
		if err := json.Unmarshal([]byte(text), &summary); err != nil {
			return err
		}
		if err := checkComplete(&summary); err != nil {
			return err
		}
		keep(name+"-summary.json", text)
		result.summary, err = fieldsOf(text)
		return err
	})
	text, err := get(t.Context(), agent, "/stats/summary?only_cpu_and_memory=true")
	if err == nil {
		result.cpuAndMemory, err = fieldsOf(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err = get(t.Context(), agent, "/metrics/resource")
	if err == nil {
		keep(name+"-metrics.txt", text)
		result.metrics, err = seriesOf(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// keep writes what an agent served to the directory in STATS_DIR, for people.
func keep(name, text string) {
	if dir := os.Getenv("STATS_DIR"); dir != "" {
		_ = os.WriteFile(dir+"/"+name, []byte(text), 0o600)
	}
}

// checkComplete returns an error if one of the test's pods lacks what both agents measure sooner or later.
func checkComplete(summary *statsapi.Summary) error {
	found := map[string]*statsapi.PodStats{}
	for i := range summary.Pods {
		found[summary.Pods[i].PodRef.Name] = &summary.Pods[i]
	}
	if node := &summary.Node; node.CPU == nil || node.CPU.UsageNanoCores == nil || node.Runtime == nil || node.Runtime.ImageFs == nil ||
		node.Runtime.ImageFs.CapacityBytes == nil {
		return fmt.Errorf("the node has no rate of CPU, or no file system of images")
	}
	for _, pod := range pods() {
		stats := found[pod.Name]
		switch {
		case stats == nil:
			return fmt.Errorf("pod %s is missing", pod.Name)
		case stats.CPU == nil || stats.CPU.UsageNanoCores == nil || stats.Memory == nil || stats.Memory.WorkingSetBytes == nil:
			return fmt.Errorf("pod %s has no CPU or memory", pod.Name)
		case len(stats.Containers) != len(pod.Spec.Containers):
			return fmt.Errorf("pod %s has %d containers", pod.Name, len(stats.Containers))
		case !pod.Spec.HostNetwork && stats.Network == nil:
			return fmt.Errorf("pod %s has no network", pod.Name)
		case stats.EphemeralStorage == nil || stats.EphemeralStorage.UsedBytes == nil:
			return fmt.Errorf("pod %s has no ephemeral storage", pod.Name)
		case pod.Name == "disk" && (len(stats.VolumeStats) < 3 || *stats.EphemeralStorage.UsedBytes < fileSize):
			return fmt.Errorf("the volumes of pod disk were not measured")
		case pod.Name == "busy" && *stats.CPU.UsageNanoCores == 0:
			return fmt.Errorf("pod busy is idle")
		case pod.Name == "holder" && *stats.Memory.WorkingSetBytes < heldMebibytes<<20:
			return fmt.Errorf("pod holder holds nothing yet")
		case stats.ProcessStats == nil || *stats.ProcessStats.ProcessCount < uint64(len(pod.Spec.Containers)):
			return fmt.Errorf("pod %s has no processes", pod.Name) // cAdvisor does not know all containers yet
		}
		for _, container := range stats.Containers {
			if container.CPU == nil || container.CPU.UsageNanoCores == nil || container.Logs == nil || container.Rootfs == nil {
				return fmt.Errorf("container %s of pod %s lacks CPU, logs or root file system", container.Name, pod.Name)
			}
		}
	}
	return nil
}
