package pod_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
)

func TestTheConfigErrorNamesTheField(t *testing.T) {
	good := pod.MirrorConfig{
		NodeName: nodeName, Pods: pod.NewManager(),
		Terminating:        func(podid.FullName) bool { return false },
		StaticSourcesReady: func() bool { return true },
	}
	tests := map[string]func(*pod.MirrorConfig){
		"NodeName":           func(c *pod.MirrorConfig) { c.NodeName = "" },
		"Pods":               func(c *pod.MirrorConfig) { c.Pods = nil },
		"Terminating":        func(c *pod.MirrorConfig) { c.Terminating = nil },
		"StaticSourcesReady": func(c *pod.MirrorConfig) { c.StaticSourcesReady = nil },
		"Workers":            func(c *pod.MirrorConfig) { c.Workers = -1 },
	}
	for field, spoil := range tests {
		t.Run(field, func(t *testing.T) {
			config := good
			spoil(&config)
			if _, err := pod.NewMirrors(config); err == nil || !strings.Contains(err.Error(), "MirrorConfig."+field) {
				t.Errorf("NewMirrors: %v", err)
			}
		})
	}
}

func TestPM17WithoutAnAPIServerThereIsNothingToKeep(t *testing.T) {
	mirrors, err := pod.NewMirrors(pod.MirrorConfig{
		NodeName: nodeName, Pods: holding(staticPod("web", "s1")),
		Terminating:        func(podid.FullName) bool { return false },
		StaticSourcesReady: func() bool { return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	mirrors.Wake(fullName("web"))
	if err := mirrors.Run(t.Context()); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRunBesideRunIsAnError(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := w.mirrors.Run(w.Context()); err == nil {
			w.Error("a second Run began")
		}
	})
}

func TestPM18AMirrorIsACopyThatTheNodeOwns(t *testing.T) {
	inWorld(t, func(w *world) {
		static := staticPod("web", "s1")
		static.Labels = map[string]string{"app": "web"}
		static.Finalizers = []string{"example.com/hold"}
		static.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "x", UID: "x"}}
		static.Status.Phase = v1.PodRunning
		static.Spec.Containers = []v1.Container{{Name: "c", Image: "i"}}
		before := static.DeepCopy()
		w.pods.AddPod(static)
		w.mirrors.Wake(fullName("web"))
		pass(time.Second)

		isController := true
		want := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "web", Namespace: "shop", UID: "server-1",
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
		if diff := cmp.Diff(want, w.pod(fullName("web"))); diff != "" {
			w.Errorf("the mirror (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(before, static); diff != "" {
			w.Errorf("the static pod was changed:\n%s", diff)
		}
		w.wantMirror("web")
		w.wantSent(map[string]int{"get_node": 1, "create": 1})
	})
}

func TestPM19AnAgentThatStartsAnewRecognisesItsMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deaf = true // the first list of the watch is not in yet
		w.kubectlCreate(mirrorPod("web", "", "s1"))
		w.pods.AddPod(staticPod("web", "s1"))
		defer w.start()()
		pass(time.Second)
		w.wantSent(map[string]int{"get_node": 1, "create": 1, "get": 1})
		if len(w.events) != 0 || len(w.mirrors.Conflicts()) != 0 {
			w.Errorf("a conflict with its own mirror: %v (BUG-15)", w.events)
		}
		w.deliver(change{after: w.pod(fullName("web"))})
		pass(time.Hour)
		w.wantNothingSent()
		w.wantMirror("web")
	})
}

func TestPM19AMirrorOfAnEarlierManifestThatTheWatchHasNotShownIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lag = 5 * time.Second
		w.kubectlCreate(mirrorPod("web", "", "s0"))
		w.pods.AddPod(staticPod("web", "s1"))
		defer w.start()()
		pass(time.Second)
		w.wantSent(map[string]int{"get_node": 1, "create": 2, "get": 1, "delete": 1})
		pass(time.Hour)
		w.wantNothingSent()
		w.wantMirror("web")
	})
}

