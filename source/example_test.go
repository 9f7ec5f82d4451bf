package source_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

// Read static pods from a directory and print each change.
func ExampleMux() {
	dir, err := os.MkdirTemp("", "manifests")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: nginx}]}\n"
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(text), 0o600); err != nil {
		log.Fatal(err)
	}

	file, err := source.NewFile(source.FileConfig{Path: dir, NodeName: "node-1"})
	if err != nil {
		log.Fatal(err)
	}
	mux, err := source.NewMux(source.MuxConfig{Sources: []source.Source{file}})
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- mux.Run(ctx) }()
	for update := range mux.Updates() {
		for _, pod := range update.Pods {
			fmt.Println(update.Source, update.Op, podid.FullNameOf(pod).Key())
		}
		update.Ack()
		fmt.Println("ready:", mux.Ready(podid.File))
		cancel() // an agent continues
	}
	if err := <-done; err != nil {
		log.Fatal(err)
	}
	// Output:
	// file ADD default/web-node-1
	// ready: true
}
