package fakeruntime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const uid podid.UID = "u1"

var web = &v1.Pod{
	ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1"},
	Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app", Image: "app:1"}}},
}

// bench is an engine in a bubble, with one pod's sandbox.
type bench struct {
	*testing.T
	*fakeruntime.Runtime
	sandbox string
}

func onBench(t *testing.T, story func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, Runtime: fakeruntime.New()}
		var err error
		if b.sandbox, err = b.StartSandbox(b.Context(), web, 0); err != nil {
			b.Fatal(err)
		}
		story(b)
	})
}

func (b *bench) start(ctx context.Context, restarts int) error {
	return b.StartContainer(ctx, web, b.sandbox, plan.Start{
		Container: &web.Spec.Containers[0], Kind: derive.RegularContainer, RestartCount: restarts,
	})
}

func (b *bench) mustStart(restarts int) observed.Container {
	b.Helper()
	if err := b.start(b.Context(), restarts); err != nil {
		b.Fatal(err)
	}
	return b.newest()
}

func (b *bench) newest() observed.Container {
	b.Helper()
	seen, err := b.InspectPod(b.Context(), uid)
	if err != nil || len(seen.Containers) == 0 {
		b.Fatalf("%v, %v", seen, err)
	}
	return seen.Containers[0]
}

func TestAContainerDoesWhatItsScriptSays(t *testing.T) {
	tests := map[string]struct {
		script fakeruntime.Script
		after  time.Duration
		state  observed.State
		code   int
	}{
		"it runs until it is stopped":   {fakeruntime.Script{}, time.Hour, observed.Running, 0},
		"it ends by itself":             {fakeruntime.Script{RunDuration: time.Minute, ExitCode: 3}, time.Minute, observed.Exited, 3},
		"but not before its time":       {fakeruntime.Script{RunDuration: time.Minute, ExitCode: 3}, 59 * time.Second, observed.Running, 0},
		"its image takes time to come":  {fakeruntime.Script{PullDuration: time.Minute, RunDuration: time.Minute}, 59 * time.Second, observed.Running, 0},
		"its hook takes time, it lives": {fakeruntime.Script{PostStartDuration: time.Minute, RunDuration: 90 * time.Second}, 31 * time.Second, observed.Exited, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.SetScript("app", test.script)
				b.mustStart(0)
				time.Sleep(test.after)
				synctest.Wait()
				got := b.newest()
				if got.State != test.state || (got.Exit != nil && got.Exit.Code != test.code) {
					b.Fatalf("%s, %+v", got.State, got.Exit)
				}
			})
		})
	}
}

func TestAStopTakesTheHookAndTheGraceIntoAccount(t *testing.T) { // PW-24
	tests := map[string]struct {
		script fakeruntime.Script
		grace  time.Duration
		took   time.Duration
		code   int
	}{
		"it ends at once":                  {fakeruntime.Script{}, 30 * time.Second, 0, 143},
		"it takes its time":                {fakeruntime.Script{StopDuration: 5 * time.Second}, 30 * time.Second, 5 * time.Second, 143},
		"it ignores the signal":            {fakeruntime.Script{StopDuration: fakeruntime.Forever}, 30 * time.Second, 30 * time.Second, 137},
		"the hook is deducted":             {fakeruntime.Script{PreStopDuration: 20 * time.Second, StopDuration: fakeruntime.Forever}, 30 * time.Second, 30 * time.Second, 137},
		"2 s are left after a long hook":   {fakeruntime.Script{PreStopDuration: time.Hour, StopDuration: fakeruntime.Forever}, 30 * time.Second, 32 * time.Second, 137},
		"2 s are left of the least of all": {fakeruntime.Script{StopDuration: fakeruntime.Forever}, time.Second, 2 * time.Second, 137},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.SetScript("app", test.script)
				c := b.mustStart(0)
				began := time.Now()
				err := b.StopContainer(b.Context(), web, plan.Stop{ID: c.ID, Grace: test.grace})
				if took, exit := time.Since(began), b.newest().Exit; err != nil || took != test.took || exit.Code != test.code {
					b.Fatalf("%v after %v, %+v", err, took, exit)
				}
			})
		})
	}
}

