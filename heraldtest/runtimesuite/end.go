package runtimesuite

import (
	"context"
	"errors"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

func exitMessage(s *scene) {
	s.run(s.Programs.Exit(7, "out of cheese"))
	c := s.awaitExit()
	if c.Exit.Code != 7 || c.Exit.Message != "out of cheese" || c.Exit.Reason != "Error" {
		s.Errorf("it ended with %+v", c.Exit)
	}
}

func exitLog(s *scene) {
	s.container().TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	// A program that is called wrongly says so before it fails.
	s.run(s.Programs.PrintFile("/nowhere"))
	s.awaitExit()
	s.eventually(func() error { // the log may be written after the exit
		if c := s.only(); !strings.Contains(c.Exit.Message, "/nowhere") {
			return errors.New("the message is " + c.Exit.Message)
		}
		return nil
	})
}

func stubborn(s *scene) {
	c := s.run(s.Programs.IgnoreTERM)
	s.awaitOutput()
	if err := s.stop(s.Context(), c.ID, time.Second); err != nil {
		s.Fatal(err)
	}
	if ended := s.awaitExit(); ended.Exit.Code != 137 {
		s.Errorf("it ended with %+v", ended.Exit)
	}
}

func stopCancelled(s *scene) {
	c := s.run(s.Programs.IgnoreTERM)
	s.awaitOutput()
	ctx, cancel := context.WithTimeout(s.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.stop(ctx, c.ID, 10*time.Minute); err == nil || ctx.Err() == nil {
		s.Errorf("the stop ended with %v", err)
	}
	if c := s.only(); c.State != observed.Running {
		s.Errorf("the container is %v", c.State)
	}
}

func preStop(s *scene) {
	s.container().Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{
		Exec: &v1.ExecAction{Command: s.Programs.Exit(0, "farewell")},
	}}
	c := s.run(s.Programs.Wait)
	s.awaitOutput()
	if err := s.stop(s.Context(), c.ID, soon); err != nil {
		s.Fatal(err)
	}
	if ended := s.awaitExit(); ended.Exit.Code != 0 || ended.Exit.Message != "farewell" {
		s.Errorf("it ended with %+v", ended.Exit)
	}
}

func postStart(s *scene) {
	s.container().Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{
		Exec: &v1.ExecAction{Command: s.Programs.Exit(3, "")},
	}}
	s.startSandbox()
	s.failsWith(s.tryStart(s.Programs.Wait, 0), "PostStartHookError")
	s.awaitExit()
}

func neverPull(s *scene) {
	s.container().Image = "herald.test/nowhere:1"
	s.startSandbox()
	s.failsWith(s.tryStart(s.Programs.Wait, 0), "ErrImageNeverPull")
	if seen := s.inspect(); len(seen.Containers) != 0 {
		s.Errorf("there are containers: %+v", seen.Containers)
	}
}

// noProgram: the failed start leaves either nothing or an instance that has ended, and the next one works.
func noProgram(s *scene) {
	s.startSandbox()
	s.failsWith(s.tryStart([]string{"/no/such/program"}, 0), "RunContainerError")
	next := 0
	for _, c := range s.inspect().Containers {
		if c.State != observed.Exited || c.Exit.Code == 0 {
			s.Errorf("the failed container is %+v", c)
		}
		next = c.RestartCount + 1
	}
	if err := s.tryStart(s.Programs.Wait, next); err != nil {
		s.Fatal(err)
	}
	if newest := s.inspect().Containers[0]; newest.State != observed.Running || newest.RestartCount != next {
		s.Errorf("the next container is %+v", newest)
	}
}

func (s *scene) failsWith(err error, reason string) {
	s.Helper()
	var told interface{ WaitingReason() string }
	if !errors.As(err, &told) || told.WaitingReason() != reason {
		s.Fatalf("it failed with %v, want the reason %s", err, reason)
	}
}
