package plan_test

import (
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// newLifecycle returns the lifecycle after these updates of a pod that is not in the runtime.
func newLifecycle(updates ...plan.Update) plan.Lifecycle {
	var lifecycle plan.Lifecycle
	for _, u := range updates {
		lifecycle, _ = lifecycle.Apply(u, stoppedPod())
	}
	return lifecycle
}

func stoppedPod() *observed.Pod { return &observed.Pod{At: time.Unix(1, 0)} }

func runningPod() *observed.Pod {
	return &observed.Pod{At: time.Unix(1, 0), Containers: []observed.Container{{Name: "app", State: observed.Running}}}
}

// newSourcePod returns a pod from this source with a grace period of 30s.
func newSourcePod(source podid.Source, shapes ...func(*v1.Pod)) *v1.Pod {
	grace := int64(30)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "u", Annotations: map[string]string{podid.SourceAnnotation: string(source)},
		},
		Spec: v1.PodSpec{TerminationGracePeriodSeconds: &grace},
	}
	for _, change := range shapes {
		change(p)
	}
	return p
}

func withDeletion(seconds int64) func(*v1.Pod) {
	return func(p *v1.Pod) {
		at := metav1.Unix(1, 0)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &seconds
	}
}

func withPhase(phase v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = phase } }

func kill(p *v1.Pod, grace ...time.Duration) plan.Update {
	u := plan.Update{Op: plan.OpKill, Pod: p}
	if len(grace) > 0 {
		u.Kill.GracePeriod = &grace[0]
	}
	return u
}

func evict(p *v1.Pod) plan.Update {
	return plan.Update{Op: plan.OpKill, Pod: p, Kill: plan.KillOptions{Evict: true}}
}

func create(p *v1.Pod) plan.Update { return plan.Update{Op: plan.OpCreate, Pod: p} }
func update(p *v1.Pod) plan.Update { return plan.Update{Op: plan.OpUpdate, Pod: p} }

func TestPW7_FirstCause(t *testing.T) {
	web := newSourcePod(podid.API)
	tests := map[string]struct {
		lifecycle        plan.Lifecycle
		stage            plan.Stage
		deleted, evicted bool
	}{
		"running":                         {lifecycle: newLifecycle(create(web)), stage: plan.Syncing},
		"deleted in the API":              {lifecycle: newLifecycle(create(web), update(newSourcePod(podid.API, withDeletion(5)))), stage: plan.Terminating, deleted: true},
		"terminal phase in the API":       {lifecycle: newLifecycle(create(web), update(newSourcePod(podid.API, withPhase(v1.PodFailed)))), stage: plan.Terminating},
		"removed from its source":         {lifecycle: newLifecycle(create(web), kill(web)), stage: plan.Terminating, deleted: true},
		"evicted":                         {lifecycle: newLifecycle(create(web), evict(web)), stage: plan.Terminating, evicted: true},
		"evicted, then deleted":           {lifecycle: newLifecycle(create(web), evict(web), kill(web)), stage: plan.Terminating, deleted: true, evicted: true},
		"deleted, then evicted":           {lifecycle: newLifecycle(create(web), kill(web), evict(web)), stage: plan.Terminating, deleted: true},
		"known to the runtime only":       {lifecycle: newLifecycle(plan.Update{Op: plan.OpKill, RunningPod: runningPod()}), stage: plan.Terminating, deleted: true},
		"sync completed":                  {lifecycle: newLifecycle(create(web)).CompleteSync(), stage: plan.Terminating},
		"rejected":                        {lifecycle: newLifecycle(create(web)).Reject(), stage: plan.Terminating},
		"updated after eviction":          {lifecycle: newLifecycle(create(web), evict(web), update(web)), stage: plan.Terminating, evicted: true},
		"deleted before the first update": {lifecycle: newLifecycle(create(newSourcePod(podid.API, withDeletion(1)))), stage: plan.Terminating, deleted: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := test.lifecycle
			if l.Stage != test.stage || l.Deleted != test.deleted || l.Evicted != test.evicted {
				t.Fatalf("got %s, deleted %v, evicted %v, want %s, %v, %v", l.Stage, l.Deleted, l.Evicted, test.stage, test.deleted, test.evicted)
			}
			if (l.Stage == plan.Syncing) != (l.GracePeriod == 0) {
				t.Fatalf("got %s with a grace period of %v", l.Stage, l.GracePeriod)
			}
		})
	}
}