func TestEveryCallEndsWithItsContext(t *testing.T) {
	onBench(t, func(b *bench) {
		c := b.mustStart(0)
		b.Inject(func(fakeruntime.Call) bool { return true }, fakeruntime.Fault{Delay: fakeruntime.Forever})
		calls := map[string]func(context.Context) error{
			"StartSandbox":   func(ctx context.Context) error { _, err := b.StartSandbox(ctx, web, 1); return err },
			"StartContainer": func(ctx context.Context) error { return b.start(ctx, 1) },
			"StopContainer":  func(ctx context.Context) error { return b.StopContainer(ctx, web, plan.Stop{ID: c.ID}) },
			"StopSandbox":    func(ctx context.Context) error { return b.StopSandbox(ctx, b.sandbox) },
			"RemovePod":      func(ctx context.Context) error { return b.RemovePod(ctx, uid) },
			"ListPods":       func(ctx context.Context) error { _, err := b.ListPods(ctx); return err },
			"InspectPod":     func(ctx context.Context) error { _, err := b.InspectPod(ctx, uid); return err },
		}
		for name, call := range calls {
			ctx, cancel := context.WithTimeout(b.Context(), time.Second)
			began := time.Now()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				b.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
			cancel()
		}
	})
}

func TestALostAnswerHidesWorkThatWasDoneAndARepetitionFindsIt(t *testing.T) {
	lost := errors.New("the connection broke")
	onBench(t, func(b *bench) {
		heal := b.Inject(fakeruntime.Method("StartContainer"), fakeruntime.Fault{LostResponse: true, Err: lost})
		if err := b.start(b.Context(), 0); !errors.Is(err, lost) {
			b.Fatal(err)
		}
		heal()
		b.mustStart(0)
		if again, err := b.StartSandbox(b.Context(), web, 0); err != nil || again != b.sandbox {
			b.Fatalf("%s, %v", again, err)
		}
		if diff := cmp.Diff([]string{"sandbox web_shop #0", "start web_shop/app #0"}, b.Transcript()); diff != "" {
			b.Fatal(diff)
		}
	})
}

func TestMisuseIsRemembered(t *testing.T) {
	onBench(t, func(b *bench) {
		b.mustStart(0)
		b.mustStart(1)
		if err := b.RemovePod(b.Context(), uid); err == nil {
			b.Error("what runs was removed")
		}
		b.Reboot()
		b.mustStart(2)
		got := strings.Join(b.Violations(), "\n")
		for _, want := range []string{"while it ran", "while app ran", "not ready"} {
			if !strings.Contains(got, want) {
				b.Errorf("%q is not in:\n%s", want, got)
			}
		}
	})
}

func TestAWatcherHearsOfEveryPodThatChanges(t *testing.T) {
	onBench(t, func(b *bench) {
		heard := make(chan podid.UID, 10)
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- b.WatchPods(ctx, func(uid podid.UID) { heard <- uid }) }()
		synctest.Wait()
		b.mustStart(0)
		if got := <-heard; got != uid {
			b.Fatalf("heard of %s", got)
		}
		b.ExitContainer(uid, "app", 1)
		if got := <-heard; got != uid {
			b.Fatalf("heard of %s", got)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			b.Fatal(err)
		}
	})
}

func TestACallThatHangsGoesOnWhenTheFaultIsHealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := fakeruntime.New()
		heal := e.Inject(func(fakeruntime.Call) bool { return true }, fakeruntime.Fault{Delay: fakeruntime.Forever})
		answers := make(chan error, 1)
		go func() {
			runtime, network := e.Ready(t.Context())
			answers <- errors.Join(runtime, network)
		}()
		time.Sleep(time.Hour)
		if len(answers) > 0 {
			t.Fatal("it answered")
		}
		heal()
		heal() // once more changes nothing
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	})
}

func TestARuntimeThatFailsIsReadyForNothing(t *testing.T) {
	e, broken := fakeruntime.New(), errors.New("out of order")
	e.Inject(fakeruntime.Method("Ready"), fakeruntime.Fault{Err: broken})
	if runtime, network := e.Ready(t.Context()); !errors.Is(runtime, broken) || !errors.Is(network, broken) {
		t.Fatalf("got %v and %v", runtime, network)
	}
}
