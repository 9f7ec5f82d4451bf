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

// A node without a cluster: manifests in a folder, an address book of what should run, and every change as it happens.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	folder, err := os.MkdirTemp("", "manifests")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	const manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: nginx}]}\n"
	if err := os.WriteFile(filepath.Join(folder, "web.yaml"), []byte(manifest), 0o600); err != nil {
		log.Fatal(err)
	}

	files, err := source.NewFile(source.FileConfig{Path: folder, NodeName: "edge-1"})
	if err != nil {
		log.Fatal(err)
	}
	pods, err := source.NewMux(source.MuxConfig{Sources: []source.Source{files}})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		if err := pods.Run(ctx); err != nil {
			log.Print(err)
		}
	}()

	book := pod.NewManager()
	for update := range pods.Updates() {
		for _, p := range update.Pods {
			fmt.Println(update.Op, podid.FullNameOf(p))
			if update.Op == source.OpRemove {
				book.RemovePod(p)
			} else {
				book.UpdatePod(p)
			}
		}
		update.Ack()
		stop() // an agent goes on
	}
	fmt.Println(len(book.GetPods()), "pod should run")
	// Output:
	// ADD web-edge-1_default
	// 1 pod should run
}
