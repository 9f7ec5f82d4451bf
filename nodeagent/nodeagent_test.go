package nodeagent_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/process"
)

func TestMain(m *testing.M) {
	if process.IsShim() {
		process.ShimMain()
	}
	if folders := os.Getenv(constrainedVariable); folders != "" {
		if err := runConstrained(folders); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestConfig_Validation(t *testing.T) {
	tests := map[string]struct {
		config nodeagent.Config
		want   []string
	}{
		"empty":                     {nodeagent.Config{}, []string{"NodeName is required", "DataDir", "StaticPodPath"}},
		"unknown runtime":           {nodeagent.Config{NodeName: "n", DataDir: "/d", StaticPodPath: "/m", Runtime: "docker"}, []string{`not "docker"`}},
		"endpoint without CRI":      {nodeagent.Config{NodeName: "n", DataDir: "/d", StaticPodPath: "/m", Runtime: "process", ContainerRuntimeEndpoint: "unix:///s"}, []string{"ContainerRuntimeEndpoint"}},
		"relative data directory":   {nodeagent.Config{NodeName: "n", DataDir: "d", StaticPodPath: "/m"}, []string{"DataDir", "absolute"}},
		"two addresses of a family": {nodeagent.Config{NodeName: "n", DataDir: "/d", StaticPodPath: "/m", NodeIPs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}}, []string{"NodeIPs"}},
		"negative number of pods":   {nodeagent.Config{NodeName: "n", DataDir: "/d", StaticPodPath: "/m", MaxPods: -1}, []string{"MaxPods"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := nodeagent.New(test.config)
			for _, part := range test.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("got %v, want an error containing %q", err, part)
				}
			}
		})
	}
}

func TestConfig_ComponentValidation(t *testing.T) {
	tests := map[string]func(*nodeagent.Config){
		"CgroupDriver":           func(c *nodeagent.Config) { c.CgroupDriver = "docker" },
		"EnforceNodeAllocatable": func(c *nodeagent.Config) { c.EnforceNodeAllocatable = []string{"system-reserved"} },
		"ContainerLogMaxFiles":   func(c *nodeagent.Config) { c.ContainerLogMaxFiles = 1 },
		"MaxParallelPulls":       func(c *nodeagent.Config) { c.MaxParallelImagePulls = -1 },
		"RequestTimeout":         func(c *nodeagent.Config) { c.RuntimeRequestTimeout = -1 },
		"UpdateFrequency":        func(c *nodeagent.Config) { c.NodeStatusUpdateFrequency = -1 },
		"ReportFrequency":        func(c *nodeagent.Config) { c.NodeStatusReportFrequency = -1 },
		"LeaseDuration":          func(c *nodeagent.Config) { c.NodeLeaseDuration = time.Second },
		"Resync":                 func(c *nodeagent.Config) { c.SyncFrequency = -1 },
		"EventBurst":             func(c *nodeagent.Config) { c.EventBurst = -1 },
	}
	for field, change := range tests {
		t.Run(field, func(t *testing.T) {
			config := newConfig(t)
			change(&config)
			if _, err := nodeagent.New(config); err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("got %v, want an error containing %q", err, field)
			}
		})
	}
}

func TestNodeAgent_NodeObject(t *testing.T) {
	server := heraldtest.NewAPIServer()
	config := newConfig(t)
	config.API, config.ProviderID, config.NodeLeaseDuration = server.Config(), "cloud://a/b", 8*time.Second
	config.Reserved = v1.ResourceList{v1.ResourceCPU: resource.MustParse("300m")}
	run(t, config, func(*nodeagent.NodeAgent) {
		eventually(t, "node with provider ID and allocatable CPU", func() bool {
			node := server.Node("n1")
			if node == nil {
				return false
			}
			free := node.Status.Capacity.Cpu().DeepCopy()
			free.Sub(config.Reserved[v1.ResourceCPU])
			return node.Spec.ProviderID == config.ProviderID && free.Sign() > 0 && free.Equal(*node.Status.Allocatable.Cpu())
		})
		if got := server.Node("n1").Labels[v1.LabelHostname]; got != "n1" {
			t.Errorf("got hostname label %q, want n1", got)
		}
		eventually(t, "lease with the configured duration", func() bool {
			lease := server.Lease("n1")
			return lease != nil && lease.Spec.LeaseDurationSeconds != nil && *lease.Spec.LeaseDurationSeconds == 8
		})
	})
}

