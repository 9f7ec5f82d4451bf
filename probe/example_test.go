package probe_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe"
)

// exampleNode implements probe.PodCache, probe.Statuses and check.Runtime for one pod.
type exampleNode struct {
	pod   observed.Pod
	ready chan bool
}

func (n *exampleNode) Get(podid.UID) *observed.Pod { return &n.pod }

func (n *exampleNode) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

func (n *exampleNode) SetContainerReadiness(_ types.UID, _ observed.ContainerID, ready bool) {
	n.ready <- ready
}

func (n *exampleNode) SetContainerStartup(types.UID, observed.ContainerID, bool) {}

func (n *exampleNode) Exec(_ context.Context, _ observed.ContainerID, command []string) ([]byte, int, error) {
	fmt.Println("exec", command)
	return nil, 0, nil
}

// A prober checks the readiness of a container with a command and reports the result to the status cache.
func ExampleProber() {
	node := &exampleNode{ready: make(chan bool)}
	prober, err := probe.New(probe.Config{PodCache: node, Statuses: node, Runtime: node})
	if err != nil {
		fmt.Println(err)
		return
	}
	id := observed.ContainerID{Runtime: "containerd", ID: "abc"}
	node.pod.Containers = []observed.Container{{ID: id, Name: "nginx", State: observed.Running, StartedAt: time.Now()}}

	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- prober.Run(ctx) }()

	prober.AddPod(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1"},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "nginx",
			ReadinessProbe: &v1.Probe{
				ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"cat", "/ready"}}},
			},
		}}},
	})
	fmt.Println("ready:", <-node.ready)
	results, _ := prober.Results("u1")
	fmt.Println(id, results[id].Readiness)

	prober.RemovePod("u1")
	cancel()
	fmt.Println("stopped:", <-stopped)
	// Output:
	// exec [cat /ready]
	// ready: true
	// containerd://abc Success
	// stopped: <nil>
}
