package heraldtest_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/podid"
)

// An agent's client talks to the server as to a real one; the test plays the rest of the cluster.
func Example() {
	server := heraldtest.NewAPIServer()
	client, err := kubeapi.New(server.Config())
	if err != nil {
		panic(err)
	}
	ctx := context.Background()

	server.AddNode("n1")
	pod := server.AddPod(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       v1.PodSpec{NodeName: "n1"},
	})
	name := podid.FullNameOf(pod)

	_, err = client.PatchPodStatus(ctx, name.Namespace, name.Name, []byte(`{"status": {"phase": "Running"}}`))
	fmt.Println(server.Pod(name).Status.Phase, err)

	server.DeletePod(name, 30) // somebody wants it gone: the agent stops it, and then
	fmt.Println(client.DeletePod(ctx, name.Namespace, name.Name, pod.UID), server.Pod(name) == nil)

	_, err = client.PatchPodStatus(ctx, name.Namespace, name.Name, []byte(`{"status": {"phase": "Failed"}}`))
	fmt.Println(apierrors.IsNotFound(err), len(server.Requests("patch")))
	// Output:
	// Running <nil>
	// <nil> true
	// true 2
}
