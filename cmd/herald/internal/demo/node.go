package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/heraldnode/herald/nodeagent"
)

// nodeName is appended to the names of the pods.
const nodeName = "demo"

func manifestsOf(folder string) string { return filepath.Join(folder, "manifests") }
func dataOf(folder string) string      { return filepath.Join(folder, "data") }

// newNode is an agent alone, whose containers are processes, and all of which is in one folder.
func newNode(folder string) (*nodeagent.NodeAgent, error) {
	return nodeagent.New(nodeagent.Config{
		NodeName: nodeName, DataDir: dataOf(folder), StaticPodPath: manifestsOf(folder),
		Runtime: nodeagent.RuntimeProcess, NodeIP: netip.AddrFrom4([4]byte{127, 0, 0, 1}),
	})
}

// removeManifests leaves nothing that the node should run.
func removeManifests(folder string) error {
	files, err := os.ReadDir(manifestsOf(folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, file := range files {
		if err := os.RemoveAll(filepath.Join(manifestsOf(folder), file.Name())); err != nil {
			return err
		}
	}
	return nil
}

// How long the pods may take to end, and how often that is looked at.
const (
	clearTimeout = 40 * time.Second
	clearPeriod  = 50 * time.Millisecond
)

// awaitEmpty waits until the node has got rid of all pods.
func awaitEmpty(ctx context.Context, node *nodeagent.NodeAgent) error {
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	tick := time.NewTicker(clearPeriod)
	defer tick.Stop()
	for {
		empty, err := node.Empty(ctx)
		if empty && len(node.Agent.LocalPods()) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("some pods have not ended in %v", clearTimeout), err)
		case <-tick.C:
		}
	}
}
