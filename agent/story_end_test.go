package agent_test

import (
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

// rest is how long it takes until all that was said has been told: a full pass of every keeper, and a retry.
const rest = 3 * time.Minute

// end holds the world against what must be true after every story, once it has come to rest. The bubble itself sees to it
// that no goroutine is left.
func (s *story) end() {
	s.Helper()
	for _, misdeed := range s.engine.Misdeeds() {
		s.Errorf("the runtime was misused: %s", misdeed)
	}
	if s.node == nil {
		return
	}
	s.server.SetDown(false)
	time.Sleep(rest)
	if !s.alone {
		for _, p := range s.server.Pods() {
			s.compareWithCache(p)
		}
	}
	s.checkForgotten()
	if err := s.stopAgent(); err != nil {
		s.Errorf("the agent ended with: %v", err)
	}
}

// checkForgotten is PW-46: nothing is kept of pods that nobody wants and that are gone from the node.
func (s *story) checkForgotten() {
	s.Helper()
	wanted := map[types.UID]bool{}
	for _, p := range s.node.LocalPods() {
		wanted[p.UID] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.asked {
		if _, known := s.node.Statuses.GetPodStatus(uid); known && !wanted[uid] {
			s.Errorf("PW-46: the status of pod %s, which is gone, is still kept", uid)
		}
		if facts, _ := s.node.Prober.Results(podid.UID(uid)); len(facts) > 0 && !wanted[uid] {
			s.Errorf("PW-46: pod %s, which is gone, is still probed", uid)
		}
	}
}

// compareWithCache checks that the API server shows what the node says, as far as it is the node's to say.
func (s *story) compareWithCache(p *v1.Pod) {
	s.Helper()
	cached, known := s.node.Statuses.GetPodStatus(p.UID)
	if !known {
		s.Errorf("the node says nothing of %s", p.Name)
		return
	}
	if !derive.Equal(&cached, &p.Status) {
		s.Errorf("the API server does not show of %s (%s) what the node says (-node +API):\n%s",
			podid.FullNameOf(p), p.UID, cmp.Diff(cached, p.Status))
	}
}