// TestNodeAgent_DualStack checks that the order of NodeIPs decides on the primary address, and that the environment and the
// status agree.
func TestNodeAgent_DualStack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "addresses")
	config := newConfig(t, `apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers:
  - name: main
    image: host
    command: [sh, -c, "echo $POD_IP $POD_IPS $HOST_IPS > `+file+`"]
    env:
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: POD_IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}
    - {name: HOST_IPS, valueFrom: {fieldRef: {fieldPath: status.hostIPs}}}
`)
	config.NodeIPs = []netip.Addr{netip.MustParseAddr("fd00::7"), netip.MustParseAddr("10.0.0.7")}
	run(t, config, func(n *nodeagent.NodeAgent) {
		eventually(t, "the pod to end", func() bool {
			pods := n.Agent.LocalPods()
			return len(pods) == 1 && pods[0].Status.Phase == v1.PodSucceeded
		})
		status := n.Agent.LocalPods()[0].Status
		if status.HostIP != "fd00::7" || status.PodIP != "fd00::7" || len(status.PodIPs) != 2 || len(status.HostIPs) != 2 {
			t.Errorf("got host %v, pod %v, want both addresses, IPv6 first", status.HostIPs, status.PodIPs)
		}
	})
	got, err := os.ReadFile(file)
	if want := "fd00::7 fd00::7,10.0.0.7 fd00::7,10.0.0.7\n"; string(got) != want || err != nil {
		t.Errorf("environment: got %q, error %v, want %q", got, err, want)
	}
}

