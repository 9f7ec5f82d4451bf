package status_test

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/podid"
)

// copyState copies the checkpoint as a process that is killed now leaves it. The file is replaced atomically.
func copyState(t *testing.T, dir string) string {
	t.Helper()
	copied := t.TempDir()
	content, err := os.ReadFile(filepath.Join(dir, "pod-statuses"))
	if errors.Is(err, fs.ErrNotExist) {
		return copied
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(copied, "pod-statuses"), content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

// TestBUG10_Flush also covers F16.
func TestBUG10_Flush(t *testing.T) {
	patch := fault.On("PATCH", "/pods/")
	tests := map[string]struct {
		rule *fault.Rule
		max  time.Duration
	}{
		"slow":      {patch.Delay(20 * time.Millisecond), 100 * time.Millisecond},
		"retry":     {patch.Times(20).Reply(http.StatusInternalServerError), time.Second},
		"conflict":  {patch.Times(20).Reply(http.StatusConflict), time.Second},
		"throttled": {patch.Times(20).Reply(http.StatusTooManyRequests, fault.RetryAfter(time.Second)), 2 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, h *harness) {
				pods := h.addPods(50)
				for _, pod := range pods {
					h.SetPodStatus(pod, runningStatus())
				}
				synctest.Wait()
				h.faults.Add(test.rule)
				for _, pod := range pods {
					h.SetPodStatus(pod, succeededStatus())
				}
				start := time.Now()
				h.stop()
				if took := time.Since(start); took > test.max {
					t.Fatalf("Run took %v to stop, want at most %v", took, test.max)
				}
				for _, pod := range pods {
					if got := h.server.Pod(podid.FullNameOf(pod)).Status; got.Phase != v1.PodSucceeded {
						t.Fatalf("%s: got phase %s, want Succeeded", pod.Name, got.Phase)
					}
				}
			})
		})
	}
}

func TestBUG10_FlushEndsBackoff(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		heal := h.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusInternalServerError))
		h.SetPodStatus(pod, succeededStatus())
		time.Sleep(time.Minute)
		heal()
		start := time.Now()
		h.stop()
		if got := h.server.Pod(podid.FullNameOf(pod)).Status; got.Phase != v1.PodSucceeded || time.Since(start) != 0 {
			t.Fatalf("got phase %s after %v, want Succeeded, 0", got.Phase, time.Since(start))
		}
	})
}

func TestBUG10_FlushDeletes(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addDeletedPod("web")
		h.faults.Add(fault.On("DELETE", "/pods/").Times(3).Reply(http.StatusInternalServerError))
		h.TerminatePod(pod)
		synctest.Wait()
		h.stop()
		if h.server.Pod(podid.FullNameOf(pod)) != nil {
			t.Fatal("the object was not deleted")
		}
	})
}

func TestBUG10_NothingToFlush(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		h.SetPodStatus(h.addPod("web"), runningStatus())
		static := newStaticPod("etcd-n1") // cannot be sent without a mirror pod
		h.pods.AddPod(static)
		h.SetPodStatus(static, runningStatus())
		gone := h.addPod("gone")
		h.faults.Add(fault.On("PATCH", "/pods/gone/").Reply(http.StatusNotFound))
		h.SetPodStatus(gone, runningStatus())
		rejected := h.addPod("rejected")
		h.faults.Add(fault.On("PATCH", "/pods/rejected/").Reply(http.StatusUnprocessableEntity))
		h.SetPodStatus(rejected, runningStatus())
		withheld := h.addPod("withheld")
		h.deletion.setCouldRun(withheld.UID, true)
		h.SetPodStatus(withheld, succeededStatus())
		synctest.Wait()
		start := time.Now()
		h.stop()
		if took := time.Since(start); took != 0 {
			t.Fatalf("Run took %v to stop, want 0", took)
		}
	})
}

func TestBUG10_FlushWithheldPhase(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("job")
		h.deletion.setCouldRun(pod.UID, true)
		h.SetPodStatus(pod, succeededStatus())
		synctest.Wait()
		h.deletion.setCouldRun(pod.UID, false)
		h.stop()
		if got := h.server.Pod(podid.FullNameOf(pod)).Status; got.Phase != v1.PodSucceeded {
			t.Fatalf("got phase %s, want Succeeded", got.Phase)
		}
	})
}