func TestPW20_GracePeriod(t *testing.T) {
	second := time.Second
	tests := map[string]struct {
		updates []plan.Update
		want    time.Duration
	}{
		"spec":                        {[]plan.Update{kill(newSourcePod(podid.API))}, 30 * second},
		"longer deletion":             {[]plan.Update{update(newSourcePod(podid.API, withDeletion(60)))}, 60 * second},
		"forced deletion":             {[]plan.Update{update(newSourcePod(podid.API, withDeletion(0)))}, second},
		"kill after forced deletion":  {[]plan.Update{kill(newSourcePod(podid.API, withDeletion(0)), 30*second)}, second},
		"kill":                        {[]plan.Update{kill(newSourcePod(podid.API), 5*second)}, 5 * second},
		"kill with 0":                 {[]plan.Update{kill(newSourcePod(podid.API), 0)}, second},
		"kill with negative":          {[]plan.Update{kill(newSourcePod(podid.API), -second)}, second},
		"longer kill":                 {[]plan.Update{kill(newSourcePod(podid.API), 50*second)}, 50 * second},
		"never increases":             {[]plan.Update{kill(newSourcePod(podid.API), 5*second), kill(newSourcePod(podid.API), 9*second)}, 5 * second},
		"never increases by the spec": {[]plan.Update{kill(newSourcePod(podid.API), 50*second), update(newSourcePod(podid.API))}, 50 * second},
		"shortened later":             {[]plan.Update{update(newSourcePod(podid.API, withDeletion(60))), update(newSourcePod(podid.API, withDeletion(3)))}, 3 * second},
		"options without kill":        {[]plan.Update{{Op: plan.OpUpdate, Pod: newSourcePod(podid.API, withDeletion(9)), Kill: kill(nil, second).Kill}}, 9 * second}, // PW-10
		"no spec":                     {[]plan.Update{{Op: plan.OpKill, RunningPod: runningPod()}}, second},
		"no grace period in the spec": {[]plan.Update{kill(newSourcePod(podid.API, func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = nil }))}, second},
		"overflow":                    {[]plan.Update{update(newSourcePod(podid.API, withDeletion(math.MaxInt64)))}, 1 << 31 * second},
		"kill of a running pod":       {[]plan.Update{create(newSourcePod(podid.API)), {Op: plan.OpKill, RunningPod: runningPod()}}, 30 * second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := newLifecycle(test.updates...).GracePeriod; got != test.want {
				t.Fatalf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestPW12_Interrupt(t *testing.T) { // PW-21
	web := newSourcePod(podid.API)
	tests := map[string]struct {
		before plan.Lifecycle
		update plan.Update
		want   bool
	}{
		"kill":                  {newLifecycle(create(web)), kill(web), true},
		"shorter kill":          {newLifecycle(create(web), kill(web)), kill(web, time.Second), true},
		"second kill":           {newLifecycle(create(web), kill(web)), kill(web), false},
		"longer kill":           {newLifecycle(create(web), kill(web)), kill(web, time.Hour), false},
		"update":                {newLifecycle(create(web)), update(web), false},
		"stopped pod":           {newLifecycle(create(web), kill(web)).CompleteTerminating(), kill(web, 0), false},
		"finished pod":          {newLifecycle(create(web), kill(web)).CompleteTerminating().CompleteTerminated(true), kill(web, 0), false},
		"API pod created again": {newLifecycle(create(web), kill(web)), create(web), false},
		"sync of a runtime pod": {newLifecycle(create(web)), plan.Update{Op: plan.OpSync, RunningPod: runningPod()}, false},
		"kill of a runtime pod": {newLifecycle(create(web)), plan.Update{Op: plan.OpKill, RunningPod: runningPod()}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, effects := test.before.Apply(test.update, nil); effects.Interrupt != test.want {
				t.Fatalf("got interrupt %v, want %v", effects.Interrupt, test.want)
			}
		})
	}
}

func TestPW2_TerminalFirstUpdate(t *testing.T) {
	ended := create(newSourcePod(podid.API, withPhase(v1.PodSucceeded)))
	tests := map[string]struct {
		runtimePod *observed.Pod
		want       plan.Step
	}{
		"nothing runs":      {stoppedPod(), plan.StepCleanUp},
		"container runs":    {runningPod(), plan.StepTerminate},
		"not inspected":     {&observed.Pod{}, plan.StepTerminate},
		"sandbox ready":     {&observed.Pod{At: time.Unix(1, 0), Sandboxes: []observed.Sandbox{{Ready: true}}}, plan.StepTerminate},
		"sandbox not ready": {&observed.Pod{At: time.Unix(1, 0), Sandboxes: []observed.Sandbox{{}}}, plan.StepCleanUp},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			lifecycle, _ := plan.Lifecycle{}.Apply(ended, test.runtimePod)
			if got := lifecycle.Step(); got != test.want {
				t.Fatalf("got step %v, want %v", got, test.want)
			}
		})
	}
}

