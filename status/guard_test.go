package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/status"
)

// guard stands between a manager and its client, and notes what no manager may ask for (I8, I12, I13). It can also be the
// end of a process: then nothing passes any more.
type guard struct {
	status.API
	mayDelete func(types.UID) error

	mu      sync.Mutex // guards all below
	open    map[types.UID]int
	deleted map[types.UID]bool
	dead    bool
	wrong   []string
}

func newGuard(api status.API, mayDelete func(types.UID) error) *guard {
	return &guard{API: api, mayDelete: mayDelete, open: map[types.UID]int{}, deleted: map[types.UID]bool{}}
}

var errDead = errors.New("the process is dead")

func (g *guard) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*metav1.PartialObjectMetadata, error) {
	var sent struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(patch, &sent); err != nil {
		g.note("the patch is not JSON: %v", err)
	}
	uid := sent.Metadata.UID
	if uid == "" {
		g.note("I9: a patch of %s names no UID", name)
	}
	if err := g.enter(uid); err != nil {
		return nil, err
	}
	defer g.leave(uid)
	return g.API.PatchPodStatus(ctx, namespace, name, patch)
}

func (g *guard) GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	if g.isDead() {
		return nil, errDead
	}
	return g.API.GetPod(ctx, namespace, name)
}

func (g *guard) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	if err := g.enter(uid); err != nil {
		return err
	}
	defer g.leave(uid)
	if err := g.mayDelete(uid); err != nil {
		g.note("I12, I13: the deletion of %s %s: %v", name, uid, err)
	}
	err := g.API.DeletePod(ctx, namespace, name, uid)
	if err == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.deleted[uid] = true
	}
	return err
}

func (g *guard) enter(uid types.UID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		return errDead
	}
	if g.open[uid]++; g.open[uid] > 1 {
		g.wrong = append(g.wrong, fmt.Sprintf("I8: %d requests in flight for %s", g.open[uid], uid))
	}
	if g.deleted[uid] {
		g.wrong = append(g.wrong, fmt.Sprintf("I8: a request for %s after its deletion", uid))
	}
	return nil
}

func (g *guard) leave(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[uid]--
}

func (g *guard) die() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = true
}

func (g *guard) isDead() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dead
}

func (g *guard) note(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wrong = append(g.wrong, fmt.Sprintf(format, args...))
}

func (g *guard) misses() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.wrong...)
}
