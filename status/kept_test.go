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

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// keepIn has the manager keep its state in the folder, for one life.
func keepIn(t *testing.T, folder string, more ...func(*status.Config)) func(*status.Config) {
	t.Helper()
	dir, err := checkpoint.Open(folder, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *status.Config) {
		c.State = dir
		for _, change := range more {
			change(c)
		}
		t.Cleanup(func() { dir.Close() })
	}
}

// copyOf is the folder as a process that dies now leaves it. Files are replaced as wholes, so that each is copied as one.
func copyOf(t *testing.T, folder string) string {
	t.Helper()
	left := t.TempDir()
	for _, name := range []string{"pod-statuses", "pod-allocations"} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(left, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return left
}

func TestBUG10AManagerThatIsStoppedSendsWhatItHas(t *testing.T) { // F16
	patch := fault.On("PATCH", "/pods/")
	tests := map[string]struct {
		trouble *fault.Rule
		most    time.Duration
	}{
		"at once":                      {patch.Delay(20 * time.Millisecond), 100 * time.Millisecond},
		"with a retry":                 {patch.Times(20).Reply(http.StatusInternalServerError), time.Second},
		"after a conflict":             {patch.Times(20).Reply(http.StatusConflict), time.Second},
		"where patience was asked for": {patch.Times(20).Reply(http.StatusTooManyRequests, fault.RetryAfter(time.Second)), 2 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onNode(t, nil, func(t *testing.T, n *node) {
				pods := n.boundMany(50)
				for _, p := range pods {
					n.SetPodStatus(p, runningStatus())
				}
				synctest.Wait()
				n.faults.Add(test.trouble)
				for _, p := range pods {
					n.SetPodStatus(p, succeededStatus())
				}
				start := time.Now()
				n.stop()
				if took := time.Since(start); took > test.most {
					t.Fatalf("stopping took %v, want at most %v", took, test.most)
				}
				for _, p := range pods {
					if got := n.server.Pod(podid.FullNameOf(p)).Status; got.Phase != v1.PodSucceeded {
						t.Fatalf("%s still shows %s", p.Name, got.Phase)
					}
				}
			})
		})
	}
}

func TestBUG10AManagerThatIsStoppedWaitsForNoBackOff(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		heal := n.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusInternalServerError))
		n.SetPodStatus(p, succeededStatus())
		time.Sleep(time.Minute)
		heal()
		start := time.Now()
		n.stop()
		if got := n.server.Pod(podid.FullNameOf(p)).Status; got.Phase != v1.PodSucceeded || time.Since(start) != 0 {
			t.Fatalf("it shows %s after %v", got.Phase, time.Since(start))
		}
	})
}

func TestBUG10APodThatHasEndedIsDeletedBeforeStopping(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.dying("web")
		n.faults.Add(fault.On("DELETE", "/pods/").Times(3).Reply(http.StatusInternalServerError))
		n.TerminatePod(p)
		synctest.Wait()
		n.stop()
		if n.server.Pod(podid.FullNameOf(p)) != nil {
			t.Fatal("the object is still there")
		}
	})
}

func TestBUG10AManagerWithNothingToSayStopsAtOnce(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		n.SetPodStatus(n.bound("web"), runningStatus())
		static := staticPod("etcd-n1") // nobody to tell: it has no mirror
		n.book.AddPod(static)
		n.SetPodStatus(static, runningStatus())
		gone := n.bound("gone")
		n.faults.Add(fault.On("PATCH", "/pods/gone/").Reply(http.StatusNotFound))
		n.SetPodStatus(gone, runningStatus())
		refused := n.bound("refused")
		n.faults.Add(fault.On("PATCH", "/pods/refused/").Reply(http.StatusUnprocessableEntity))
		n.SetPodStatus(refused, runningStatus())
		withheld := n.bound("withheld")
		n.cleanup.setRunning(withheld.UID, true)
		n.SetPodStatus(withheld, succeededStatus())
		synctest.Wait()
		start := time.Now()
		n.stop()
		if took := time.Since(start); took != 0 {
			t.Fatalf("stopping took %v", took)
		}
	})
}

func TestBUG10AnEndThatWasHeldBackIsToldBeforeStopping(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("job")
		n.cleanup.setRunning(p.UID, true)
		n.SetPodStatus(p, succeededStatus())
		synctest.Wait()
		n.cleanup.setRunning(p.UID, false)
		n.stop()
		if got := n.server.Pod(podid.FullNameOf(p)).Status; got.Phase != v1.PodSucceeded {
			t.Fatalf("it still shows %s", got.Phase)
		}
	})
}