// newConfig returns the configuration of a node without a cluster that runs the manifests as processes.
func newConfig(t *testing.T, manifests ...string) nodeagent.Config {
	t.Helper()
	folder := t.TempDir()
	for i, text := range manifests {
		if err := os.WriteFile(filepath.Join(folder, string(rune('a'+i))+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.MkdirTemp("", "herald") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	return nodeagent.Config{
		NodeName: "n1", DataDir: data, StaticPodPath: folder, Runtime: nodeagent.RuntimeProcess, MaxPods: 1,
		NodeIPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
	}
}

const job = `apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers: [{name: main, image: host, command: ["true"]}]
`

// run runs the node agent while it calls do.
func run(t *testing.T, config nodeagent.Config, do func(*nodeagent.NodeAgent)) {
	t.Helper()
	n, err := nodeagent.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	do(n)
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	heraldtest.Eventually(t, func() error {
		if !condition() {
			return errors.New("waiting for " + what)
		}
		return nil
	})
}

func TestNodeAgent_RunsManifests(t *testing.T) {
	run(t, newConfig(t, job), func(n *nodeagent.NodeAgent) {
		eventually(t, "the job to succeed", func() bool {
			pods := n.Agent.LocalPods()
			return len(pods) == 1 && pods[0].Status.Phase == v1.PodSucceeded
		})
		if err := n.Agent.Healthy(); err != nil {
			t.Error(err)
		}
	})
}

// TestNodeAgent_DownwardAPIWithoutLimits checks that a container without limits sees the node's allocatable resources.
func TestNodeAgent_DownwardAPIWithoutLimits(t *testing.T) {
	const env = `env:
    - {name: CPUS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory}}}
    command: [sh, -c, 'test "$$CPUS" -gt 0 && test "$$MEMORY" -gt 0']`
	manifest := strings.Replace(job, `containers: [{name: main, image: host, command: ["true"]}]`,
		"containers:\n  - name: main\n    image: host\n    "+env, 1)
	run(t, newConfig(t, manifest), func(n *nodeagent.NodeAgent) {
		eventually(t, "the pod to terminate", func() bool {
			pods := n.Agent.LocalPods()
			return len(pods) == 1 && derive.IsTerminal(pods[0].Status.Phase)
		})
		if phase := n.Agent.LocalPods()[0].Status.Phase; phase != v1.PodSucceeded {
			t.Errorf("got phase %s, want Succeeded", phase)
		}
	})
}

// TestNodeAgent_ContainerLogLinks checks that log shippers find a link for each container log next to the pod logs.
func TestNodeAgent_ContainerLogLinks(t *testing.T) {
	config := newConfig(t, job)
	socket := filepath.Join(config.DataDir, "runtime.sock")
	runtime, err := process.New(process.Config{Root: filepath.Join(config.DataDir, "runtime"), Socket: socket, Shim: []string{"/proc/self/exe"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runtime.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	logs := t.TempDir()
	config.Runtime, config.ContainerRuntimeEndpoint, config.PodLogsDir = nodeagent.RuntimeCRI, "unix://"+socket, filepath.Join(logs, "pods")
	config.NoCgroupsPerQOS = true // the test must not change the machine's cgroups
	run(t, config, func(*nodeagent.NodeAgent) {
		eventually(t, "a link to the log", func() bool {
			links, err := filepath.Glob(filepath.Join(logs, "containers", "job-n1_default_main-*.log"))
			return err == nil && len(links) == 1
		})
	})
}

func TestNodeAgent_MaxPods(t *testing.T) {
	longRunning := strings.NewReplacer(`["true"]`, `["sleep", "1000"]`, "hostNetwork: true", "hostNetwork: true\n  terminationGracePeriodSeconds: 1")
	config := newConfig(t, longRunning.Replace(job), strings.Replace(longRunning.Replace(job), "name: job", "name: more", 1))
	run(t, config, func(n *nodeagent.NodeAgent) {
		eventually(t, "one pod running and one rejected", func() bool {
			phases := map[string]int{}
			for _, p := range n.Agent.LocalPods() {
				phases[string(p.Status.Phase)+p.Status.Reason]++
			}
			return phases["Running"] == 1 && phases["PendingOutOfpods"] == 1
		})
		for _, file := range []string{"a.yaml", "b.yaml"} { // leave nothing running
			if err := os.Remove(filepath.Join(config.StaticPodPath, file)); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "both pods to be gone", func() bool { return len(n.Agent.LocalPods()) == 0 })
	})
}

func TestNodeAgent_Rejections(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddNode("n1")
	config := newConfig(t, strings.Replace(job, "spec:", "spec:\n  securityContext: {sysctls: [{name: kernel.panic, value: \"1\"}]}", 1))
	config.API = server.Config()
	run(t, config, func(n *nodeagent.NodeAgent) {
		server.AddPod(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
			Spec:       v1.PodSpec{NodeName: "n1", HostNetwork: true, Containers: []v1.Container{{Name: "main", Image: "host", Command: []string{"true"}}}},
		})
		eventually(t, "rejection of the API pod by the process runtime", func() bool {
			p := server.Pod(podid.FullName{Namespace: "shop", Name: "web"})
			return p.Status.Phase == v1.PodFailed && p.Status.Reason == "ForbiddenSource"
		})
		eventually(t, "rejection that names the unsupported field", func() bool {
			for _, p := range n.Agent.LocalPods() {
				if p.Status.Reason == "SysctlForbidden" && strings.Contains(p.Status.Message, "spec.securityContext.sysctls[0]") {
					return true
				}
			}
			return false
		})
	})
}

// A pod that needs what the node lacks waits, as on a kubelet.
func TestNodeAgent_UnsupportedFieldsWait(t *testing.T) {
	tests := map[string]struct {
		mutate        func(*v1.PodSpec)
		reason, field string
	}{
		"PVC": {func(spec *v1.PodSpec) {
			spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}}
		}, "FailedMount", "persistentVolumeClaim: volumes that need a driver are not supported; use emptyDir"},
		"RuntimeClass": {
			func(spec *v1.PodSpec) { spec.RuntimeClassName = new("gvisor") }, "FailedCreatePodSandBox", `runtimeclass.node.k8s.io "gvisor" not found`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := heraldtest.NewAPIServer()
			server.AddNode("n1")
			config := newConfig(t)
			config.API, config.AllowAPIPods = server.Config(), true
			run(t, config, func(n *nodeagent.NodeAgent) {
				pod := &v1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
					Spec:       v1.PodSpec{NodeName: "n1", HostNetwork: true, Containers: []v1.Container{{Name: "main", Image: "host", Command: []string{"true"}}}},
				}
				test.mutate(&pod.Spec)
				server.AddPod(pod)
				eventually(t, "an event that names the field", func() bool {
					for _, event := range server.Events() {
						if event.Reason == test.reason && strings.Contains(event.Message, test.field) {
							return true
						}
					}
					return false
				})
				messages := map[string]bool{}
				for _, event := range server.Events() {
					if event.Reason == test.reason {
						messages[event.Message] = true
					}
				}
				if len(messages) != 1 {
					t.Errorf("got %d messages for one failure: %v", len(messages), messages)
				}
				if phase := server.Pod(podid.FullName{Namespace: "shop", Name: "web"}).Status.Phase; phase != v1.PodPending {
					t.Errorf("phase: got %s, want Pending", phase)
				}
				if state := n.Agent.Workers.Pods()[0]; state.Err == nil || !state.Admitted {
					t.Errorf("got %+v, want an admitted pod with an error", state)
				}
			})
		})
	}
}

func TestF30_DataDirLocked(t *testing.T) {
	config := newConfig(t)
	first, err := nodeagent.New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	var locked *checkpoint.LockedError
	if _, err := nodeagent.New(config); !errors.As(err, &locked) {
		t.Errorf("got %v, want a LockedError", err)
	}
}
