package runtimesuite

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

func testLifecycle(h *harness) {
	container := h.run(h.Programs.Wait)
	if container.ID.Runtime != h.Name || container.ID.ID == "" || container.Name != containerName || container.State != observed.Running {
		h.Errorf("got container %+v, want a running container of runtime %s", container, h.Name)
	}
	if container.SpecHash != plan.HashContainer(h.container()) || container.RestartCount != 0 || container.SandboxID != h.sandboxID {
		h.Errorf("got container %+v, want the hash of the spec, restart count 0 and sandbox %s", container, h.sandboxID)
	}
	if container.StartedAt.IsZero() || container.CreatedAt.After(container.StartedAt) || !strings.Contains(container.Image.Name, h.Image) {
		h.Errorf("got created %v, started %v, image %q", container.CreatedAt, container.StartedAt, container.Image.Name)
	}
	h.wantSandboxReady(true)
	h.wantListed(true)
	h.waitForOutput()
	if dirs := h.logDirs(); len(dirs) != 1 {
		h.Errorf("got log directories %v, want one", dirs)
	}

	if err := h.stop(h.Context(), container.ID, timeout); err != nil {
		h.Fatal(err)
	}
	if exited := h.waitForExit(); exited.Exit.Code != 0 || exited.Exit.FinishedAt.Before(exited.StartedAt) {
		h.Errorf("got exit %+v, want code 0", exited.Exit)
	}
	if err := h.Runtime.StopSandbox(h.Context(), h.sandboxID); err != nil {
		h.Fatal(err)
	}
	h.wantSandboxReady(false)
	if err := h.Runtime.RemovePod(h.Context(), h.uid()); err != nil {
		h.Fatal(err)
	}
	if pod := h.inspect(); len(pod.Sandboxes)+len(pod.Containers) > 0 || len(h.logDirs()) > 0 {
		h.Errorf("after RemovePod: got %+v, log directories %v, want nothing", pod, h.logDirs())
	}
	h.wantListed(false)
}

func testStartSandboxTwice(h *harness) {
	h.startSandbox()
	again, err := h.Runtime.StartSandbox(h.Context(), h.pod, 0)
	if err != nil || again != h.sandboxID {
		h.Fatalf("second start: got %q, %v, want %q", again, err, h.sandboxID)
	}
	if pod := h.inspect(); len(pod.Sandboxes) != 1 {
		h.Errorf("got %d sandboxes, want 1", len(pod.Sandboxes))
	}
}

func testStartContainerTwice(h *harness) {
	first := h.run(h.Programs.Wait)
	if err := h.start(h.Programs.Wait, 0); err != nil {
		h.Fatal(err)
	}
	if second := h.onlyContainer(); second.ID != first.ID || second.StartedAt != first.StartedAt {
		h.Errorf("second start: got %+v, want %+v", second, first)
	}
}

func testExitMessage(h *harness) {
	h.run(h.Programs.Exit(7, "out of cheese"))
	container := h.waitForExit()
	if container.Exit.Code != 7 || container.Exit.Message != "out of cheese" || container.Exit.Reason != "Error" {
		h.Errorf("got exit %+v, want code 7, message and reason Error", container.Exit)
	}
}

func testExitMessageFromLog(h *harness) {
	h.container().TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	h.run(h.Programs.PrintFile("/nowhere")) // prints an error and fails
	h.waitForExit()
	heraldtest.Eventually(h.T, func() error { // the log may be written after the exit
		if container := h.onlyContainer(); !strings.Contains(container.Exit.Message, "/nowhere") {
			return errors.New("termination message is " + container.Exit.Message)
		}
		return nil
	})
}

func testExec(h *harness) {
	h.container().Env = []v1.EnvVar{{Name: "COLOUR", Value: "green"}, {Name: "LITERAL", Value: "$(COLOUR)"}}
	container := h.run(h.Programs.Wait)
	output, code, err := h.Runtime.Exec(h.Context(), container.ID, h.Programs.PrintEnv)
	if err != nil || code != 0 {
		h.Fatalf("print environment: got code %d, %v", code, err)
	}
	for _, want := range []string{"COLOUR=green\n", "LITERAL=$(COLOUR)\n"} {
		if !strings.Contains(string(output), want) {
			h.Errorf("got environment %q, want %q", output, want)
		}
	}
	_, code, err = h.Runtime.Exec(h.Context(), container.ID, h.Programs.Exit(5, ""))
	if err != nil || code != 5 {
		h.Errorf("exit with 5: got code %d, %v", code, err)
	}
}