func TestBUG10WhatCouldNotBeSentIsSentAtTheNextStart(t *testing.T) {
	lives := map[string]func(t *testing.T, n *node, folder string) string{
		"stopped": func(t *testing.T, n *node, folder string) string {
			start := time.Now()
			n.stop()
			if took := time.Since(start); took != 5*time.Second {
				t.Fatalf("stopping took %v", took)
			}
			return copyOf(t, folder)
		},
		"killed": func(t *testing.T, n *node, folder string) string {
			time.Sleep(2 * time.Second)
			defer n.stop()
			return copyOf(t, folder)
		},
	}
	for name, end := range lives {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			onNode(t, keepIn(t, folder), func(t *testing.T, n *node) {
				web, dying := n.bound("web"), n.dying("dying")
				static, mirror := n.mirrored("etcd-n1")
				n.SetPodStatus(web, runningStatus())
				synctest.Wait()
				n.server.SetDown(true)
				n.SetPodStatus(web, succeededStatus())
				n.TerminatePod(dying)
				n.SetPodStatus(static, succeededStatus())
				left := end(t, n, folder)

				n.server.SetDown(false)
				n = newNode(t, n.server, keepIn(t, left))
				defer n.stop()
				n.book.AddPod(static) // no worker says anything
				time.Sleep(time.Minute)
				if got := n.shown(web); got.Phase != v1.PodSucceeded {
					t.Errorf("the pod shows %s", got.Phase)
				}
				if got := n.shown(mirror); got.Phase != v1.PodSucceeded {
					t.Errorf("the mirror shows %s", got.Phase)
				}
				if !n.isGone(dying) {
					t.Error("the pod that had ended is still there")
				}
			})
		})
	}
}

func TestBUG10AKeptStatusDoesNotUndoWhatHappenedSince(t *testing.T) {
	tests := map[string]func(server *heraldtest.APIServer, p *v1.Pod){
		"somebody ended it": func(server *heraldtest.APIServer, p *v1.Pod) {
			server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) { p.Status.Phase, p.Status.Reason = v1.PodFailed, "NodeLost" })
		},
		"it was re-created": func(server *heraldtest.APIServer, p *v1.Pod) {
			server.DeletePod(podid.FullNameOf(p), 0)
			server.AddPod(successorOf(p))
		},
		"it was deleted": func(server *heraldtest.APIServer, p *v1.Pod) { server.DeletePod(podid.FullNameOf(p), 0) },
	}
	for name, meanwhile := range tests {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			onNode(t, keepIn(t, folder), func(t *testing.T, n *node) {
				p := n.bound("web")
				n.server.SetDown(true)
				n.SetPodStatus(p, runningStatus())
				n.stop()
				meanwhile(n.server, p)
				before := n.server.Pod(podid.FullNameOf(p))
				n.server.SetDown(false)
				n = newNode(t, n.server, keepIn(t, copyOf(t, folder)))
				defer n.stop()
				time.Sleep(time.Minute)
				switch after := n.server.Pod(podid.FullNameOf(p)); {
				case (before == nil) != (after == nil):
					t.Fatal("the object came or went")
				case after != nil && after.Status.Phase != before.Status.Phase:
					t.Fatalf("it was %s and is %s", before.Status.Phase, after.Status.Phase)
				}
			})
		})
	}
}

func TestF15AProcessThatIsKilledLeavesNothingOlderThanWhatItSent(t *testing.T) {
	folder := t.TempDir()
	onNode(t, keepIn(t, folder), func(t *testing.T, n *node) {
		p, other := n.bound("web"), n.bound("other")
		n.server.SetDown(true)
		n.SetPodStatus(p, withReason("old"))
		time.Sleep(30 * time.Second) // it is on the disk by now
		n.server.SetDown(false)
		n.SetPodStatus(p, withReason("new"))
		n.SetPodStatus(other, runningStatus()) // the outage is over, and nothing waits any longer
		if got := n.shown(p); got.Reason != "new" {
			t.Fatalf("it shows %q", got.Reason)
		}
		left := copyOf(t, folder) // killed in the same instant
		n.stop()
		n = newNode(t, n.server, keepIn(t, left))
		defer n.stop()
		time.Sleep(time.Minute)
		if got := n.shown(p); got.Reason != "new" {
			t.Fatalf("the next process brought back %q", got.Reason)
		}
	})
}

