package agent_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

const webYAML = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - {name: main, image: web:1}\n"

// inStory runs a test in a bubble, on a machine that has the one manifest web.yaml and no agent yet.
func inStory(t *testing.T, test func(*story)) {
	t.Helper()
	state := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t, map[string]string{"web.yaml": webYAML}, state)
		test(s)
		s.end()
	})
}

// do plays commands, as in a story.
func (s *story) do(lines ...string) {
	s.Helper()
	for _, line := range lines {
		s.play(line)
	}
}

func apiPod(name string, created time.Time) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: types.UID(name), CreationTimestamp: metav1.NewTime(created),
		},
		Spec: v1.PodSpec{NodeName: nodeName, Containers: []v1.Container{{Name: "main", Image: "web:1"}}},
	}
}

func TestCFG43TheOlderPodIsAdmittedFirstAndTheAddressBookKnowsAllByThen(t *testing.T) {
	inStory(t, func(s *story) {
		now := time.Now()
		for name, age := range map[string]time.Duration{"a": time.Hour, "b": 3 * time.Hour, "c": 2 * time.Hour, "d": 0} {
			s.server.AddPod(apiPod(name, now.Add(-age)))
		}
		var mu sync.Mutex
		var asked []string
		s.configure = func(c *agent.Config) {
			c.Admit = func(p *v1.Pod) error {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, p.Name)
				if known := len(s.node.Pods.GetPods()); known != 4 {
					s.Errorf("%s was asked about when the address book had %d pods of 4", p.Name, known)
				}
				return nil
			}
		}
		s.do("start agent", "wait 1s")
		if want := []string{"b", "c", "a", "d"}; !slices.Equal(asked, want) {
			s.Errorf("asked about %v, want %v", asked, want)
		}
	})
}

// stopWatcher is a runtime that looks at the address book when a container is stopped.
type stopWatcher struct {
	agent.Runtime
	stopping func()
}

func (r stopWatcher) StopContainer(ctx context.Context, pod *v1.Pod, stop plan.Stop) error {
	r.stopping()
	return r.Runtime.StopContainer(ctx, pod, stop)
}

func TestCFG44APodIsOutOfTheAddressBookBeforeItIsStopped(t *testing.T) {
	inStory(t, func(s *story) {
		stopped := false
		s.configure = func(c *agent.Config) {
			c.Runtime = stopWatcher{c.Runtime, func() {
				stopped = true
				if pods := s.node.Pods.GetPods(); len(pods) > 0 {
					s.Errorf("%s is still in the address book", pods[0].Name)
				}
			}}
		}
		s.do("start agent", "manifest web.yaml", "wait 1s", "unmanifest web", "wait 1s")
		if !stopped {
			s.Error("nothing was stopped")
		}
	})
}

func TestBUG14ADeletedMirrorIsReplacedAtOnce(t *testing.T) {
	for name, grace := range map[string]string{"gracefully, which the API server tells as an update": "30s", "by force": "0s"} {
		t.Run(name, func(t *testing.T) {
			inStory(t, func(s *story) {
				s.do("start agent", "manifest web.yaml", "wait 1s")
				before := s.server.Pod(fullName("web-node-1"))
				s.do("delete web-node-1 " + grace)
				now := s.server.Pod(fullName("web-node-1"))
				if now == nil || now.UID == before.UID || now.DeletionTimestamp != nil || now.Status.Phase != v1.PodRunning {
					s.Errorf("%v after the mirror was deleted it is %v", busy, now)
				}
				if stops := s.engine.Calls("StopContainer"); stops > 0 {
					s.Errorf("the pod itself was stopped")
				}
			})
		})
	}
}

// tellEnd is somebody else who says that a pod has failed.
func (s *story) tellEnd(name string) {
	s.server.UpdatePod(fullName(name), func(p *v1.Pod) { p.Status.Phase, p.Status.Reason = v1.PodFailed, "NodeLost" })
	s.do("wait 10s")
}

func TestPW7APodThatSomebodyElseSaysHasFailedIsStopped(t *testing.T) { // PH-20
	inStory(t, func(s *story) {
		s.do("start agent", "bind web.yaml", "wait 5s")
		s.tellEnd("web")
		if got := s.server.Pod(fullName("web")).Status; s.uidOf("web") != "" || got.Reason != "NodeLost" || got.ContainerStatuses[0].State.Terminated == nil {
			s.Errorf("its status is %+v, and what runs is %q", got, s.uidOf("web"))
		}
	})
}

