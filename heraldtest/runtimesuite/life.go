package runtimesuite

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

func life(s *scene) {
	c := s.run(s.Programs.Wait)
	if c.ID.Runtime != s.Name || c.ID.ID == "" || c.Name != containerName || c.State != observed.Running {
		s.Errorf("the container is %+v", c)
	}
	if c.SpecHash != plan.HashContainer(s.container()) || c.RestartCount != 0 || c.SandboxID != s.sandbox {
		s.Errorf("the container is not the one that was asked for: %+v", c)
	}
	if c.StartedAt.IsZero() || c.CreatedAt.After(c.StartedAt) || !strings.Contains(c.Image.Name, s.Image) {
		s.Errorf("created %v, started %v, of image %q", c.CreatedAt, c.StartedAt, c.Image.Name)
	}
	s.sandboxIsReady(true)
	s.isListed(true)
	s.awaitOutput()
	if len(s.logs()) != 1 {
		s.Errorf("folders with logs: %v", s.logs())
	}

	if err := s.stop(s.Context(), c.ID, soon); err != nil {
		s.Fatal(err)
	}
	if ended := s.awaitExit(); ended.Exit.Code != 0 || ended.Exit.FinishedAt.Before(ended.StartedAt) {
		s.Errorf("the container ended with %+v", ended.Exit)
	}
	if err := s.Runtime.StopSandbox(s.Context(), s.sandbox); err != nil {
		s.Fatal(err)
	}
	s.sandboxIsReady(false)
	if err := s.Runtime.RemovePod(s.Context(), s.uid()); err != nil {
		s.Fatal(err)
	}
	if left := s.inspect(); len(left.Sandboxes)+len(left.Containers) > 0 || len(s.logs()) > 0 {
		s.Errorf("left behind: %+v, logs %v", left, s.logs())
	}
	s.isListed(false)
}

func (s *scene) sandboxIsReady(want bool) {
	s.Helper()
	seen := s.inspect()
	newest, found := seen.NewestSandbox()
	if !found || newest.Ready != want || newest.ID != s.sandbox || newest.HostNetwork != s.HostNetwork {
		s.Errorf("the newest sandbox is %+v, want one that is ready: %v", newest, want)
	}
	if hasAddress := len(seen.IPs) > 0; hasAddress != (want && !s.HostNetwork) {
		s.Errorf("the pod has addresses %v", seen.IPs)
	}
}

func (s *scene) isListed(want bool) {
	s.Helper()
	pods, err := s.Runtime.ListPods(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	at := slices.IndexFunc(pods, func(p *observed.Pod) bool { return p.UID == s.uid() })
	if (at >= 0) != want {
		s.Fatalf("the pod is listed at %d of %d", at, len(pods))
	}
	if want && (len(pods[at].Sandboxes) != 1 || len(pods[at].Containers) != 1 || pods[at].Name != podid.FullNameOf(s.pod)) {
		s.Errorf("the pod is listed as %+v", pods[at])
	}
}

func sandboxTwice(s *scene) {
	s.startSandbox()
	again, err := s.Runtime.StartSandbox(s.Context(), s.pod, 0)
	if err != nil || again != s.sandbox {
		s.Fatalf("asked again, it is %q and not %q: %v", again, s.sandbox, err)
	}
	if seen := s.inspect(); len(seen.Sandboxes) != 1 {
		s.Errorf("there are %d sandboxes", len(seen.Sandboxes))
	}
}

func containerTwice(s *scene) {
	first := s.run(s.Programs.Wait)
	if err := s.tryStart(s.Programs.Wait, 0); err != nil {
		s.Fatal(err)
	}
	if second := s.only(); second.ID != first.ID || second.StartedAt != first.StartedAt {
		s.Errorf("the container was started again: %+v, then %+v", first, second)
	}
}

func watch(s *scene) {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	heard := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Runtime.WatchPods(ctx, func(uid podid.UID) {
			if uid == s.uid() {
				select {
				case heard <- struct{}{}:
				default:
				}
			}
		})
	}()
	c := s.run(s.Programs.Wait)
	// The stream may begin after the container did; its end comes later.
	s.eventually(func() error {
		select {
		case err := <-ended:
			if errors.Is(err, errors.ErrUnsupported) {
				ended <- err
				return nil
			}
			s.Fatal(err)
			return nil
		case <-heard:
			cancel()
			return nil
		default:
			return s.stop(s.Context(), c.ID, 0)
		}
	})
	if err := <-ended; !errors.Is(err, errors.ErrUnsupported) && ctx.Err() == nil {
		s.Error(err)
	}
}

func restart(s *scene) {
	before := s.run(s.Programs.Wait)
	if err := s.Restart(); err != nil {
		s.Fatal(err)
	}
	s.eventually(func() error {
		_, err := s.Runtime.InspectPod(s.Context(), s.uid())
		return err
	})
	after := s.only()
	if after.ID != before.ID || after.State != observed.Running || after.StartedAt != before.StartedAt {
		s.Errorf("before it was %+v, after it is %+v", before, after)
	}
}
