package mirror_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/pod/mirror"
	"github.com/heraldnode/herald/podid"
)

func TestConfig_InvalidField(t *testing.T) {
	valid := mirror.Config{
		NodeName: nodeName, Pods: pod.NewManager(),
		Terminating:        func(podid.FullName) bool { return false },
		StaticSourcesReady: func() bool { return true },
	}
	tests := map[string]func(*mirror.Config){
		"NodeName":           func(c *mirror.Config) { c.NodeName = "" },
		"Pods":               func(c *mirror.Config) { c.Pods = nil },
		"Terminating":        func(c *mirror.Config) { c.Terminating = nil },
		"StaticSourcesReady": func(c *mirror.Config) { c.StaticSourcesReady = nil },
		"Workers":            func(c *mirror.Config) { c.Workers = -1 },
		"Resync":             func(c *mirror.Config) { c.Resync = -1 },
		"ConfirmAfter":       func(c *mirror.Config) { c.ConfirmAfter = -1 },
	}
	for field, invalidate := range tests {
		t.Run(field, func(t *testing.T) {
			config := valid
			invalidate(&config)
			if _, err := mirror.New(config); err == nil || !strings.Contains(err.Error(), "mirror.Config: "+field) {
				t.Errorf("got %v, want an error about %s", err, field)
			}
		})
	}
}

func TestPM17_NoAPIServer(t *testing.T) {
	pods := pod.NewManager()
	pods.AddPod(newStaticPod("web", "s1"))
	reconciler, err := mirror.New(mirror.Config{
		NodeName: nodeName, Pods: pods,
		Terminating:        func(podid.FullName) bool { return false },
		StaticSourcesReady: func() bool { return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	reconciler.Enqueue(fullName("web"))
	if err := reconciler.Run(t.Context()); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRun_AlreadyRunning(t *testing.T) {
	run(t, func(h *harness) {
		if err := h.reconciler.Run(h.Context()); err == nil {
			h.Error("got nil, want an error from a second Run")
		}
	})
}

func TestPM18_MirrorPodContent(t *testing.T) {
	run(t, func(h *harness) {
		static := newStaticPod("web", "s1")
		static.Labels = map[string]string{"app": "web"}
		static.Finalizers = []string{"example.com/hold"}
		static.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "x", UID: "x"}}
		static.Status.Phase = v1.PodRunning
		static.Spec.Containers = []v1.Container{{Name: "c", Image: "i"}}
		before := static.DeepCopy()
		h.pods.AddPod(static)
		h.reconciler.Enqueue(fullName("web"))
		advance(time.Second)

		isController := true
		want := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "web", Namespace: metav1.NamespaceDefault, UID: "server-1",
				Labels: map[string]string{"app": "web"},
				Annotations: map[string]string{
					podid.SourceAnnotation: "file", podid.HashAnnotation: "s1", podid.MirrorAnnotation: "s1",
				},
				OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: "node-uid", Controller: &isController},
				},
			},
			Spec: before.Spec,
		}
		if diff := cmp.Diff(want, h.pod(fullName("web"))); diff != "" {
			h.Errorf("mirror pod (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(before, static); diff != "" {
			h.Errorf("static pod was modified (-want +got):\n%s", diff)
		}
		h.wantMirror("web")
		h.wantRequests(map[string]int{"get_node": 1, "create": 1})
	})
}

func TestPM19_RestartFindsMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.watchBroken = true // before the first list
		h.userCreates(newMirrorPod("web", "", "s1"))
		h.pods.AddPod(newStaticPod("web", "s1"))
		defer h.start()()
		advance(time.Second)
		h.wantRequests(map[string]int{"get_node": 1, "create": 1, "get": 1})
		if len(h.events) != 0 || len(h.reconciler.Conflicts()) != 0 {
			h.Errorf("BUG-15: got conflicts %v and events %q with its own mirror pod, want none", h.reconciler.Conflicts(), h.events)
		}
		h.deliver(change{after: h.pod(fullName("web"))})
		advance(time.Hour)
		h.wantNoRequests()
		h.wantMirror("web")
	})
}

func TestPM19_RestartReplacesOutdatedMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.watchLag = 5 * time.Second
		h.userCreates(newMirrorPod("web", "", "s0"))
		h.pods.AddPod(newStaticPod("web", "s1"))
		defer h.start()()
		advance(time.Second)
		h.wantRequests(map[string]int{"get_node": 1, "create": 2, "get": 1, "delete": 1})
		advance(time.Hour)
		h.wantNoRequests()
		h.wantMirror("web")
	})
}

func TestPM20_AlreadyDeleted(t *testing.T) {
	tests := map[string]func(*harness){
		"not found": func(h *harness) { h.userDeletes(fullName("web"), 0) },
		"another UID": func(h *harness) {
			h.userDeletes(fullName("web"), 0)
			h.userCreates(newMirrorPod("web", "", "s1"))
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.sourcesReady = false // otherwise the mirror pod would be deleted as an orphan
				h.userCreates(newMirrorPod("web", "", "s0"))
				advance(0)
				h.watchLag = 20 * time.Second
				change(h)
				h.takeRequests()
				h.addStaticPod("web", "s1") // the watch still shows the old mirror pod
				advance(time.Hour)
				if requests := h.takeRequests(); requests["delete"] != 1 {
					h.Errorf("got requests %v, want one delete", requests)
				}
				h.wantMirror("web")
			})
		})
	}
}

func TestPM22_ManifestChanged(t *testing.T) {
	run(t, func(h *harness) {
		h.addStaticPod("web", "s1")
		advance(time.Second)
		before := h.wantMirror("web")
		h.takeRequests()
		h.replaceStaticPod("web", "s2")
		advance(time.Second)
		if after := h.wantMirror("web"); after.UID == before.UID {
			h.Errorf("got UID %s again, want a new one", after.UID)
		}
		h.wantRequests(map[string]int{"delete": 1, "create": 1})
	})
}

func TestPM27BUG30_DeletedMirrorIsRecreatedOnce(t *testing.T) {
	for _, lag := range []time.Duration{0, time.Second, 30 * time.Second} {
		for kind, grace := range map[string]int64{"forced": 0, "graceful": 30} {
			t.Run(fmt.Sprint(kind, ", watch lag ", lag), func(t *testing.T) {
				run(t, func(h *harness) {
					h.addStaticPod("web", "s1")
					advance(time.Second)
					h.takeRequests()
					h.watchLag = lag
					h.userDeletes(fullName("web"), grace)
					advance(lag + time.Second)
					requests := h.takeRequests()
					if requests["create"] != 1 || requests["delete"] > 1 {
						h.Errorf("got requests %v, want one create and at most one delete", requests)
					}
					advance(lag + time.Second)
					h.wantMirror("web")
					h.takeRequests()
					advance(time.Hour)
					h.wantNoRequests()
				})
			})
		}
	}
}

func TestPM23_NodeNotReady(t *testing.T) {
	leaving := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid", DeletionTimestamp: &metav1.Time{}}}
	tests := map[string]*v1.Node{
		"not registered": nil,
		"without UID":    {ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
		"being deleted":  leaving,
	}
	for name, node := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.update(func(c *fakeCluster) { c.node = node })
				h.addStaticPod("web", "s1")
				h.addStaticPod("db", "s2")
				h.userCreates(newMirrorPod("db", "", "s0"))
				advance(time.Hour)
				requests := h.takeRequests()
				if requests["create"] != 0 || requests["delete"] != 0 {
					h.Errorf("got requests %v, want no create, and no delete while the replacement cannot be created", requests)
				}
				h.update(func(c *fakeCluster) { c.node = newFakeCluster().node })
				advance(10 * time.Second)
				h.wantMirror("web")
				h.wantMirror("db")
			})
		})
	}
}

func TestPM24_NodeRegistersLate(t *testing.T) {
	run(t, func(h *harness) {
		h.update(func(c *fakeCluster) { c.node = nil })
		for i := range 100 {
			h.addStaticPod(fmt.Sprint("web-", i), types.UID(fmt.Sprint("s", i)))
		}
		advance(2 * time.Minute)
		if requests := h.takeRequests(); requests["get_node"] > 40 || len(requests) != 1 {
			h.Errorf("got requests %v without a node, want at most 40 get_node", requests)
		}
		h.update(func(c *fakeCluster) { c.node = newFakeCluster().node })
		advance(10 * time.Second)
		for i := range 100 {
			h.wantMirror(fmt.Sprint("web-", i))
		}
		h.wantRequests(map[string]int{"get_node": 1, "create": 100})
	})
}