// PW-3, PW-4: a spec takes precedence over the runtime pod.
func TestPW3_PW4_RunningPod(t *testing.T) {
	web := newSourcePod(podid.API)
	for _, op := range []plan.Op{plan.OpCreate, plan.OpUpdate, plan.OpSync} {
		if lifecycle, effects := (plan.Lifecycle{}).Apply(plan.Update{Op: op, RunningPod: runningPod()}, nil); !effects.Ignored || lifecycle.Op != 0 {
			t.Errorf("%s without a spec: got applied, want ignored", op)
		}
	}
	lifecycle := newLifecycle(create(web), plan.Update{Op: plan.OpKill, RunningPod: runningPod()})
	if lifecycle.Pod != web || !lifecycle.MayExistInRuntime {
		t.Fatalf("got %+v, want the spec", lifecycle)
	}
	both := newLifecycle(plan.Update{Op: plan.OpKill, Pod: web, RunningPod: runningPod()})
	if both.Pod != web || both.MayExistInRuntime {
		t.Fatalf("got %+v, want the spec only", both)
	}
}

func TestPW5_StaticPodRecreated(t *testing.T) {
	static, api := newSourcePod(podid.File), newSourcePod(podid.API)
	finish := func(l plan.Lifecycle) plan.Lifecycle { return l.CompleteTerminating().CompleteTerminated(true) }
	tests := map[string]struct {
		lifecycle plan.Lifecycle
		want      bool
	}{
		"while terminating":               {finish(newLifecycle(create(static), kill(static), create(static))), true},
		"after it finished":               {applyUpdates(finish(newLifecycle(create(static), kill(static))), create(static)), true},
		"removed again":                   {finish(newLifecycle(create(static), kill(static), create(static), kill(static))), false},
		"removed again after it finished": {applyUpdates(finish(newLifecycle(create(static), kill(static), create(static))), kill(static)), false},
		"evicted again":                   {finish(newLifecycle(create(static), kill(static), create(static), evict(static))), true},
		"completed pod":                   {applyUpdates(finish(newLifecycle(create(static)).CompleteSync()), create(static)), false},
		"API pod":                         {finish(newLifecycle(create(api), kill(api), create(api))), false},
		"update instead of create":        {finish(newLifecycle(create(static), kill(static), update(static))), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.lifecycle.Step() == plan.StepRestart; got != test.want {
				t.Fatalf("got restart %v, want %v", got, test.want)
			}
			if !test.want {
				return
			}
			if again := test.lifecycle.Restart(); again.Stage != plan.Syncing || again.Started || again.Deleted || again.GracePeriod != 0 {
				t.Fatalf("got %+v, want a new lifecycle", again)
			}
		})
	}
}

func TestPW5_PW11_NewestVersion(t *testing.T) { // PW-11
	first, second, third := newSourcePod(podid.File), newSourcePod(podid.File), newSourcePod(podid.File, func(p *v1.Pod) { p.Name = "shop" })
	sync := plan.Update{Op: plan.OpSync, Pod: third, Mirror: newSourcePod(podid.API)}
	terminating := newLifecycle(create(first), kill(first), create(second))
	for stage, lifecycle := range map[string]plan.Lifecycle{
		"terminating": terminating, "terminated": terminating.CompleteTerminating(), "finished": terminating.CompleteTerminating().CompleteTerminated(true),
	} {
		for what, update := range map[string]plan.Update{"update": update(third), "mirror": sync} {
			lifecycle := applyUpdates(lifecycle, update)
			if lifecycle.Pod != first || lifecycle.Name != podid.FullNameOf(first) {
				t.Errorf("%s, %s: got name %v, want the first", stage, what, lifecycle.Name)
			}
			if again := lifecycle.Restart(); again.Pod != third || again.Mirror != update.Mirror {
				t.Errorf("%s, %s: got %v with mirror %v, want the newest", stage, what, again.Name, again.Mirror)
			}
		}
	}
}

