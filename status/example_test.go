package status_test

import (
	"context"
	"fmt"
	"log"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// runtime answers what a container runtime knows: here, that no container runs and nothing is left to clean up.
type runtime struct{}

func (runtime) PodCouldHaveRunningContainers(podid.UID) bool             { return false }
func (runtime) PodResourcesAreReclaimed(_ *v1.Pod, _ *v1.PodStatus) bool { return true }

// A node agent reports the status of its pods: one request per change, and the final delete once a deleted pod is gone.
func ExampleManager() {
	server := heraldtest.NewAPIServer()
	client, err := kubeapi.New(server.Config())
	if err != nil {
		log.Fatal(err)
	}
	web := server.AddPod(heraldtest.NewPod("web", heraldtest.OnNode("n1")))
	pods := pod.NewManager() // fed by a watch in a real agent
	pods.AddPod(web)

	manager, err := status.New(status.Config{API: client, Pods: pods, Deletion: runtime{}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- manager.Run(ctx) }()

	running := v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.7", PodIPs: []v1.PodIP{{IP: "10.0.0.7"}}}
	_, changed := manager.SetPodStatus(web, running)
	fmt.Println("first status changed:", changed)
	_, changed = manager.SetPodStatus(web, running)
	fmt.Println("equal status changed:", changed)

	stop() // Run sends what is pending before it returns
	if err := <-stopped; err != nil {
		log.Fatal(err)
	}
	fmt.Println("API server:", server.Pod(podid.FullNameOf(web)).Status.Phase)
	fmt.Println("requests:", len(server.Requests()))
	// Output:
	// first status changed: true
	// equal status changed: false
	// API server: Running
	// requests: 1
}
