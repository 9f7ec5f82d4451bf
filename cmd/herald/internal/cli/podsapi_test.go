package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/heraldnode/herald/heraldtest"
)

// A program on the node reads its pods from the socket, which only the agent's user can open.
func TestRun_PodsAPI(t *testing.T) {
	n := startNode(t)
	n.kill()
	n.writeFile("config.yaml", "apiVersion: heraldnode.github.io/v1alpha1\nkind: HeraldConfiguration\npodsAPI: true\n")
	n.start()
	socket := n.path("data/pods-api/pods-api.sock")
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	client := v1alpha1.NewPodsClient(connection)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // ends a hang
	defer cancel()
	var stream grpc.ServerStreamingClient[v1alpha1.WatchPodsEvent]
	heraldtest.Eventually(t, func() (err error) { // until the sources are read
		if stream, err = client.WatchPods(ctx, &v1alpha1.WatchPodsRequest{}, grpc.WaitForReady(true)); err != nil {
			return err
		}
		event, err := stream.Recv()
		if err == nil && event.GetType() != v1alpha1.EventType_INITIAL_SYNC_COMPLETE {
			err = fmt.Errorf("got %s first", event.GetType())
		}
		return err
	})
	n.write("web", "sleep 1000", "")
	if err := awaitEvent(stream, func(event *v1alpha1.WatchPodsEvent, pod *v1.Pod) bool {
		return event.GetType() == v1alpha1.EventType_MODIFIED && pod.Name == "web-n1" && pod.Status.Phase == v1.PodRunning
	}); err != nil {
		t.Fatal(err)
	}
	n.remove("manifests/web.yaml")
	if err := awaitEvent(stream, func(event *v1alpha1.WatchPodsEvent, pod *v1.Pod) bool {
		return event.GetType() == v1alpha1.EventType_DELETED && pod.Name == "web-n1"
	}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{socket: os.ModeSocket | 0o600, n.path("data/pods-api"): os.ModeDir | 0o750} {
		if info, err := os.Stat(path); err != nil || info.Mode()&^want != 0 {
			t.Errorf("%s: got %v (%v), want at most %v", path, info, err, want)
		}
	}
}

func awaitEvent(
	stream grpc.ServerStreamingClient[v1alpha1.WatchPodsEvent], matches func(*v1alpha1.WatchPodsEvent, *v1.Pod) bool,
) error {
	var seen []string
	for {
		event, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("%w after %q", err, seen)
		}
		pod := &v1.Pod{}
		if err := pod.Unmarshal(event.GetPod()); err != nil {
			return errors.Join(err, errors.New("unmarshal pod"))
		}
		if matches(event, pod) {
			return nil
		}
		seen = append(seen, fmt.Sprintf("%s %s %s", event.GetType(), pod.Name, pod.Status.Phase))
	}
}