func TestBUG10_SentAfterRestart(t *testing.T) {
	tests := map[string]func(t *testing.T, h *harness, dir string) string{
		"stopped": func(t *testing.T, h *harness, dir string) string {
			start := time.Now()
			h.stop()
			if took := time.Since(start); took != 5*time.Second {
				t.Fatalf("Run took %v to stop, want 5s", took)
			}
			return copyState(t, dir)
		},
		"killed": func(t *testing.T, h *harness, dir string) string {
			time.Sleep(2 * time.Second)
			defer h.stop()
			return copyState(t, dir)
		},
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			withHarness(t, withState(t, dir), func(t *testing.T, h *harness) {
				web, deleted := h.addPod("web"), h.addDeletedPod("deleted")
				static, mirror := h.addStaticPod("etcd-n1")
				h.SetPodStatus(web, runningStatus())
				synctest.Wait()
				h.server.SetDown(true)
				h.SetPodStatus(web, succeededStatus())
				h.TerminatePod(deleted)
				h.SetPodStatus(static, succeededStatus())
				copied := end(t, h, dir)

				h.server.SetDown(false)
				h = newHarness(t, h.server, withState(t, copied))
				defer h.stop()
				h.pods.AddPod(static) // no worker sets a status
				time.Sleep(time.Minute)
				if got := h.apiStatus(web); got.Phase != v1.PodSucceeded {
					t.Errorf("pod: got phase %s, want Succeeded", got.Phase)
				}
				if got := h.apiStatus(mirror); got.Phase != v1.PodSucceeded {
					t.Errorf("mirror pod: got phase %s, want Succeeded", got.Phase)
				}
				if !h.isDeleted(deleted) {
					t.Error("the terminated pod was not deleted")
				}
			})
		})
	}
}

// TestBUG10_NothingClaimedAfterReboot checks that readiness that an earlier process could not send is sent only after this
// process has observed the pod: the machine may have rebooted meanwhile.
func TestBUG10_NothingClaimedAfterReboot(t *testing.T) {
	dir := t.TempDir()
	withHarness(t, withState(t, dir), func(t *testing.T, h *harness) {
		same, changed := h.addPod("same"), h.addPod("changed")
		h.server.SetDown(true)
		for _, pod := range []*v1.Pod{same, changed} {
			h.SetPodStatus(pod, runningStatus())
		}
		h.stop()
		h.server.SetDown(false)
		h = newHarness(t, h.server, withState(t, copyState(t, dir)))
		time.Sleep(time.Minute)
		for _, pod := range []*v1.Pod{same, changed} {
			if got := h.apiStatus(pod); got.Phase == v1.PodRunning {
				t.Errorf("%s: got phase Running before the pod was observed", pod.Name)
			}
		}
		start := time.Now()
		h.stop() // nothing can be sent
		if took := time.Since(start); took != 0 {
			t.Errorf("Run took %v to stop, want 0", took)
		}
		h = newHarness(t, h.server, withState(t, copyState(t, dir)))
		defer h.stop()
		h.SetPodStatus(h.watchedPod(same), runningStatus())
		h.SetPodStatus(h.watchedPod(changed), runningWithReason("observed"))
		synctest.Wait()
		if got := h.apiStatus(same); got.Phase != v1.PodRunning {
			t.Errorf("unchanged: got phase %s, want Running", got.Phase)
		}
		h.wantReason(changed, "observed")
	})
}

func TestBUG10_OutdatedCheckpoint(t *testing.T) {
	tests := map[string]func(server *heraldtest.APIServer, pod *v1.Pod){
		"failed by another writer": func(server *heraldtest.APIServer, pod *v1.Pod) {
			server.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) { pod.Status.Phase, pod.Status.Reason = v1.PodFailed, "NodeLost" })
		},
		"recreated": func(server *heraldtest.APIServer, pod *v1.Pod) {
			server.DeletePod(podid.FullNameOf(pod), 0)
			server.AddPod(recreated(pod))
		},
		"deleted": func(server *heraldtest.APIServer, pod *v1.Pod) { server.DeletePod(podid.FullNameOf(pod), 0) },
	}
	for name, meanwhile := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			withHarness(t, withState(t, dir), func(t *testing.T, h *harness) {
				pod := h.addPod("web")
				h.server.SetDown(true)
				h.SetPodStatus(pod, runningStatus())
				h.stop()
				meanwhile(h.server, pod)
				before := h.server.Pod(podid.FullNameOf(pod))
				h.server.SetDown(false)
				h = newHarness(t, h.server, withState(t, copyState(t, dir)))
				defer h.stop()
				time.Sleep(time.Minute)
				switch after := h.server.Pod(podid.FullNameOf(pod)); {
				case (before == nil) != (after == nil):
					t.Fatal("the object was created or deleted")
				case after != nil && after.Status.Phase != before.Status.Phase:
					t.Fatalf("got phase %s, want %s", after.Status.Phase, before.Status.Phase)
				}
			})
		})
	}
}

