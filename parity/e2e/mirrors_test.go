package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/pod/mirror"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

// mirrorHarness runs the sources, the Pod Manager and the mirror reconciler, wired as in the agent, with the identity of a node.
type mirrorHarness struct {
	t           *testing.T
	nodeName    string
	manifestDir string
	pods        *pod.Manager
	mirrors     *mirror.Reconciler
	mux         *source.Mux

	mu      sync.Mutex // guards updates
	updates []string   // of static pods: "ADD web", "REMOVE web"
}

// newMirrorHarness creates the node and starts the components. They stop when the test ends.
func newMirrorHarness(t *testing.T, nodeName string) *mirrorHarness {
	t.Helper()
	if _, err := cluster.CreateNode(t.Context(), nodeName); err != nil {
		t.Fatal(err)
	}
	client, err := kubeapi.New(cluster.NodeConfig(nodeName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deletePods(t, nodeName) })
	h := &mirrorHarness{t: t, nodeName: nodeName, manifestDir: t.TempDir(), pods: pod.NewManager()}
	if h.mux, h.mirrors, err = newPodPipeline(nodeName, h.manifestDir, h.pods, client); err != nil {
		t.Fatal(err)
	}
	h.run()
	return h
}

func (h *mirrorHarness) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for name, run := range map[string]func(context.Context) error{"mux": h.mux.Run, "mirrors": h.mirrors.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				h.t.Errorf("%s: %v", name, err)
			}
		})
	}
	running.Go(h.consume)
	h.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// consume updates the Pod Manager and then enqueues the mirror.
func (h *mirrorHarness) consume() {
	for update := range h.mux.Updates() {
		for _, p := range update.Pods {
			if podid.IsStatic(p) {
				h.recordUpdate(fmt.Sprintf("%s %s", update.Op, p.Name))
			}
			if update.Op == source.OpRemove {
				h.pods.RemovePod(p)
			} else {
				h.pods.UpdatePod(p)
			}
			h.mirrors.Enqueue(podid.FullNameOf(p))
		}
		update.Ack()
	}
}

func (h *mirrorHarness) recordUpdate(update string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.updates = append(h.updates, update)
}

// staticUpdates returns the updates of static pods so far.
func (h *mirrorHarness) staticUpdates() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.updates)
}

func (h *mirrorHarness) writeManifest(name, image string) {
	h.t.Helper()
	writeManifest(h.t, h.manifestDir, name, image)
}

func (h *mirrorHarness) removeManifest(name string) {
	h.t.Helper()
	if err := os.Remove(filepath.Join(h.manifestDir, name+".yaml")); err != nil {
		h.t.Fatal(err)
	}
}

// podName returns the name of the static pod and of its mirror.
func (h *mirrorHarness) podName(name string) string { return name + "-" + h.nodeName }

// awaitMirror waits until the Pod Manager knows the static pod's mirror with this image, and returns it.
func (h *mirrorHarness) awaitMirror(name, image string) *v1.Pod {
	h.t.Helper()
	var found *v1.Pod
	heraldtest.Eventually(h.t, func() error {
		static, known := h.pods.GetPodByName("default", h.podName(name))
		if !known {
			return fmt.Errorf("static pod %s is unknown", name)
		}
		if found, known = h.pods.GetMirrorPodByPod(static); !known {
			return fmt.Errorf("mirror of %s is unknown", name)
		}
		got := found.Spec.Containers[0].Image
		if !podid.IsMirrorOf(found, static) || found.DeletionTimestamp != nil || got != image {
			return fmt.Errorf("mirror of %s has image %s and deletion timestamp %v, want %s", name, got, found.DeletionTimestamp, image)
		}
		return nil
	})
	return found
}

// awaitIdle waits until the reconciler has processed all earlier work: another mirror is created and deleted after it.
func (h *mirrorHarness) awaitIdle() {
	h.t.Helper()
	h.writeManifest("last", "nginx:1")
	h.awaitMirror("last", "nginx:1")
	h.removeManifest("last")
	heraldtest.Eventually(h.t, func() error {
		_, _, orphans := h.pods.GetPodsAndMirrorPods()
		_, err := admin(h.t).CoreV1().Pods("default").Get(h.t.Context(), h.podName("last"), metav1.GetOptions{})
		if len(orphans) != 0 || !apierrors.IsNotFound(err) {
			return fmt.Errorf("got orphans %v, mirror %w; want NotFound", orphans, err)
		}
		return nil
	})
}

// watchUIDs watches the pods of this name. The returned function waits until the last UID was seen, and returns all in the order
// of creation.
func watchUIDs(t *testing.T, name string) func(last types.UID) []types.UID {
	t.Helper()
	watch, err := admin(t).CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	return func(last types.UID) []types.UID {
		var uids []types.UID
		for event := range watch.ResultChan() {
			p, isPod := event.Object.(*v1.Pod)
			if isPod && !slices.Contains(uids, p.UID) {
				uids = append(uids, p.UID)
			}
			if isPod && p.UID == last {
				return uids
			}
		}
		t.Fatalf("the watch of %s ended after %v", name, uids)
		return nil
	}
}

// requireReplacedOnce fails the test unless the UIDs are those of the first and the second mirror.
func requireReplacedOnce(t *testing.T, uids []types.UID, first, second *v1.Pod) {
	t.Helper()
	if want := []types.UID{first.UID, second.UID}; !slices.Equal(uids, want) {
		t.Fatalf("UIDs of the mirror: got %v, want %v", uids, want)
	}
}

