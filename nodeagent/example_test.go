package nodeagent_test

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"github.com/heraldnode/herald/nodeagent"
)

// A complete node without a cluster: the pods of a folder in containerd, until the program is ended. Containers keep running, and the
// next program with the same data directory continues with them.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	node, err := nodeagent.New(nodeagent.Config{
		NodeName:      "edge-1",
		DataDir:       "/var/lib/edge",
		StaticPodPath: "/etc/kubernetes/manifests",
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := node.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