func TestF15AProcessThatIsKilledRightAfterItsStartLeavesNothingOlderEither(t *testing.T) {
	folder := t.TempDir()
	onNode(t, keepIn(t, folder), func(t *testing.T, n *node) {
		p := n.bound("web")
		n.server.SetDown(true)
		n.SetPodStatus(p, withReason("old"))
		n.stop()
		n.server.SetDown(false)
		second := copyOf(t, folder)
		n = newNode(t, n.server, keepIn(t, second))
		n.SetPodStatus(n.held(p), withReason("new"))
		if got := n.shown(p); got.Reason != "new" {
			t.Fatalf("it shows %q", got.Reason)
		}
		third := copyOf(t, second)
		n.stop()
		n = newNode(t, n.server, keepIn(t, third))
		defer n.stop()
		if got := n.shown(p); got.Reason != "new" {
			t.Fatalf("the next process brought back %q", got.Reason)
		}
	})
}

func TestBUG12WithoutAnAPIServerAStatusSurvivesARestart(t *testing.T) {
	alone := func(c *status.Config) { c.API, c.Deletion = nil, nil }
	folder := t.TempDir()
	onNode(t, keepIn(t, folder, alone), func(t *testing.T, n *node) {
		static := staticPod("etcd-n1")
		n.book.AddPod(static)
		s := runningStatus()
		s.ContainerStatuses[0].RestartCount = 7
		n.SetPodStatus(static, s)
		before, _ := n.GetPodStatus(static.UID)
		n.stop()
		time.Sleep(time.Hour)
		n = newNode(t, n.server, keepIn(t, copyOf(t, folder), alone))
		defer n.stop()
		n.book.AddPod(static)
		restored, known := n.GetPodStatus(static.UID)
		if !known || restored.ContainerStatuses[0].RestartCount != 7 {
			t.Fatalf("known %v: %+v", known, restored)
		}
		n.SetPodStatus(static, s)
		after, _ := n.GetPodStatus(static.UID)
		if !after.StartTime.Equal(before.StartTime) || conditionOf(after, v1.PodReady) != conditionOf(before, v1.PodReady) {
			t.Fatalf("start %v, ready %+v; before: %v, %+v",
				after.StartTime, conditionOf(after, v1.PodReady), before.StartTime, conditionOf(before, v1.PodReady))
		}
	})
}

func TestAHealthyAPIServerMakesTheDiskSuperfluous(t *testing.T) {
	folder := t.TempDir()
	onNode(t, keepIn(t, folder), func(t *testing.T, n *node) {
		p, gone := n.bound("web"), n.bound("gone")
		n.faults.Add(fault.On("PATCH", "/pods/gone/").Reply(http.StatusNotFound)) // nobody to tell
		for i := range 10 {
			n.SetPodStatus(p, withReason("%d", i))
			n.SetPodStatus(gone, withReason("%d", i))
			time.Sleep(2 * time.Second)
		}
		content, err := os.ReadFile(filepath.Join(folder, "pod-statuses"))
		if err != nil || !strings.HasSuffix(strings.TrimSpace(string(content)), `{"pods":[]}`) {
			t.Fatalf("the file says %s, %v", content, err)
		}
	})
}

func TestF17AFolderThatCannotBeWrittenStopsNothing(t *testing.T) {
	var log strings.Builder
	folder := t.TempDir()
	onNode(t, keepIn(t, folder, logTo(&log)), func(t *testing.T, n *node) {
		p := n.bound("web")
		if err := os.RemoveAll(folder); err != nil { // nothing can be created in a folder that is gone
			t.Fatal(err)
		}
		n.server.SetDown(true)
		for i := range 20 {
			n.SetPodStatus(p, withReason("%d", i))
			time.Sleep(10 * time.Second)
		}
		if said := strings.Count(log.String(), "Failed to save pod status checkpoint"); said != 1 {
			t.Errorf("the log says it %d times:\n%s", said, log.String())
		}
		n.server.SetDown(false)
		time.Sleep(time.Minute)
		if got := n.shown(p); got.Reason != "19" {
			t.Errorf("it shows %q", got.Reason)
		}
		n.failsToStop = true
	})
}

func TestF18ACorruptFileIsSetAsideAndTheManagerStarts(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "pod-statuses"), []byte("{ no checkpoint"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	onNode(t, keepIn(t, folder, logTo(&log)), func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		if got := n.shown(p); got.Phase != v1.PodRunning {
			t.Fatalf("it shows %s", got.Phase)
		}
		if !strings.Contains(log.String(), "Failed to load pod status checkpoint") {
			t.Fatalf("the log does not tell: %s", log.String())
		}
		if _, err := os.Stat(filepath.Join(folder, "pod-statuses.corrupt")); err != nil {
			t.Fatal(err)
		}
	})
}
