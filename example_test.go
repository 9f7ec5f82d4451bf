package herald_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

// Example reads static pods from a directory, prints each change and keeps the desired pods in a pod manager. It needs no
// cluster.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	dir, err := os.MkdirTemp("", "manifests")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: nginx}]}\n"
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(manifest), 0o600); err != nil {
		log.Fatal(err)
	}

	files, err := source.NewFile(source.FileConfig{Path: dir, NodeName: "edge-1"})
	if err != nil {
		log.Fatal(err)
	}
	mux, err := source.NewMux(source.MuxConfig{Sources: []source.Source{files}})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		if err := mux.Run(ctx); err != nil {
			log.Print(err)
		}
	}()

	manager := pod.NewManager()
	for update := range mux.Updates() {
		for _, desired := range update.Pods {
			fmt.Println(update.Op, podid.FullNameOf(desired))
			if update.Op == source.OpRemove {
				manager.RemovePod(desired)
			} else {
				manager.UpdatePod(desired)
			}
		}
		update.Ack()
		cancel() // an agent would go on
	}
	fmt.Println(len(manager.GetPods()), "desired pod")
	// Output:
	// ADD web-edge-1_default
	// 1 desired pod
}
