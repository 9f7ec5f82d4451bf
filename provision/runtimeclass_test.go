package provision_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/provision"
)

func (h *harness) putRuntimeClass(name, handler string) {
	h.server.Put(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler})
}

func (h *harness) wantHandler(pod *v1.Pod, want string) {
	h.t.Helper()
	if got, err := h.RuntimeHandler(h.t.Context(), pod); err != nil || got != want {
		h.t.Errorf("got handler %q, %v, want %q", got, err, want)
	}
}

func ofClass(name string) *v1.Pod {
	pod := newPod("web")
	pod.Spec.RuntimeClassName = &name
	return pod
}

func TestRuntimeHandler_Cached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, withWatcher)
		h.putRuntimeClass("fast", "kata")
		pod := ofClass("fast")
		for range 3 {
			h.wantHandler(pod, "kata")
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		h.wantReads("one class", 2, 1)
		h.putRuntimeClass("fast", "gvisor") // replaced: the watch delivers it
		synctest.Wait()
		h.wantHandler(pod, "gvisor")
		h.wantReads("after the change", 0, 0)
		h.server.SetDown(true)
		time.Sleep(time.Hour)
		h.wantHandler(pod, "gvisor")
	})
}

// A pod whose class is created after it starts with the next attempt.
func TestRuntimeHandler_Missing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, withWatcher)
		pod := ofClass("fast")
		_, err := h.RuntimeHandler(t.Context(), pod)
		if !apierrors.IsNotFound(err) || err.Error() != `runtimeclass.node.k8s.io "fast" not found` {
			t.Errorf("got error %v, want the kubelet's", err)
		}
		h.putRuntimeClass("fast", "kata")
		time.Sleep(time.Second)
		h.wantHandler(pod, "kata")
	})
}

func TestRuntimeHandler_NoAPIServer(t *testing.T) {
	h := newHarness(t, func(config *provision.Config) { config.API = nil })
	if _, err := h.RuntimeHandler(t.Context(), ofClass("fast")); err == nil {
		t.Error("got no error")
	}
}