func TestPM20AMirrorThatIsGoneOrReplacedAlreadyCountsAsDeleted(t *testing.T) {
	tests := map[string]func(*world){
		"not found": func(w *world) { w.kubectlDelete(fullName("web"), 0) },
		"another UID": func(w *world) {
			w.kubectlDelete(fullName("web"), 0)
			w.kubectlCreate(mirrorPod("web", "", "s1"))
		},
	}
	for name, behindOurBack := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.sourcesReady = false // so that the mirror is not taken for an orphan
				w.kubectlCreate(mirrorPod("web", "", "s0"))
				pass(0)
				w.lag = 20 * time.Second
				behindOurBack(w)
				w.sent()
				w.addStatic("web", "s1") // the watch still shows the old mirror
				pass(time.Hour)
				if sent := w.sent(); sent["delete"] != 1 {
					w.Errorf("requests: %v", sent)
				}
				w.wantMirror("web")
			})
		})
	}
}

func TestPM22AChangedManifestReplacesTheMirrorOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addStatic("web", "s1")
		pass(time.Second)
		before := w.wantMirror("web")
		w.sent()
		w.editStatic("web", "s2")
		pass(time.Second)
		if after := w.wantMirror("web"); after.UID == before.UID {
			w.Error("the mirror has the old UID")
		}
		w.wantSent(map[string]int{"delete": 1, "create": 1})
	})
}

func TestPM27AndBUG30ADeletedMirrorComesBackAtOnceAndOnlyOnce(t *testing.T) {
	for _, lag := range []time.Duration{0, time.Second, 30 * time.Second} {
		for kind, grace := range map[string]int64{"forced": 0, "graceful": 30} {
			t.Run(fmt.Sprint(kind, " with a watch that lags ", lag), func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.addStatic("web", "s1")
					pass(time.Second)
					w.sent()
					w.lag = lag
					w.kubectlDelete(fullName("web"), grace)
					pass(lag + time.Second)
					sent := w.sent()
					if sent["create"] != 1 || sent["delete"] > 1 {
						w.Errorf("requests: %v", sent)
					}
					pass(lag + time.Second)
					w.wantMirror("web")
					w.sent()
					pass(time.Hour)
					w.wantNothingSent()
				})
			})
		}
	}
}

func TestPM23NoMirrorIsMadeForANodeThatIsNotThereOrLeaves(t *testing.T) {
	leaving := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid", DeletionTimestamp: &metav1.Time{}}}
	tests := map[string]*v1.Node{
		"not registered": nil,
		"without UID":    {ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
		"being deleted":  leaving,
	}
	for name, node := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.set(func(c *cluster) { c.node = node })
				w.addStatic("web", "s1")
				w.addStatic("db", "s2")
				w.kubectlCreate(mirrorPod("db", "", "s0"))
				pass(time.Hour)
				sent := w.sent()
				if sent["create"] != 0 || sent["delete"] != 0 {
					w.Errorf("requests: %v; an outdated mirror must not go when no new one can come", sent)
				}
				w.set(func(c *cluster) { c.node = newCluster().node })
				pass(10 * time.Second)
				w.wantMirror("web")
				w.wantMirror("db")
			})
		})
	}
}

func TestPM24AllStaticPodsHaveMirrorsSoonAfterTheNodeRegisters(t *testing.T) {
	inWorld(t, func(w *world) {
		w.set(func(c *cluster) { c.node = nil })
		for i := range 100 {
			w.addStatic(fmt.Sprint("web-", i), podUID(fmt.Sprint("s", i)))
		}
		pass(2 * time.Minute)
		if sent := w.sent(); sent["get_node"] > 40 || len(sent) != 1 {
			w.Errorf("requests while the node was missing: %v", sent)
		}
		w.set(func(c *cluster) { c.node = newCluster().node })
		pass(10 * time.Second)
		for i := range 100 {
			w.wantMirror(fmt.Sprint("web-", i))
		}
		w.wantSent(map[string]int{"get_node": 1, "create": 100})
	})
}