func TestF15_KilledAfterSend(t *testing.T) {
	dir := t.TempDir()
	withHarness(t, withState(t, dir), func(t *testing.T, h *harness) {
		pod, other := h.addPod("web"), h.addPod("other")
		h.server.SetDown(true)
		h.SetPodStatus(pod, runningWithReason("old"))
		time.Sleep(30 * time.Second) // it is checkpointed by now
		h.server.SetDown(false)
		h.SetPodStatus(pod, runningWithReason("new"))
		h.SetPodStatus(other, runningStatus()) // ends the outage and all backoffs
		h.wantReason(pod, "new")
		copied := copyState(t, dir) // killed at this moment
		h.stop()
		h = newHarness(t, h.server, withState(t, copied))
		defer h.stop()
		time.Sleep(time.Minute)
		h.wantReason(pod, "new")
	})
}

func TestF15_KilledAfterStart(t *testing.T) {
	dir := t.TempDir()
	withHarness(t, withState(t, dir), func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.server.SetDown(true)
		h.SetPodStatus(pod, runningWithReason("old"))
		h.stop()
		h.server.SetDown(false)
		second := copyState(t, dir)
		h = newHarness(t, h.server, withState(t, second))
		h.SetPodStatus(h.watchedPod(pod), runningWithReason("new"))
		h.wantReason(pod, "new")
		third := copyState(t, second)
		h.stop()
		h = newHarness(t, h.server, withState(t, third))
		defer h.stop()
		h.wantReason(pod, "new")
	})
}

func TestBUG12_RestartWithoutAPIServer(t *testing.T) {
	dir := t.TempDir()
	withHarness(t, withState(t, dir, withoutAPI), func(t *testing.T, h *harness) {
		static := newStaticPod("etcd-n1")
		h.pods.AddPod(static)
		podStatus := runningStatus()
		podStatus.ContainerStatuses[0].RestartCount = 7
		h.SetPodStatus(static, podStatus)
		before, _ := h.GetPodStatus(static.UID)
		h.stop()
		time.Sleep(time.Hour)
		h = newHarness(t, h.server, withState(t, copyState(t, dir), withoutAPI))
		defer h.stop()
		h.pods.AddPod(static)
		restored, found := h.GetPodStatus(static.UID)
		if !found || restored.ContainerStatuses[0].RestartCount != 7 {
			t.Fatalf("got %v, %+v, want 7 restarts", found, restored)
		}
		h.SetPodStatus(static, podStatus)
		after, _ := h.GetPodStatus(static.UID)
		if !after.StartTime.Equal(before.StartTime) || conditionOf(after, v1.PodReady) != conditionOf(before, v1.PodReady) {
			t.Fatalf("got start time %v, ready %+v, want %v, %+v",
				after.StartTime, conditionOf(after, v1.PodReady), before.StartTime, conditionOf(before, v1.PodReady))
		}
	})
}

func TestManager_EmptyCheckpoint(t *testing.T) {
	dir := t.TempDir()
	withHarness(t, withState(t, dir), func(t *testing.T, h *harness) {
		pod, missing := h.addPod("web"), h.addPod("missing")
		h.faults.Add(fault.On("PATCH", "/pods/missing/").Reply(http.StatusNotFound))
		for i := range 10 {
			h.SetPodStatus(pod, runningWithReason("%d", i))
			h.SetPodStatus(missing, runningWithReason("%d", i))
			time.Sleep(2 * time.Second)
		}
		content, err := os.ReadFile(filepath.Join(dir, "pod-statuses"))
		if err != nil || !strings.HasSuffix(strings.TrimSpace(string(content)), `{"pods":[]}`) {
			t.Fatalf("got checkpoint %s, %v, want no pods", content, err)
		}
	})
}

func TestF17_UnwritableCheckpoint(t *testing.T) {
	var log strings.Builder
	dir := t.TempDir()
	withHarness(t, withState(t, dir, withLog(&log)), func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		if err := os.RemoveAll(dir); err != nil { // nothing can be created in a removed directory
			t.Fatal(err)
		}
		h.server.SetDown(true)
		for i := range 20 {
			h.SetPodStatus(pod, runningWithReason("%d", i))
			time.Sleep(10 * time.Second)
		}
		if logged := strings.Count(log.String(), "Failed to save pod status checkpoint"); logged != 1 {
			t.Errorf("got %d log messages, want 1:\n%s", logged, log.String())
		}
		h.server.SetDown(false)
		time.Sleep(time.Minute)
		if got := h.apiStatus(pod); got.Reason != "19" {
			t.Errorf("got reason %q, want 19", got.Reason)
		}
		h.wantRunError = true
	})
}

func TestF18_CorruptCheckpoint(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pod-statuses"), []byte("{ no checkpoint"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	withHarness(t, withState(t, dir, withLog(&log)), func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		h.wantPhase(pod, v1.PodRunning)
		if !strings.Contains(log.String(), "Failed to load pod status checkpoint") {
			t.Fatalf("got log %q, want the failure", log.String())
		}
		if _, err := os.Stat(filepath.Join(dir, "pod-statuses.corrupt")); err != nil {
			t.Fatal(err)
		}
	})
}
