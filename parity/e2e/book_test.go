package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/parity/internal/recorder"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/pod/mirror"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

// book is the front half of an agent: sources, address book and mirrors, wired as the agent wires them, with a node's own
// identity.
type book struct {
	t       *testing.T
	node    string
	dir     string
	pods    *pod.Manager
	mirrors *mirror.Reconciler
	mux     *source.Mux

	mu    sync.Mutex // guards moves
	moves []string   // what happened to static pods: "ADD web", "REMOVE web"
}

// openBook creates the node and starts a book on it. It is closed when the test ends.
func openBook(t *testing.T, node string) *book {
	t.Helper()
	if _, err := cluster.CreateNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	client, err := kubeapi.New(cluster.NodeConfig(node))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { clearNode(t, node) })
	b := &book{t: t, node: node, dir: t.TempDir(), pods: pod.NewManager()}
	files, err := source.NewFile(source.FileConfig{Path: b.dir, NodeName: node})
	if err != nil {
		t.Fatal(err)
	}
	api, err := source.NewAPI(source.APIConfig{ListerWatcher: client.PodsOnNode(node), NodeName: node})
	if err != nil {
		t.Fatal(err)
	}
	if b.mux, err = source.NewMux(source.MuxConfig{Sources: []source.Source{files, api}}); err != nil {
		t.Fatal(err)
	}
	b.mirrors, err = mirror.New(mirror.Config{
		NodeName: node, Pods: b.pods, API: client,
		Terminating:        func(podid.FullName) bool { return false },
		StaticSourcesReady: func() bool { return b.mux.Ready(podid.File) },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.run()
	return b
}

// clearNode removes the mirrors that are left when nobody keeps them any more, so that the test can run again.
func clearNode(t *testing.T, node string) {
	t.Helper()
	ctx, ofNode := context.WithoutCancel(t.Context()), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}
	if err := admin(t).CoreV1().Pods("default").DeleteCollection(ctx, atOnce(), ofNode); err != nil {
		t.Error(err)
	}
}

func (b *book) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for name, stage := range map[string]func(context.Context) error{"mux": b.mux.Run, "mirrors": b.mirrors.Run} {
		all.Go(func() {
			if err := stage(ctx); err != nil && ctx.Err() == nil {
				b.t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Go(b.consume)
	b.t.Cleanup(func() {
		cancel()
		all.Wait()
	})
}

// consume files each change and then wakes who depends on it.
func (b *book) consume() {
	for update := range b.mux.Updates() {
		for _, p := range update.Pods {
			if podid.IsStatic(p) {
				b.note(fmt.Sprintf("%s %s", update.Op, p.Name))
			}
			if update.Op == source.OpRemove {
				b.pods.RemovePod(p)
			} else {
				b.pods.UpdatePod(p)
			}
			b.mirrors.Enqueue(podid.FullNameOf(p))
		}
		update.Ack()
	}
}

func (b *book) note(move string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moves = append(b.moves, move)
}

// moved is what happened to static pods so far.
func (b *book) moved() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.moves)
}

// write puts a manifest into the folder, the way careful tools do: written aside, then renamed.
func (b *book) write(name, image string) {
	b.t.Helper()
	manifest := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers:\n  - {name: main, image: %q}\n", name, image)
	temporary := filepath.Join(b.dir, "."+name)
	if err := os.WriteFile(temporary, []byte(manifest), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(b.dir, name+".yaml")); err != nil {
		b.t.Fatal(err)
	}
}

func (b *book) remove(name string) {
	b.t.Helper()
	if err := os.Remove(filepath.Join(b.dir, name+".yaml")); err != nil {
		b.t.Fatal(err)
	}
}

// mirrorName is the name of the static pod and of its mirror.
func (b *book) mirrorName(name string) string { return name + "-" + b.node }

// mirror waits for the static pod's mirror with that image to be known in the address book, and returns it.
func (b *book) mirror(name, image string) *v1.Pod {
	b.t.Helper()
	var found *v1.Pod
	recorder.Eventually(b.t, "the mirror of "+name, func() (string, bool) {
		static, known := b.pods.GetPodByName("default", b.mirrorName(name))
		if !known {
			return "without static pod", false
		}
		found, known = b.pods.GetMirrorPodByPod(static)
		if !known {
			return "missing", false
		}
		return found.Spec.Containers[0].Image, podid.IsMirrorOf(found, static) && found.DeletionTimestamp == nil && found.Spec.Containers[0].Image == image
	})
	return found
}