func TestPM25AMirrorOutlivesItsPodsShutdown(t *testing.T) {
	tests := map[string]struct {
		change  func(*world)
		settled func(*world)
	}{
		"removed manifest": {
			func(w *world) { w.removeStatic("web") },
			func(w *world) {
				if mirror := w.pod(fullName("web")); mirror != nil {
					w.Errorf("the orphan stays: %v", mirror.UID)
				}
			},
		},
		"changed manifest": {
			func(w *world) { w.editStatic("web", "s2") },
			func(w *world) { w.wantMirror("web") },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.addStatic("web", "s1")
				pass(time.Second)
				before := w.wantMirror("web")
				w.sent()
				w.terminating[fullName("web")] = true
				test.change(w)
				pass(time.Minute)
				if w.pod(fullName("web")) != before {
					w.Error("the mirror did not outlive the shutdown")
				}
				w.wantNothingSent()
				with(w, func() any { delete(w.terminating, fullName("web")); return nil })
				pass(2 * time.Second)
				test.settled(w)
			})
		})
	}
}

func TestPM25AndPW47NoOrphanIsDeletedBeforeAllStaticSourcesWereHeard(t *testing.T) {
	inWorld(t, func(w *world) {
		w.sourcesReady = false
		w.kubectlCreate(mirrorPod("early", "", "s1"))
		w.kubectlCreate(mirrorPod("stale", "", "s0"))
		pass(time.Hour)
		w.wantNothingSent()
		w.addStatic("early", "s1") // the slow source delivers
		with(w, func() any { w.sourcesReady = true; return nil })
		pass(10 * time.Second)
		w.wantSent(map[string]int{"delete": 1})
		w.wantMirror("early")
		if w.pod(fullName("stale")) != nil {
			w.Error("the orphan stays")
		}
	})
}

func TestPM28AndBUG13TheMirrorOfAFinishedStaticPodComesBack(t *testing.T) {
	for _, phase := range []v1.PodPhase{v1.PodSucceeded, v1.PodFailed} { // PM-29: also of one that was evicted or rejected
		t.Run(string(phase), func(t *testing.T) {
			inWorld(t, func(w *world) {
				static := w.addStatic("web", "s1").DeepCopy()
				pass(time.Second)
				static.Status.Phase = phase
				w.pods.UpdatePod(static)
				w.kubectlDelete(fullName("web"), 30)
				w.sent()
				pass(time.Second)
				w.wantMirror("web")
				w.wantSent(map[string]int{"delete": 1, "create": 1})
			})
		})
	}
}

func TestPM30AnEditOfTheMirrorIsNoReasonToReplaceIt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addStatic("web", "s1")
		pass(time.Second)
		w.sent()
		w.kubectlEdit(fullName("web"), func(mirror *v1.Pod) {
			mirror.Labels = map[string]string{"edited": "yes"}
			mirror.Spec.Containers = []v1.Container{{Name: "c", Image: "other"}}
		})
		pass(time.Hour)
		w.wantNothingSent()
	})
}

func TestALostWakeUpIsMadeUpFor(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pods.AddPod(staticPod("web", "s1"))
		pass(10 * time.Second)
		w.wantMirror("web")
	})
}

func TestAMirrorThatOnlyTheLastRunKnowsOfIsNotLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deaf = true
		stop := w.start()
		w.addStatic("web", "s1")
		pass(time.Second)
		stop()
		w.removeStatic("web")
		defer w.start()()
		pass(time.Second)
		if mirror := w.pod(fullName("web")); mirror != nil {
			t.Errorf("left behind: %v", mirror.UID)
		}
	})
}

func TestAStaticPodThatGoesBeforeTheWatchShowsItsMirrorLeavesNone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.lag = 30 * time.Second
		w.addStatic("web", "s1")
		pass(time.Second)
		w.removeStatic("web")
		pass(time.Second)
		if mirror := w.pod(fullName("web")); mirror != nil {
			w.Errorf("left behind: %v", mirror.UID)
		}
		w.sent()
		pass(time.Hour)
		if sent := w.sent(); sent["create"] != 0 {
			w.Errorf("requests: %v", sent)
		}
	})
}
