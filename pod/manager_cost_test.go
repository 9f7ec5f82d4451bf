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

// denseNode holds API pods, and static pods with mirrors.
func denseNode(api, static int) *pod.Manager {
	pods := make([]*v1.Pod, 0, api+2*static)
	for i := range api {
		pods = append(pods, apiPod(fmt.Sprint("api-", i), types.UID(fmt.Sprint("a", i))))
	}
	for i := range static {
		name, uid := fmt.Sprint("static-", i), types.UID(fmt.Sprint("s", i))
		pods = append(pods, staticPod(name, uid), mirrorPod(name, types.UID(fmt.Sprint("m", i)), string(uid)))
	}
	manager := pod.NewManager()
	manager.SetPods(pods)
	return manager
}

// lookups are all readers that a caller may use on a hot path.
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

func TestLookupsAllocateNothing(t *testing.T) {
	for name, lookup := range lookups(denseNode(100, 10)) {
		if n := testing.AllocsPerRun(100, lookup); n != 0 {
			t.Errorf("%s makes %v allocations", name, n)
		}
	}
}

func TestAnUpdateThatChangesNoPairCopiesNothing(t *testing.T) {
	manager := denseNode(100, 100)
	ordinary, _ := manager.GetPodByUID("a7")
	static, _ := manager.GetPodByUID("s7")
	mirror, _ := manager.GetMirrorPodByPod(static)
	for name, pod := range map[string]*v1.Pod{"ordinary": ordinary, "static": static, "mirror": mirror} {
		if n := testing.AllocsPerRun(100, func() { manager.UpdatePod(pod) }); n != 0 {
			t.Errorf("an update of an %s pod makes %v allocations", name, n)
		}
	}
}

func TestAPublishedTranslationNeverChanges(t *testing.T) {
	manager := denseNode(0, 10)
	podToMirror, mirrorToPod := manager.GetUIDTranslations()
	wantPodToMirror, wantMirrorToPod := maps.Clone(podToMirror), maps.Clone(mirrorToPod)
	manager.RemovePod(staticPod("static-3", "s3"))
	manager.AddPod(mirrorPod("static-4", "m-new", "s4"))
	manager.SetPods(nil)
	if !maps.Equal(podToMirror, wantPodToMirror) || !maps.Equal(mirrorToPod, wantMirrorToPod) {
		t.Error("maps that were handed out have changed")
	}
}

func TestReadersAndWritersMayMeetAnywhere(t *testing.T) {
	manager := denseNode(50, 10)
	var everybody sync.WaitGroup
	for writer := range 4 {
		everybody.Go(func() {
			for i := range 200 {
				n := (i*7 + writer) % 10
				name, uid := fmt.Sprint("static-", n), types.UID(fmt.Sprint("s", n))
				manager.UpdatePod(staticPod(name, uid))
				manager.AddPod(mirrorPod(name, types.UID(fmt.Sprint("m", n, "-", writer)), string(uid)))
				manager.RemovePod(mirrorPod(name, types.UID(fmt.Sprint("m", n, "-", writer)), string(uid)))
				manager.UpdatePod(apiPod("api-1", "a1"))
			}
		})
	}
	for range 4 {
		everybody.Go(func() {
			for _, lookup := range lookups(manager) {
				for range 50 {
					lookup()
				}
			}
			for range 50 {
				pods, _, orphans := manager.GetPodsAndMirrorPods()
				if len(pods) != 60 || len(orphans) != 0 {
					t.Errorf("a snapshot shows %d pods and orphans %v", len(pods), orphans)
				}
				for static := range manager.GetStaticPodToMirrorPodMap() {
					if !podid.IsStatic(static) {
						t.Errorf("%s is not static", static.Name)
					}
				}
				podToMirror, mirrorToPod := manager.GetUIDTranslations()
				for mirror, uid := range mirrorToPod {
					if _, known := podToMirror[uid]; !known {
						t.Errorf("mirror %s leads to %s, which is no static pod", mirror, uid)
					}
				}
			}
		})
	}
	everybody.Wait()
}

func BenchmarkLookups(b *testing.B) {
	for name, lookup := range lookups(denseNode(5000, 100)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				lookup()
			}
		})
	}
}

func BenchmarkLookupsFromAllCores(b *testing.B) {
	for name, lookup := range lookups(denseNode(5000, 100)) {
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
	manager := denseNode(5000, 100)
	pod, _ := manager.GetPodByUID("a7")
	b.ReportAllocs()
	for b.Loop() {
		manager.UpdatePod(pod)
	}
}

func BenchmarkAThousandStaticPodsAndMirrorsOneByOne(b *testing.B) {
	pods, mirrors, _ := denseNode(0, 1000).GetPodsAndMirrorPods()
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
	pods, mirrors, _ := denseNode(5000, 100).GetPodsAndMirrorPods()
	all := append(pods, mirrors...)
	manager := pod.NewManager()
	for b.Loop() {
		manager.SetPods(all)
	}
}
