package diff_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/parity/controlplane"
)

// genuine is a namespace of a real cluster, and a node whose pods are in it.
type genuine struct {
	t    *testing.T
	pods corev1.PodInterface
	node *rest.Config
}

func newGenuine(t *testing.T, cp *controlplane.ControlPlane, name string) genuine {
	t.Helper()
	admin, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	space := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cp.CreateNode(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return genuine{t, admin.CoreV1().Pods(name), cp.NodeConfig(name)}
}

func (g genuine) config() *rest.Config { return rest.CopyConfig(g.node) }

func (g genuine) add(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.Namespace = ""
	created, err := g.pods.Create(g.t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	return created
}

func (g genuine) pod(name string) *v1.Pod {
	p, err := g.pods.Get(g.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			g.t.Error(err)
		}
		return nil
	}
	return p
}

// update writes the pod and then its status, as two controllers would. What the server refuses is refused on both nodes.
func (g genuine) update(name string, edit func(*v1.Pod)) {
	type write = func(context.Context, *v1.Pod, metav1.UpdateOptions) (*v1.Pod, error)
	for _, send := range []write{g.pods.Update, g.pods.UpdateStatus} {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			p := g.pod(name)
			if p == nil {
				return nil
			}
			edit(p)
			_, err := send(g.t.Context(), p, metav1.UpdateOptions{})
			return err
		})
		if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err) {
			g.t.Error(err)
		}
	}
}

func (g genuine) remove(name string, grace int64) {
	err := g.pods.Delete(g.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	if err != nil && !apierrors.IsNotFound(err) {
		g.t.Error(err)
	}
}

// settled waits until the address books of both nodes show what the API server has.
func (w *twins) settled(ctx context.Context) {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		for _, n := range w.nodes {
			if !n.isUpToDate() {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		w.t.Errorf("the watch is behind: %v", err)
	}
}

func (n *twin) isUpToDate() bool {
	list, err := n.cluster.(genuine).pods.List(n.cluster.(genuine).t.Context(), metav1.ListOptions{})
	if err != nil {
		return false
	}
	versions := map[string]bool{}
	pods, mirrors := n.held()
	for _, p := range append(pods, mirrors...) {
		if p.Annotations["kubernetes.io/config.source"] != "file" {
			versions[p.ResourceVersion] = true
		}
	}
	for i := range list.Items {
		if !versions[list.Items[i].ResourceVersion] {
			return false
		}
	}
	return len(list.Items) == len(versions)
}

func TestStatusManagersTellTheSameToARealAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("needs time: it starts a control plane; run it without -short")
	}
	cp := controlplane.ForTest(t)
	t.Run("histories", func(t *testing.T) { // all of them end before the control plane does
		for i := range 16 {
			seed := int(*statusSeed) + i
			t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				t.Parallel()
				history := rapid.SliceOfN(anyHappening, 16, 30).Example(seed)
				kubelet := newKubeletReporter(fmt.Sprintf("kubelet-%d", i), newGenuine(t, cp, fmt.Sprintf("kubelet-%d", i)))
				herald := newHeraldReporter(fmt.Sprintf("herald-%d", i), newGenuine(t, cp, fmt.Sprintf("herald-%d", i)))
				w := &twins{t: t}
				w.pause = func() { w.settled(t.Context()) }
				w.boot(kubelet, herald)
				defer w.stop()
				w.endure(history)
			})
		}
	})
}

// endure leads both through the history, without its pauses, and waits until both tell the same.
func (w *twins) endure(history []happening) {
	for _, name := range []string{webPod, jobPod, staticPod} {
		w.appear(name)
	}
	for _, h := range history {
		happenings[h.What](w, w.newest(h.Name), h)
		w.t.Log(h)
	}
	w.resync()
	var diff string
	err := wait.PollUntilContextTimeout(w.t.Context(), time.Second/4, 2*quiet, true, func(context.Context) (bool, error) {
		diff = w.compare(anyTime)
		return diff == "", nil
	})
	if err != nil {
		w.t.Errorf("in the end the kubelet (-) and Herald (+) differ:\n%s", diff)
	}
	kubelet, herald := w.nodes[0].tally(), w.nodes[1].tally()
	if herald.gets+herald.patches+herald.deletes > kubelet.gets+kubelet.patches+kubelet.deletes {
		w.t.Errorf("the kubelet asked %+v, Herald asked %+v", kubelet, herald)
	}
}