func TestPM25_MirrorKeptWhileTerminating(t *testing.T) {
	tests := map[string]struct {
		change func(*harness)
		check  func(*harness)
	}{
		"removed manifest": {
			func(h *harness) { h.removeStaticPod("web") },
			func(h *harness) { h.wantNoMirror("web") },
		},
		"changed manifest": {
			func(h *harness) { h.replaceStaticPod("web", "s2") },
			func(h *harness) { h.wantMirror("web") },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.addStaticPod("web", "s1")
				advance(time.Second)
				before := h.wantMirror("web")
				h.takeRequests()
				h.setTerminating("web", true)
				test.change(h)
				advance(time.Minute)
				if h.pod(fullName("web")) != before {
					h.Error("mirror pod was changed while its pod was terminating")
				}
				h.wantNoRequests()
				h.setTerminating("web", false)
				advance(2 * time.Second)
				test.check(h)
			})
		})
	}
}

func TestPM25PW47_OrphanKeptUntilSourcesReady(t *testing.T) {
	run(t, func(h *harness) {
		h.sourcesReady = false
		h.userCreates(newMirrorPod("early", "", "s1"))
		h.userCreates(newMirrorPod("stale", "", "s0"))
		advance(time.Hour)
		h.wantNoRequests()
		h.addStaticPod("early", "s1") // the late source delivers
		h.setSourcesReady(true)
		advance(10 * time.Second)
		h.wantRequests(map[string]int{"delete": 1})
		h.wantMirror("early")
		h.wantNoMirror("stale")
	})
}

func TestPM28BUG13_FinishedStaticPod(t *testing.T) {
	for _, phase := range []v1.PodPhase{v1.PodSucceeded, v1.PodFailed} { // PM-29: evicted and rejected pods too
		t.Run(string(phase), func(t *testing.T) {
			run(t, func(h *harness) {
				static := h.addStaticPod("web", "s1").DeepCopy()
				advance(time.Second)
				static.Status.Phase = phase
				h.pods.UpdatePod(static)
				h.takeRequests()
				h.userDeletes(fullName("web"), 30)
				advance(time.Second)
				h.wantMirror("web")
				h.wantRequests(map[string]int{"delete": 1, "create": 1})
			})
		})
	}
}

func TestPM30_EditedMirrorIsKept(t *testing.T) {
	run(t, func(h *harness) {
		h.addStaticPod("web", "s1")
		advance(time.Second)
		h.takeRequests()
		h.userEdits(fullName("web"), func(mirror *v1.Pod) {
			mirror.Labels = map[string]string{"edited": "yes"}
			mirror.Spec.Containers = []v1.Container{{Name: "c", Image: "other"}}
		})
		advance(time.Hour)
		h.wantNoRequests()
	})
}

func TestReconciler_Resync(t *testing.T) {
	run(t, func(h *harness) {
		h.pods.AddPod(newStaticPod("web", "s1"))
		advance(10 * time.Second)
		h.wantMirror("web")
	})
}

func TestRun_AgainKeepsRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.watchBroken = true
		stop := h.start()
		h.addStaticPod("web", "s1")
		advance(time.Second)
		stop()
		h.removeStaticPod("web")
		defer h.start()()
		advance(time.Second)
		h.wantNoMirror("web")
	})
}

func TestReconciler_RemovedBeforeWatchShowsMirror(t *testing.T) {
	run(t, func(h *harness) {
		h.watchLag = 30 * time.Second
		h.addStaticPod("web", "s1")
		advance(time.Second)
		h.removeStaticPod("web")
		advance(time.Second)
		h.wantNoMirror("web")
		h.takeRequests()
		advance(time.Hour)
		if requests := h.takeRequests(); requests["create"] != 0 {
			h.Errorf("got requests %v, want no create", requests)
		}
	})
}
