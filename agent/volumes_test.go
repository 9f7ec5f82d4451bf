package agent_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/podid"
)

// shelves are volumes of which one can see whose there are.
type shelves struct {
	unmounting time.Duration // how long that takes

	mu       sync.Mutex // guards all below
	mounted  map[podid.UID]bool
	removing map[podid.UID]bool
	overlaps int
	broken   error
}

func newShelves(uids ...podid.UID) *shelves {
	s := &shelves{mounted: map[podid.UID]bool{}, removing: map[podid.UID]bool{}}
	for _, uid := range uids {
		s.mounted[uid] = true
	}
	return s
}

func (s *shelves) Mount(_ context.Context, pod *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removing[podid.UID(pod.UID)] {
		s.overlaps++
	}
	s.mounted[podid.UID(pod.UID)] = true
	return nil
}

func (s *shelves) Unmount(ctx context.Context, uid podid.UID) error {
	s.mu.Lock()
	s.removing[uid] = true
	s.mu.Unlock()
	err := spend(ctx, s.unmounting)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.removing, uid)
	if err == nil {
		delete(s.mounted, uid)
	}
	return err
}

func (s *shelves) Pods() ([]podid.UID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.mounted)), s.broken
}

func (s *shelves) expect(t *testing.T, want ...podid.UID) {
	t.Helper()
	if got, _ := s.Pods(); !slices.Equal(got, want) {
		t.Errorf("there are volumes of %v, want %v", got, want)
	}
}

func TestVolumesOfPodsThatNobodyKnowsAreRemovedOnceEverySourceHasSpoken(t *testing.T) {
	inStory(t, func(s *story) {
		volumes := newShelves("gone")
		s.configure = func(c *agent.Config) { c.Volumes = volumes }
		s.do("down", "start agent", "wait 1m")
		volumes.expect(s.T, "gone")
		s.do("up", "wait 1m")
		volumes.expect(s.T)
		s.do("bind web.yaml", "wait 1m")
		volumes.expect(s.T, "web-1")
		s.do("delete web 5s", "wait 10s")
		volumes.expect(s.T)
	})
}

func TestVolumesAreKeptWhileTheRuntimeMayHoldThePod(t *testing.T) {
	inStory(t, func(s *story) {
		volumes := newShelves("web-1")
		s.configure = func(c *agent.Config) { c.Volumes = volumes }
		s.do("script main ignores-term", "leftover web.yaml", "hang", "start agent", "wait 5m")
		volumes.expect(s.T, "web-1")
		s.do("heal", "wait 1m")
		volumes.expect(s.T)
	})
}

func TestAPodThatComesBackMountsWhenItsOldVolumesAreGone(t *testing.T) {
	inStory(t, func(s *story) {
		volumes := newShelves("web-1")
		volumes.unmounting = 10 * time.Second
		s.configure = func(c *agent.Config) { c.Volumes = volumes }
		s.do("start agent", "wait 5s", "bind web.yaml", "wait 1m")
		if volumes.overlaps > 0 {
			s.Error("it mounted while its volumes were being removed")
		}
		volumes.expect(s.T, "web-1")
	})
}

func TestVolumesThatCannotBeListedAreLeftAlone(t *testing.T) {
	inStory(t, func(s *story) {
		volumes := newShelves("gone")
		volumes.broken = errors.New("the disk is on fire")
		s.configure = func(c *agent.Config) { c.Volumes = volumes }
		s.do("start agent", "wait 1m")
		volumes.expect(s.T, "gone")
	})
}
