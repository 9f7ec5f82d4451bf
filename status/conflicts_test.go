package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// contested is an API server on which somebody else always writes first: a patch that names a version never holds.
type contested struct {
	status.API
	first error // the answer to the first patch

	mu       sync.Mutex // guards all below
	versions []string   // that were named
}

func (c *contested) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*metav1.PartialObjectMetadata, error) {
	var sent struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(patch, &sent); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.versions = append(c.versions, sent.Metadata.ResourceVersion)
	isFirst := len(c.versions) == 1
	c.mu.Unlock()
	switch {
	case isFirst && c.first != nil:
		return nil, c.first
	case sent.Metadata.ResourceVersion != "":
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, errors.New("the object has been modified"))
	}
	return c.API.PatchPodStatus(ctx, namespace, name, patch)
}

func (c *contested) named() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.versions
}

func TestF6APatchThatNoVersionHoldsForGoesWithoutOneInTheEnd(t *testing.T) {
	var api *contested
	contest := func(c *status.Config) { api = &contested{API: c.API}; c.API = api }
	onNode(t, contest, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		time.Sleep(2 * time.Second)
		if got := n.shown(p); got.Phase != v1.PodRunning {
			t.Fatalf("it shows %s after %d patches", got.Phase, len(api.named()))
		}
		if named := api.named(); len(named) != 6 || named[4] == "" || named[5] != "" {
			t.Fatalf("the patches named the versions %q", named)
		}
	})
}

func TestF9WhileAnEarlierRequestMayLandEveryPatchNamesAVersion(t *testing.T) {
	var api *contested
	contest := func(c *status.Config) { api = &contested{API: c.API, first: context.DeadlineExceeded}; c.API = api }
	onNode(t, contest, func(t *testing.T, n *node) {
		n.SetPodStatus(n.bound("web"), runningStatus())
		time.Sleep(time.Minute)
		named := api.named()
		for _, version := range named {
			if version == "" {
				t.Fatalf("the patches named the versions %q", named)
			}
		}
		if len(named) < 5 || len(named) > 20 {
			t.Fatalf("%d patches in a minute", len(named))
		}
	})
}

func TestF6AConflictWithoutEndIsNoHotLoop(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		n.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusConflict))
		n.SetPodStatus(n.bound("web"), runningStatus())
		time.Sleep(time.Minute)
		if patches, gets := n.writes("PATCH"), n.writes("get"); patches < 5 || patches > 20 || gets > patches {
			t.Fatalf("%d patches and %d gets in a minute", patches, gets)
		}
	})
}

// muddled is an API server whose first answer is about another pod.
type muddled struct {
	status.API
	once sync.Once
}

func (m *muddled) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*metav1.PartialObjectMetadata, error) {
	answer, err := m.API.PatchPodStatus(ctx, namespace, name, patch)
	m.once.Do(func() {
		answer = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "another", ResourceVersion: "999999"}}
	})
	return answer, err
}

func TestF10AnAnswerAboutAnotherPodIsNone(t *testing.T) {
	onNode(t, func(c *status.Config) { c.API = &muddled{API: c.API} }, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		time.Sleep(time.Minute)
		n.server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) { p.Status.Phase = v1.PodPending })
		time.Sleep(time.Minute)
		if got := n.shown(p); got.Phase != v1.PodRunning {
			t.Fatalf("a version that is not the pod's hides what others write: it shows %s", got.Phase)
		}
	})
}
