package pod_test

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
)

// newDenseManager returns a Manager with API pods, and with static pods that have mirror pods.
func newDenseManager(api, static int) *pod.Manager {
	pods := make([]*v1.Pod, 0, api+2*static)
	for i := range api {
		pods = append(pods, newAPIPod(fmt.Sprint("api-", i), types.UID(fmt.Sprint("a", i))))
	}
	for i := range static {
		name, uid := fmt.Sprint("static-", i), types.UID(fmt.Sprint("s", i))
		pods = append(pods, newStaticPod(name, uid), newMirrorPod(name, types.UID(fmt.Sprint("m", i)), string(uid)))
	}
	manager := pod.NewManager()
	manager.SetPods(pods)
	return manager
}

// lookups returns a call of each reader that is used on hot paths.
func lookups(manager *pod.Manager) map[string]func() {
	static, _ := manager.GetPodByUID("s7")
	mirror, _ := manager.GetMirrorPodByPod(static)
	name := podid.FullNameOf(static)
	return map[string]func(){
		"GetPodByUID":              func() { manager.GetPodByUID("s7") },
		"GetPodByFullName":         func() { manager.GetPodByFullName(name) },
		"GetPodByName":             func() { manager.GetPodByName(name.Namespace, name.Name) },
		"GetMirrorPodByPod":        func() { manager.GetMirrorPodByPod(static) },
		"GetPodByMirrorPod":        func() { manager.GetPodByMirrorPod(mirror) },
		"GetPodAndMirrorPod":       func() { manager.GetPodAndMirrorPod(mirror) },
		"GetStaticPodAndMirrorPod": func() { manager.GetStaticPodAndMirrorPod(name) },
		"TranslatePodUID":          func() { manager.TranslatePodUID("m7") },
		"GetUIDTranslations":       func() { manager.GetUIDTranslations() },
	}
}

func TestLookups_DoNotAllocate(t *testing.T) {
	for name, lookup := range lookups(newDenseManager(100, 10)) {
		if n := testing.AllocsPerRun(100, lookup); n != 0 {
			t.Errorf("%s: got %v allocations, want 0", name, n)
		}
	}
}

func TestUpdatePod_DoesNotAllocate(t *testing.T) {
	manager := newDenseManager(100, 100)
	apiPod, _ := manager.GetPodByUID("a7")
	static, _ := manager.GetPodByUID("s7")
	mirror, _ := manager.GetMirrorPodByPod(static)
	for name, pod := range map[string]*v1.Pod{"ordinary": apiPod, "static pod": static, "mirror pod": mirror} {
		if n := testing.AllocsPerRun(100, func() { manager.UpdatePod(pod) }); n != 0 {
			t.Errorf("%s: got %v allocations, want 0", name, n)
		}
	}
}

func TestGetUIDTranslations_Immutable(t *testing.T) {
	manager := newDenseManager(0, 10)
	podToMirror, mirrorToPod := manager.GetUIDTranslations()
	wantPodToMirror, wantMirrorToPod := maps.Clone(podToMirror), maps.Clone(mirrorToPod)
	manager.RemovePod(newStaticPod("static-3", "s3"))
	manager.AddPod(newMirrorPod("static-4", "m-new", "s4"))
	manager.SetPods(nil)
	if !maps.Equal(podToMirror, wantPodToMirror) || !maps.Equal(mirrorToPod, wantMirrorToPod) {
		t.Error("returned maps were modified")
	}
}

func TestManager_ConcurrentUse(t *testing.T) {
	manager := newDenseManager(50, 10)
	var running sync.WaitGroup
	for writer := range 4 {
		running.Go(func() {
			for i := range 200 {
				n := (i*7 + writer) % 10
				name, uid := fmt.Sprint("static-", n), types.UID(fmt.Sprint("s", n))
				manager.UpdatePod(newStaticPod(name, uid))
				manager.AddPod(newMirrorPod(name, types.UID(fmt.Sprint("m", n, "-", writer)), string(uid)))
				manager.RemovePod(newMirrorPod(name, types.UID(fmt.Sprint("m", n, "-", writer)), string(uid)))
				manager.UpdatePod(newAPIPod("api-1", "a1"))
			}
		})
	}
	for range 4 {
		running.Go(func() {
			for _, lookup := range lookups(manager) {
				for range 50 {
					lookup()
				}
			}
			for range 50 {
				pods, _, orphans := manager.GetPodsAndMirrorPods()
				if len(pods) != 60 || len(orphans) != 0 {
					t.Errorf("got %d pods and orphans %v, want 60 and none", len(pods), orphans)
				}
				for static := range manager.GetStaticPodToMirrorPodMap() {
					if !podid.IsStatic(static) {
						t.Errorf("got %s, want static pods only", static.Name)
					}
				}
				podToMirror, mirrorToPod := manager.GetUIDTranslations()
				for mirror, uid := range mirrorToPod {
					if _, known := podToMirror[uid]; !known {
						t.Errorf("got translation of %s to %s, want a static pod", mirror, uid)
					}
				}
			}
		})
	}
	running.Wait()
}

func BenchmarkLookups(b *testing.B) {
	for name, lookup := range lookups(newDenseManager(5000, 100)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				lookup()
			}
		})
	}
}

func BenchmarkLookupsParallel(b *testing.B) {
	for name, lookup := range lookups(newDenseManager(5000, 100)) {
		b.Run(name, func(b *testing.B) {
			b.RunParallel(func(b *testing.PB) {
				for b.Next() {
					lookup()
				}
			})
		})
	}
}

func BenchmarkUpdatePod(b *testing.B) {
	manager := newDenseManager(5000, 100)
	pod, _ := manager.GetPodByUID("a7")
	b.ReportAllocs()
	for b.Loop() {
		manager.UpdatePod(pod)
	}
}

func BenchmarkAddPod1000StaticPods(b *testing.B) {
	pods, mirrors, _ := newDenseManager(0, 1000).GetPodsAndMirrorPods()
	for b.Loop() {
		manager := pod.NewManager()
		for _, pod := range pods {
			manager.AddPod(pod)
		}
		for _, mirror := range mirrors {
			manager.AddPod(mirror)
		}
	}
}

func BenchmarkSetPods(b *testing.B) {
	pods, mirrors, _ := newDenseManager(5000, 100).GetPodsAndMirrorPods()
	all := append(pods, mirrors...)
	manager := pod.NewManager()
	for b.Loop() {
		manager.SetPods(all)
	}
}
