package provision_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/provision"
)

// podWithEnvironment returns a pod whose environment has services, a ConfigMap and a Secret.
func podWithEnvironment(uid types.UID) *v1.Pod {
	pod := podWithoutLinks(v1.Container{
		EnvFrom: []v1.EnvFromSource{allOfConfigMap("", "web", false), allOfSecret("web", false)},
		Env: []v1.EnvVar{{Name: "COLOUR", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
			LocalObjectReference: v1.LocalObjectReference{Name: "web"}, Key: "colour",
		}}}},
	})
	pod.UID, pod.Spec.EnableServiceLinks = uid, nil
	return pod
}

// Pods that start at once share the requests for their environment, which are answered while their sandboxes start.
func TestPrepareEnvironment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *provision.Config) { c.API = slowAPI{c.API} })
		h.putService("default", "kubernetes", "10.0.0.1")
		h.putConfigMap("web", "colour", "red")
		h.putSecret("web", "size", "small")
		var pods []*v1.Pod
		for _, uid := range []types.UID{"a", "b", "c"} {
			pods = append(pods, podWithEnvironment(uid))
		}
		before := len(h.server.Requests("list"))
		for _, pod := range pods {
			h.PrepareEnvironment(pod)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
		started := time.Now()
		for _, pod := range pods {
			if got, err := h.environment(pod); err != nil || len(got) < 4 {
				t.Errorf("pod %s: got %v, error %v", pod.UID, got, err)
			}
		}
		if waited := time.Since(started); waited > 0 {
			t.Errorf("got environments after %v, want them at once", waited)
		}
		if lists := len(h.server.Requests("list")) - before; lists != 2 {
			t.Errorf("got %d lists of services, want one for each of the two namespaces", lists)
		}
		h.wantReads("three pods", 2, 0)
	})
}

// A pod that is removed meanwhile causes no request, and leaves nothing in the cache.
func TestPrepareEnvironment_Removed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		pod := podWithEnvironment("a")
		h.PrepareEnvironment(pod)
		h.unmount(pod)
		time.Sleep(time.Second)
		h.wantReads("removed pod", 0, 0)
	})
}

// Objects that cannot be read are reported by Environment.
func TestPrepareEnvironment_Missing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		pod := podWithEnvironment("a")
		h.PrepareEnvironment(pod)
		time.Sleep(100 * time.Millisecond)
		if got, err := h.environment(pod); err == nil {
			t.Errorf("got %v, want an error for the missing ConfigMap", got)
		}
		h.putConfigMap("web", "colour", "red")
		h.putSecret("web", "size", "small")
		time.Sleep(2 * time.Second)
		if _, err := h.environment(pod); err != nil {
			t.Error(err)
		}
	})
}