func TestPW18_NameIsKept(t *testing.T) {
	first, renamed := newSourcePod(podid.File), newSourcePod(podid.File, func(p *v1.Pod) { p.Name = "shop" })
	terminating := newLifecycle(create(first), kill(first), create(renamed))
	for stage, lifecycle := range map[string]plan.Lifecycle{
		"terminating": terminating, "terminated": terminating.CompleteTerminating(), "finished": terminating.CompleteTerminating().CompleteTerminated(true),
	} {
		if lifecycle := applyUpdates(lifecycle, kill(renamed)); lifecycle.Name != podid.FullNameOf(first) || lifecycle.Recreated != nil {
			t.Errorf("%s: got name %v and recreated %v, want the first and none", stage, lifecycle.Name, lifecycle.Recreated)
		}
	}
}

func applyUpdates(lifecycle plan.Lifecycle, updates ...plan.Update) plan.Lifecycle {
	for _, u := range updates {
		lifecycle, _ = lifecycle.Apply(u, nil)
	}
	return lifecycle
}

func TestPW17_NeverStarted(t *testing.T) {
	static, api := newSourcePod(podid.File), newSourcePod(podid.API)
	first := func(u plan.Update, runtimePod *observed.Pod) plan.Lifecycle {
		lifecycle, _ := plan.Lifecycle{}.Apply(u, runtimePod)
		return applyUpdates(lifecycle, kill(u.Pod))
	}
	tests := map[string]struct {
		lifecycle plan.Lifecycle
		want      bool
	}{
		"never started":            {first(create(static), stoppedPod()), true},
		"started":                  {applyUpdates(newLifecycle(create(static)).Start(), kill(static)), false},
		"API pod":                  {first(create(api), stoppedPod()), false},
		"running before the agent": {first(create(static), runningPod()), false},
		"not inspected":            {first(create(static), &observed.Pod{}), false},
		"syncing":                  {newLifecycle(create(static)), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.lifecycle.NeverStarted(); got != test.want {
				t.Fatalf("got %v, want %v", got, test.want)
			}
			if test.want && test.lifecycle.FinishUnstarted().Step() != plan.StepIdle {
				t.Fatal("got a step left, want idle")
			}
		})
	}
}

// PW-6: only a deletion changes a finished pod.
func TestPW42_ShouldRemoveContent(t *testing.T) { // PW-6
	web := newSourcePod(podid.API)
	stopped := func(l plan.Lifecycle) plan.Lifecycle { return l.CompleteTerminating() }
	if stopped(newLifecycle(create(web)).CompleteSync()).ShouldRemoveContent() {
		t.Error("completed pod: got content removed, want kept")
	}
	if newLifecycle(create(web), kill(web)).ShouldRemoveContent() {
		t.Error("terminating pod: got content removed, want kept")
	}
	if !stopped(newLifecycle(create(web), evict(web))).ShouldRemoveContent() || !stopped(newLifecycle(create(web), kill(web))).ShouldRemoveContent() {
		t.Error("evicted or deleted pod: got content kept, want removed")
	}
	late := applyUpdates(stopped(newLifecycle(create(web)).CompleteSync()).CompleteTerminated(false), kill(web))
	if late.Step() != plan.StepRemove || late.CompleteTerminated(true).Step() != plan.StepIdle {
		t.Error("completed pod deleted later: got content kept, want removed")
	}
}

func TestPW30_RunningPodStopped(t *testing.T) {
	lifecycle := newLifecycle(plan.Update{Op: plan.OpKill, RunningPod: runningPod()}).CompleteTerminating()
	if lifecycle.Stage != plan.Finished || lifecycle.Step() != plan.StepIdle {
		t.Fatalf("got %s, step %v, want finished and idle", lifecycle.Stage, lifecycle.Step())
	}
}