func TestPH20AStaticPodRunsOnWhateverIsSaidOfItsMirror(t *testing.T) {
	tests := map[string]func(*story){
		"while it runs":          func(s *story) { s.tellEnd("web-node-1") },
		"while it waits":         func(s *story) { s.do("exit web-node-1 main 1", "exit web-node-1 main 1"); s.tellEnd("web-node-1") },
		"and the agent restarts": func(s *story) { s.tellEnd("web-node-1"); s.do("restart agent") },
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			inStory(t, func(s *story) {
				s.do("start agent", "manifest web.yaml", "wait 5s")
				happens(s)
				s.do("wait 5m")
				if s.uidOf("web-node-1") == "" {
					s.Error("nothing runs")
				}
				s.do("delete web-node-1 0s", "wait 1m")
				if p := s.server.Pod(fullName("web-node-1")); p == nil || p.Status.Phase != v1.PodRunning || p.Status.Reason != "" {
					s.Errorf("its new mirror is %v", p)
				}
			})
		})
	}
}

func TestPW50WhatNobodyWantsIsEndedThoughTheRuntimeIsSlow(t *testing.T) { // PW-51
	inStory(t, func(s *story) {
		heal := s.engine.Break(engine.Method("ListPods"), engine.Fault{Delay: 30 * time.Second})
		defer heal()
		s.do("leftover web.yaml", "start agent", "wait 5m")
		if uid := s.uidOf("web"); uid != "" {
			s.Errorf("%s still runs, and the agent is healthy: %v", uid, s.node.Healthy())
		}
	})
}

func TestPM16AListOfPodsShowsWhatTheNodeKnows(t *testing.T) {
	inStory(t, func(s *story) {
		s.do("alone", "start agent", "manifest web.yaml", "wait 1s")
		pods := s.node.LocalPods()
		if len(pods) != 1 || pods[0].Status.Phase != v1.PodRunning {
			s.Fatalf("got %v, want one that is Running", pods)
		}
		held, _ := s.node.Pods.GetPodByUID(podid.UID(pods[0].UID))
		if held == pods[0] || held.Status.Phase == v1.PodRunning {
			s.Error("the address book's own copy was changed")
		}
	})
}

func TestAPartThatEndsEndsTheAgentAndIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		a, err := agent.New(config(t, func(c *agent.Config) { c.Metrics = registry }))
		if err != nil {
			t.Fatal(err)
		}
		// The sources register their metrics when they begin: somebody else was faster.
		registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "herald_manifest_problems"}))
		err = a.Run(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), "agent: sources: register the metrics") {
			t.Fatalf("Run ended with %v, want the sources' own words", err)
		}
		if strings.Count(err.Error(), "agent: ") != 1 {
			t.Errorf("%v: those that ended because they had to are named too", err)
		}
	})
}

// silence answers no request until it is given up.
type silence struct{}

func (silence) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestRunEndsWithinTheFlushTimeWhoeverDoesNotAnswer(t *testing.T) {
	tests := map[string]func(*story){
		"the API server is silent": func(s *story) { s.node.wire.reroute(silence{}); s.do("exit web main 1") },
		"the API server is down":   func(s *story) { s.do("down", "exit web main 1") },
		"the runtime hangs":        func(s *story) { s.do("hang", "delete web 5s") },
	}
	for name, breakIt := range tests {
		t.Run(name, func(t *testing.T) {
			inStory(t, func(s *story) {
				s.do("start agent", "bind web.yaml", "wait 5s")
				breakIt(s)
				s.do("wait 1m")
				began := time.Now()
				s.do("stop agent")
				if took := time.Since(began) - busy; took > 5*time.Second+10*moment {
					s.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestNobodyComplainsOfANetworkThatNobodyHasAskedAbout(t *testing.T) {
	inStory(t, func(s *story) {
		heal := s.engine.Break(engine.Method("Ready"), engine.Fault{Delay: 3 * time.Second})
		told := slices.Concat(s.play("bind web.yaml"), s.play("start agent"), s.play("wait 10s"))
		heal()
		if text := strings.Join(told, "\n"); strings.Contains(text, "NetworkNotReady") || !strings.Contains(text, "3.0s  runtime  start") {
			s.Errorf("the runtime answered after 3 s, and this happened:\n%s", text)
		}
	})
}