func testExecCanceled(h *harness) {
	container := h.run(h.Programs.Wait)
	ctx, cancel := context.WithTimeout(h.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := h.Runtime.Exec(ctx, container.ID, h.Programs.IgnoreTERM); !errors.Is(err, context.DeadlineExceeded) {
		h.Errorf("got %v, want deadline exceeded", err)
	}
}

func testStopIgnoredTERM(h *harness) {
	container := h.run(h.Programs.IgnoreTERM)
	h.waitForOutput()
	if err := h.stop(h.Context(), container.ID, time.Second); err != nil {
		h.Fatal(err)
	}
	if exited := h.waitForExit(); exited.Exit.Code != 137 {
		h.Errorf("got exit %+v, want code 137", exited.Exit)
	}
}

func testStopCanceled(h *harness) {
	container := h.run(h.Programs.IgnoreTERM)
	h.waitForOutput()
	ctx, cancel := context.WithTimeout(h.Context(), 200*time.Millisecond)
	defer cancel()
	if err := h.stop(ctx, container.ID, 10*time.Minute); err == nil || ctx.Err() == nil {
		h.Errorf("got %v, want an error after the deadline", err)
	}
	if got := h.onlyContainer().State; got != observed.Running {
		h.Errorf("got container %v, want running", got)
	}
}

func testPreStop(h *harness) {
	h.container().Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{
		Exec: &v1.ExecAction{Command: h.Programs.Exit(0, "farewell")},
	}}
	container := h.run(h.Programs.Wait)
	h.waitForOutput()
	if err := h.stop(h.Context(), container.ID, timeout); err != nil {
		h.Fatal(err)
	}
	if exited := h.waitForExit(); exited.Exit.Code != 0 || exited.Exit.Message != "farewell" {
		h.Errorf("got exit %+v, want code 0 and the message of the hook", exited.Exit)
	}
}

func testPostStartFails(h *harness) {
	h.container().Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{
		Exec: &v1.ExecAction{Command: h.Programs.Exit(3, "")},
	}}
	h.startSandbox()
	h.wantReason(h.start(h.Programs.Wait, 0), "PostStartHookError")
	h.waitForExit()
}

func testNeverPull(h *harness) {
	h.container().Image = "herald.test/nowhere:1"
	h.startSandbox()
	h.wantReason(h.start(h.Programs.Wait, 0), "ErrImageNeverPull")
	if pod := h.inspect(); len(pod.Containers) != 0 {
		h.Errorf("got containers %+v, want none", pod.Containers)
	}
}

// testProgramNotFound allows a failed start to leave nothing, or an exited instance. The next start must succeed.
func testProgramNotFound(h *harness) {
	h.startSandbox()
	h.wantReason(h.start([]string{"/no/such/program"}, 0), "RunContainerError")
	restartCount := 0
	for _, container := range h.inspect().Containers {
		if container.State != observed.Exited || container.Exit.Code == 0 {
			h.Errorf("got container %+v, want a failed one", container)
		}
		restartCount = container.RestartCount + 1
	}
	if err := h.start(h.Programs.Wait, restartCount); err != nil {
		h.Fatal(err)
	}
	if newest := h.inspect().Containers[0]; newest.State != observed.Running || newest.RestartCount != restartCount {
		h.Errorf("got container %+v, want a running one with restart count %d", newest, restartCount)
	}
}

func testWatch(h *harness) {
	ctx, cancel := context.WithCancel(h.Context())
	defer cancel()
	changed := wakeup.New()
	done := make(chan error, 1)
	go func() {
		done <- h.Runtime.WatchPods(ctx, func(uid podid.UID) {
			if uid == h.uid() {
				changed.Set()
			}
		})
	}()
	container := h.run(h.Programs.Wait)
	// The watch may start after the container. Stopping the container is another change.
	heraldtest.Eventually(h.T, func() error {
		select {
		case err := <-done:
			if errors.Is(err, errors.ErrUnsupported) {
				done <- err
				return nil
			}
			h.Fatal(err)
			return nil
		case <-changed:
			cancel()
			return nil
		default:
			return h.stop(h.Context(), container.ID, 0)
		}
	})
	if err := <-done; !errors.Is(err, errors.ErrUnsupported) && ctx.Err() == nil {
		h.Error(err)
	}
}

func testServerRestart(h *harness) {
	before := h.run(h.Programs.Wait)
	if err := h.Restart(); err != nil {
		h.Fatal(err)
	}
	heraldtest.Eventually(h.T, func() error {
		_, err := h.Runtime.InspectPod(h.Context(), h.uid())
		return err
	})
	after := h.onlyContainer()
	if after.ID != before.ID || after.State != observed.Running || after.StartedAt != before.StartedAt {
		h.Errorf("after restart: got %+v, want %+v", after, before)
	}
}

func testVolumes(h *harness) {
	dir := h.TempDir()
	h.writeFile(filepath.Join(dir, "file"), "in the volume")
	h.writeFile(filepath.Join(dir, "deeper", "down"), "in the subPath")
	h.pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}}}
	h.container().Env = []v1.EnvVar{{Name: "WHERE", Value: "deeper"}}
	h.container().VolumeMounts = []v1.VolumeMount{
		{Name: "data", MountPath: "/data", ReadOnly: true},
		{Name: "data", MountPath: "/part", SubPathExpr: "$(WHERE)"},
		{Name: "data", MountPath: "/file", SubPath: "deeper/down"},
	}
	h.pod.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"elsewhere.test"}}}
	container := h.run(h.Programs.Wait)
	for file, want := range map[string]string{
		"/data/file": "in the volume", "/part/down": "in the subPath", "/file": "in the subPath",
		"/etc/hosts": "192.0.2.1\telsewhere.test\n",
	} {
		output, code, err := h.Runtime.Exec(h.Context(), container.ID, h.Programs.PrintFile(file))
		if err != nil || code != 0 || !strings.Contains(string(output), want) {
			h.Errorf("%s: got %q, code %d, %v, want %q", file, output, code, err, want)
		}
	}
}
