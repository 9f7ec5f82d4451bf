package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/podid"
)

// tidied is a runtime that takes long to be listed before it is tidied up.
type tidied struct {
	agent.Runtime
	listing time.Duration
	collect func(func(podid.UID) bool)
}

func (r tidied) CollectGarbage(ctx context.Context, isWanted func(podid.UID) bool) error {
	select {
	case <-time.After(r.listing):
		r.collect(isWanted)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r tidied) RotateLogs(context.Context) error { return nil }

func TestAPodThatCameWhileTheRuntimeWasListedIsWanted(t *testing.T) {
	inStory(t, func(s *story) {
		asked := false
		s.configure = func(c *agent.Config) {
			c.Runtime = tidied{c.Runtime, 2 * time.Minute, func(isWanted func(podid.UID) bool) {
				asked = true
				if uid := s.uidOf("web"); !isWanted(uid) || isWanted("stranger") {
					s.Errorf("%q is wanted: %v, a stranger is: %v", uid, isWanted(uid), isWanted("stranger"))
				}
			}}
		}
		s.do("start agent", "wait 90s", "bind web.yaml", "wait 100s")
		if !asked {
			s.Error("nothing was tidied up")
		}
	})
}