func drawUpdate(t *rapid.T) plan.Update {
	u := plan.Update{Op: rapid.SampledFrom([]plan.Op{plan.OpCreate, plan.OpUpdate, plan.OpSync, plan.OpKill}).Draw(t, "op")}
	if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
		u.RunningPod = runningPod()
		return u
	}
	u.Pod = newSourcePod(rapid.SampledFrom([]podid.Source{podid.API, podid.File}).Draw(t, "source"))
	if rapid.IntRange(0, 3).Draw(t, "deleted") == 0 {
		withDeletion(rapid.Int64Range(0, 100).Draw(t, "grace"))(u.Pod)
	}
	if rapid.IntRange(0, 5).Draw(t, "ended") == 0 {
		u.Pod.Status.Phase = v1.PodFailed
	}
	if u.Op == plan.OpKill {
		u.Kill.Evict = rapid.Bool().Draw(t, "evict")
		if rapid.Bool().Draw(t, "shortens") {
			grace := time.Duration(rapid.IntRange(-1, 100).Draw(t, "seconds")) * time.Second
			u.Kill.GracePeriod = &grace
		}
	}
	return u
}

// completeStep applies a random outcome of the lifecycle's current step.
func completeStep(t *rapid.T, l plan.Lifecycle) plan.Lifecycle {
	switch l.Step() {
	case plan.StepSync:
		return rapid.SampledFrom([]func() plan.Lifecycle{l.Start, l.CompleteSync, l.Reject}).Draw(t, "sync")()
	case plan.StepTerminate:
		if l.NeverStarted() {
			return l.FinishUnstarted()
		}
		return rapid.SampledFrom([]func() plan.Lifecycle{l.StartTerminating, l.CompleteTerminating}).Draw(t, "terminate")()
	case plan.StepCleanUp:
		return l.CompleteTerminated(l.ShouldRemoveContent())
	case plan.StepRemove:
		return l.CompleteTerminated(true)
	default:
		return l
	}
}

func TestPW7_LifecycleForward(t *testing.T) { // PW-6, PW-8, PW-20
	rapid.Check(t, func(t *rapid.T) {
		runtimePod := rapid.SampledFrom([]*observed.Pod{nil, {}, stoppedPod(), runningPod()}).Draw(t, "runtimePod")
		var lifecycle plan.Lifecycle
		for range rapid.IntRange(1, 30).Draw(t, "length") {
			before, effects := lifecycle, plan.Effects{}
			if rapid.Bool().Draw(t, "update") {
				lifecycle, effects = lifecycle.Apply(drawUpdate(t), runtimePod)
			} else if lifecycle.Op != 0 {
				lifecycle = completeStep(t, lifecycle)
			}
			requireForward(t, before, lifecycle, effects)
		}
	})
}

func requireForward(t *rapid.T, before, after plan.Lifecycle, effects plan.Effects) {
	switch {
	case after.Stage < before.Stage:
		t.Fatalf("got %s after %s", after.Stage, before.Stage)
	case before.GracePeriod > 0 && after.GracePeriod > before.GracePeriod:
		t.Fatalf("got grace period %v after %v", after.GracePeriod, before.GracePeriod)
	case after.Stage == plan.Terminating && after.GracePeriod < time.Second:
		t.Fatalf("got grace period %v, want at least 1s", after.GracePeriod)
	case before.Deleted && !after.Deleted, before.StartedTerminating && !after.StartedTerminating, before.Started && !after.Started:
		t.Fatalf("got %+v after %+v", after, before)
	case before.Stage == plan.Syncing && before.Op != 0 && after.Stage == plan.Terminating && after.Op != before.Op && !effects.Interrupt:
		t.Fatal("got no interrupt of a terminating pod")
	case before.Pod != nil && after.Pod == nil:
		t.Fatal("got no spec, want it kept")
	}
}

func TestLifecycle_Terminates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lifecycle, effects := plan.Lifecycle{}.Apply(drawUpdate(t), stoppedPod())
		if effects.Ignored {
			return
		}
		lifecycle, _ = lifecycle.Orphan()
		for range 5 {
			if lifecycle.NeverStarted() {
				lifecycle = lifecycle.FinishUnstarted()
			}
			switch lifecycle.Step() {
			case plan.StepTerminate:
				lifecycle = lifecycle.StartTerminating().CompleteTerminating()
			case plan.StepCleanUp, plan.StepRemove:
				lifecycle = lifecycle.CompleteTerminated(true)
			case plan.StepIdle:
				return
			}
		}
		t.Fatalf("got stage %s and step %v, want idle", lifecycle.Stage, lifecycle.Step())
	})
}
