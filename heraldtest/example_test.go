package heraldtest_test

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/podid"
)

// The client talks to the in-memory server as to a real one. The test acts as the rest of the cluster.
func Example() {
	server := heraldtest.NewAPIServer()
	client, err := kubeapi.New(server.Config())
	if err != nil {
		panic(err)
	}
	ctx := context.Background()

	server.AddNode("n1")
	pod := server.AddPod(heraldtest.NewPod("web", heraldtest.OnNode("n1")))
	name := podid.FullNameOf(pod)

	_, err = client.PatchPodStatus(ctx, name.Namespace, name.Name, []byte(`{"status": {"phase": "Running"}}`))
	fmt.Println(server.Pod(name).Status.Phase, err)

	server.DeletePod(name, 30) // a user deletes the pod; the agent stops it and confirms
	fmt.Println(client.DeletePod(ctx, name.Namespace, name.Name, pod.UID), server.Pod(name) == nil)

	_, err = client.PatchPodStatus(ctx, name.Namespace, name.Name, []byte(`{"status": {"phase": "Failed"}}`))
	fmt.Println(apierrors.IsNotFound(err), len(server.Requests("patch")))
	// Output:
	// Running <nil>
	// <nil> true
	// true 2
}