func TestMirror_FollowsManifest(t *testing.T) {
	h := newMirrorHarness(t, "seen")
	h.writeManifest("web", "nginx:1")
	created := h.awaitMirror("web", "nginx:1")
	if got := kubectl(t, "get", "pod", "web-seen", "-o", "name"); got != "pod/web-seen" {
		t.Fatalf("kubectl get pod: got %q", got)
	}
	if owner := metav1.GetControllerOf(created); owner == nil || owner.Kind != "Node" || owner.Name != "seen" {
		t.Fatalf("PM-18: got owner %+v, want the node", owner)
	}
	h.removeManifest("web")
	heraldtest.Eventually(t, func() error {
		_, err := admin(t).CoreV1().Pods("default").Get(t.Context(), "web-seen", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("mirror of a removed manifest: got %w, want NotFound", err)
		}
		return nil
	})
}

// A deleted mirror is recreated exactly once, and the static pod is not disturbed.
func TestPM26BUG30_MirrorDeleted(t *testing.T) {
	tests := map[string][]string{
		"graceful": {"--wait=false"},
		"forced":   {"--grace-period=0", "--force", "--wait=false"},
	}
	for name, flags := range tests {
		t.Run(name, func(t *testing.T) {
			h := newMirrorHarness(t, name)
			h.writeManifest("web", "nginx:1")
			first := h.awaitMirror("web", "nginx:1")
			uids := watchUIDs(t, h.podName("web"))
			kubectl(t, append([]string{"delete", "pod", h.podName("web")}, flags...)...)
			heraldtest.Eventually(t, func() error {
				if recreated := h.awaitMirror("web", "nginx:1"); recreated.UID == first.UID {
					return errors.New("the mirror was not recreated")
				}
				return nil
			})
			updates := h.staticUpdates()
			h.awaitIdle()
			second := h.awaitMirror("web", "nginx:1")
			requireReplacedOnce(t, uids(second.UID), first, second)
			if want := []string{"ADD " + h.podName("web")}; !slices.Equal(updates, want) {
				t.Fatalf("updates of the static pod: got %v, want %v", updates, want)
			}
		})
	}
}

func TestMirror_ManifestChanged(t *testing.T) {
	h := newMirrorHarness(t, "edited")
	h.writeManifest("web", "nginx:1")
	first := h.awaitMirror("web", "nginx:1")
	uids := watchUIDs(t, "web-edited")
	h.writeManifest("web", "nginx:2")
	h.awaitMirror("web", "nginx:2")
	h.awaitIdle()
	second := h.awaitMirror("web", "nginx:2")
	requireReplacedOnce(t, uids(second.UID), first, second)
}

// An outage of the API server does not disturb static pods; the mirrors follow after it.
func TestBUG11_APIServerDown(t *testing.T) {
	h := newMirrorHarness(t, "outage")
	for _, name := range []string{"unchanged", "removed", "changed"} {
		h.writeManifest(name, "nginx:1")
		h.awaitMirror(name, "nginx:1")
	}
	if err := cluster.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	h.removeManifest("removed")
	h.writeManifest("changed", "nginx:2")
	h.writeManifest("added", "nginx:1")
	heraldtest.Eventually(t, func() error {
		_, hasRemoved := h.pods.GetPodByName("default", "removed-outage")
		_, hasAdded := h.pods.GetPodByName("default", "added-outage")
		changed, _ := h.pods.GetPodByName("default", "changed-outage")
		if hasRemoved || !hasAdded || changed == nil || changed.Spec.Containers[0].Image != "nginx:2" {
			return errors.New("the Pod Manager does not follow the manifests while the API server is down")
		}
		return nil
	})
	if err := cluster.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.awaitMirror("unchanged", "nginx:1")
	h.awaitMirror("changed", "nginx:2")
	h.awaitMirror("added", "nginx:1")
	heraldtest.Eventually(t, func() error {
		list, err := admin(t).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=outage"})
		if err != nil {
			return err
		}
		var names []string
		for _, p := range list.Items {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		if diff := cmp.Diff([]string{"added-outage", "changed-outage", "unchanged-outage"}, names); diff != "" {
			return fmt.Errorf("pods of the node (-want +got):\n%s", diff)
		}
		return nil
	})
	updates := h.staticUpdates()
	if slices.Contains(updates, "REMOVE unchanged-outage") || slices.Contains(updates, "UPDATE unchanged-outage") {
		t.Fatalf("updates of static pods: got %v, want none of the unchanged one", updates)
	}
}

// A foreign pod with the mirror's name is not touched, and the conflict is reported.
func TestBUG15_ForeignPodWithMirrorName(t *testing.T) {
	h := newMirrorHarness(t, "taken")
	foreign, err := admin(t).CoreV1().Pods("default").Create(t.Context(), newPod("web-taken", ""), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h.writeManifest("web", "nginx:1")
	heraldtest.Eventually(t, func() error {
		conflicts := h.mirrors.Conflicts()
		if len(conflicts) != 1 || conflicts[0].Name != (podid.FullName{Namespace: "default", Name: "web-taken"}) {
			return fmt.Errorf("got conflicts %v, want web-taken", conflicts)
		}
		return nil
	})
	got, err := admin(t).CoreV1().Pods("default").Get(t.Context(), "web-taken", metav1.GetOptions{})
	if err != nil || got.UID != foreign.UID || got.DeletionTimestamp != nil {
		t.Fatalf("foreign pod: got %v, %v; want it unchanged", got, err)
	}
	kubectl(t, "delete", "pod", "web-taken", "--grace-period=0", "--force")
	h.awaitMirror("web", "nginx:1")
	heraldtest.Eventually(t, func() error {
		if conflicts := h.mirrors.Conflicts(); len(conflicts) != 0 {
			return fmt.Errorf("got conflicts %v, want none", conflicts)
		}
		return nil
	})
}
