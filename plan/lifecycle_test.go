package plan_test

import (
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// lifeOf is a pod's life after these updates, of which nothing was in the runtime.
func lifeOf(updates ...plan.Update) plan.Lifecycle {
	var life plan.Lifecycle
	for _, u := range updates {
		life, _ = life.Apply(u, nothingSeen())
	}
	return life
}

func nothingSeen() *observed.Pod { return &observed.Pod{At: time.Unix(1, 0)} }

func runningSeen() *observed.Pod {
	return &observed.Pod{At: time.Unix(1, 0), Containers: []observed.Container{{Name: "app", State: observed.Running}}}
}

// mortal is a pod of the API server, or a static one, with a grace of 30 s.
func mortal(source podid.Source, shapes ...func(*v1.Pod)) *v1.Pod {
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

func deleted(seconds int64) func(*v1.Pod) {
	return func(p *v1.Pod) {
		at := metav1.Unix(1, 0)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &seconds
	}
}

func phased(phase v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = phase } }

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
func edit(p *v1.Pod) plan.Update   { return plan.Update{Op: plan.OpUpdate, Pod: p} }

func TestPW7APodEndsByTheFirstCauseThatComes(t *testing.T) {
	web := mortal(podid.API)
	tests := map[string]struct {
		life             plan.Lifecycle
		stage            plan.Stage
		deleted, evicted bool
	}{
		"wanted":                       {life: lifeOf(create(web)), stage: plan.Syncing},
		"deleted by the API server":    {life: lifeOf(create(web), edit(mortal(podid.API, deleted(5)))), stage: plan.Terminating, deleted: true},
		"ended, says the API server":   {life: lifeOf(create(web), edit(mortal(podid.API, phased(v1.PodFailed)))), stage: plan.Terminating},
		"removed from its source":      {life: lifeOf(create(web), kill(web)), stage: plan.Terminating, deleted: true},
		"evicted":                      {life: lifeOf(create(web), evict(web)), stage: plan.Terminating, evicted: true},
		"evicted, then deleted":        {life: lifeOf(create(web), evict(web), kill(web)), stage: plan.Terminating, deleted: true, evicted: true},
		"deleted, then evicted":        {life: lifeOf(create(web), kill(web), evict(web)), stage: plan.Terminating, deleted: true},
		"only known to the runtime":    {life: lifeOf(plan.Update{Op: plan.OpKill, RunningPod: runningSeen()}), stage: plan.Terminating, deleted: true},
		"its outcome is found":         {life: lifeOf(create(web)).CompleteSync(), stage: plan.Terminating},
		"rejected":                     {life: lifeOf(create(web)).Reject(), stage: plan.Terminating},
		"an update changes no mind":    {life: lifeOf(create(web), evict(web), edit(web)), stage: plan.Terminating, evicted: true},
		"already deleted when it came": {life: lifeOf(create(mortal(podid.API, deleted(1)))), stage: plan.Terminating, deleted: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := test.life
			if l.Stage != test.stage || l.Deleted != test.deleted || l.Evicted != test.evicted {
				t.Fatalf("%s, deleted %v, evicted %v", l.Stage, l.Deleted, l.Evicted)
			}
			if (l.Stage == plan.Syncing) != (l.GracePeriod == 0) {
				t.Fatalf("%s with a grace of %v", l.Stage, l.GracePeriod)
			}
		})
	}
}

func TestPW20TheGraceIsTheLeastThatWasEverAllowed(t *testing.T) {
	second := time.Second
	tests := map[string]struct {
		updates []plan.Update
		want    time.Duration
	}{
		"the spec's":                          {[]plan.Update{kill(mortal(podid.API))}, 30 * second},
		"the deletion's, also if longer":      {[]plan.Update{edit(mortal(podid.API, deleted(60)))}, 60 * second},
		"a forced deletion's is 1 s":          {[]plan.Update{edit(mortal(podid.API, deleted(0)))}, second},
		"a kill does not undo a forced one":   {[]plan.Update{kill(mortal(podid.API, deleted(0)), 30*second)}, second},
		"a kill's":                            {[]plan.Update{kill(mortal(podid.API), 5*second)}, 5 * second},
		"a kill's of nothing":                 {[]plan.Update{kill(mortal(podid.API), 0)}, second},
		"a kill's below nothing":              {[]plan.Update{kill(mortal(podid.API), -second)}, second},
		"a kill's may be longer":              {[]plan.Update{kill(mortal(podid.API), 50*second)}, 50 * second},
		"never longer than it was":            {[]plan.Update{kill(mortal(podid.API), 5*second), kill(mortal(podid.API), 9*second)}, 5 * second},
		"not by the spec either":              {[]plan.Update{kill(mortal(podid.API), 50*second), edit(mortal(podid.API))}, 50 * second},
		"shorter later":                       {[]plan.Update{edit(mortal(podid.API, deleted(60))), edit(mortal(podid.API, deleted(3)))}, 3 * second},
		"only a kill's options count":         {[]plan.Update{{Op: plan.OpUpdate, Pod: mortal(podid.API, deleted(9)), Kill: kill(nil, second).Kill}}, 9 * second}, // PW-10
		"1 s without a spec":                  {[]plan.Update{{Op: plan.OpKill, RunningPod: runningSeen()}}, second},
		"1 s where the spec says nothing":     {[]plan.Update{kill(mortal(podid.API, func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = nil }))}, second},
		"one that never ends is no short one": {[]plan.Update{edit(mortal(podid.API, deleted(math.MaxInt64)))}, 1 << 31 * second},
		"a leftover's kill keeps the spec's":  {[]plan.Update{create(mortal(podid.API)), {Op: plan.OpKill, RunningPod: runningSeen()}}, 30 * second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := lifeOf(test.updates...).GracePeriod; got != test.want {
				t.Fatalf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestPW12AStepIsInterruptedWhenItIsNoLongerWanted(t *testing.T) { // PW-21
	web := mortal(podid.API)
	tests := map[string]struct {
		before plan.Lifecycle
		update plan.Update
		want   bool
	}{
		"the pod must end":            {lifeOf(create(web)), kill(web), true},
		"it must end sooner":          {lifeOf(create(web), kill(web)), kill(web, time.Second), true},
		"it must end, once more":      {lifeOf(create(web), kill(web)), kill(web), false},
		"it must end later":           {lifeOf(create(web), kill(web)), kill(web, time.Hour), false},
		"it changed":                  {lifeOf(create(web)), edit(web), false},
		"it has stopped":              {lifeOf(create(web), kill(web)).CompleteTerminating(), kill(web, 0), false},
		"it is finished":              {lifeOf(create(web), kill(web)).CompleteTerminating().CompleteTerminated(true), kill(web, 0), false},
		"an API pod comes once more":  {lifeOf(create(web), kill(web)), create(web), false},
		"only the runtime speaks":     {lifeOf(create(web)), plan.Update{Op: plan.OpSync, RunningPod: runningSeen()}, false},
		"the runtime's word is known": {lifeOf(create(web)), plan.Update{Op: plan.OpKill, RunningPod: runningSeen()}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, effects := test.before.Apply(test.update, nil); effects.Interrupt != test.want {
				t.Fatalf("interrupts: %v", effects.Interrupt)
			}
		})
	}
}

func TestPW2APodThatEndedIsOnlyCleanedUpIfSomebodyHasLooked(t *testing.T) {
	ended := create(mortal(podid.API, phased(v1.PodSucceeded)))
	tests := map[string]struct {
		seen *observed.Pod
		want plan.Step
	}{
		"nothing runs":        {nothingSeen(), plan.StepCleanUp},
		"something runs":      {runningSeen(), plan.StepTerminate},
		"nobody has looked":   {&observed.Pod{}, plan.StepTerminate},
		"a sandbox is ready":  {&observed.Pod{At: time.Unix(1, 0), Sandboxes: []observed.Sandbox{{Ready: true}}}, plan.StepTerminate},
		"a sandbox was there": {&observed.Pod{At: time.Unix(1, 0), Sandboxes: []observed.Sandbox{{}}}, plan.StepCleanUp},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			life, _ := plan.Lifecycle{}.Apply(ended, test.seen)
			if got := life.Step(); got != test.want {
				t.Fatalf("step %v, want %v", got, test.want)
			}
		})
	}
}

func TestPW3AndPW4ASpecIsBetterThanTheRuntimesWord(t *testing.T) {
	web := mortal(podid.API)
	for _, op := range []plan.Op{plan.OpCreate, plan.OpUpdate, plan.OpSync} {
		if life, effects := (plan.Lifecycle{}).Apply(plan.Update{Op: op, RunningPod: runningSeen()}, nil); !effects.Ignored || life.Op != 0 {
			t.Errorf("%s of a pod without a spec was accepted", op)
		}
	}
	life := lifeOf(create(web), plan.Update{Op: plan.OpKill, RunningPod: runningSeen()})
	if life.Pod != web || !life.MayExistInRuntime {
		t.Fatalf("the spec was forgotten: %+v", life)
	}
	both := lifeOf(plan.Update{Op: plan.OpKill, Pod: web, RunningPod: runningSeen()})
	if both.Pod != web || both.MayExistInRuntime {
		t.Fatalf("the runtime's word was taken beside the spec: %+v", both)
	}
}

func TestPW5OnlyAStaticPodThatWasRemovedComesBack(t *testing.T) {
	static, api := mortal(podid.File), mortal(podid.API)
	finish := func(l plan.Lifecycle) plan.Lifecycle { return l.CompleteTerminating().CompleteTerminated(true) }
	tests := map[string]struct {
		life plan.Lifecycle
		want bool
	}{
		"while it ends":                {finish(lifeOf(create(static), kill(static), create(static))), true},
		"after it has finished":        {lifeAfter(finish(lifeOf(create(static), kill(static))), create(static)), true},
		"and is removed again":         {finish(lifeOf(create(static), kill(static), create(static), kill(static))), false},
		"and is removed again later":   {lifeAfter(finish(lifeOf(create(static), kill(static), create(static))), kill(static)), false},
		"and is sent away once more":   {finish(lifeOf(create(static), kill(static), create(static), evict(static))), true},
		"one that completed":           {lifeAfter(finish(lifeOf(create(static)).CompleteSync()), create(static)), false},
		"one of the API server":        {finish(lifeOf(create(api), kill(api), create(api))), false},
		"by anything but its creation": {finish(lifeOf(create(static), kill(static), edit(static))), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.life.Step() == plan.StepRestart; got != test.want {
				t.Fatalf("restarts: %v", got)
			}
			if !test.want {
				return
			}
			if again := test.life.Restart(); again.Stage != plan.Syncing || again.Started || again.Deleted || again.GracePeriod != 0 {
				t.Fatalf("its new life is %+v", again)
			}
		})
	}
}

func TestPW5OfAllVersionsThatComeBackTheNewestDoes(t *testing.T) { // PW-11
	first, second, third := mortal(podid.File), mortal(podid.File), mortal(podid.File, func(p *v1.Pod) { p.Name = "shop" })
	sync := plan.Update{Op: plan.OpSync, Pod: third, Mirror: mortal(podid.API)}
	ending := lifeOf(create(first), kill(first), create(second))
	for stage, life := range map[string]plan.Lifecycle{
		"stopping": ending, "stopped": ending.CompleteTerminating(), "finished": ending.CompleteTerminating().CompleteTerminated(true),
	} {
		for what, update := range map[string]plan.Update{"is edited": edit(third), "has a mirror": sync} {
			life := lifeAfter(life, update)
			if life.Pod != first || life.Name != podid.FullNameOf(first) {
				t.Errorf("%s when it %s: what ends is %v", stage, what, life.Name)
			}
			if again := life.Restart(); again.Pod != third || again.Mirror != update.Mirror {
				t.Errorf("%s when it %s: what begins is %v, with the mirror %v", stage, what, again.Name, again.Mirror)
			}
		}
	}
}

func TestPW18ALifeKeepsItsNameWhateverWasToComeAfterIt(t *testing.T) {
	first, renamed := mortal(podid.File), mortal(podid.File, func(p *v1.Pod) { p.Name = "shop" })
	ending := lifeOf(create(first), kill(first), create(renamed))
	for stage, life := range map[string]plan.Lifecycle{
		"stopping": ending, "stopped": ending.CompleteTerminating(), "finished": ending.CompleteTerminating().CompleteTerminated(true),
	} {
		if life := lifeAfter(life, kill(renamed)); life.Name != podid.FullNameOf(first) || life.Recreated != nil {
			t.Errorf("%s when the other is removed: what ends is %v, and after it comes %v", stage, life.Name, life.Recreated)
		}
	}
}

func lifeAfter(life plan.Lifecycle, updates ...plan.Update) plan.Lifecycle {
	for _, u := range updates {
		life, _ = life.Apply(u, nil)
	}
	return life
}

func TestPW17OnlyAStaticPodOfWhichNothingIsThereIsForgotten(t *testing.T) {
	static, api := mortal(podid.File), mortal(podid.API)
	first := func(u plan.Update, seen *observed.Pod) plan.Lifecycle {
		life, _ := plan.Lifecycle{}.Apply(u, seen)
		return lifeAfter(life, kill(u.Pod))
	}
	tests := map[string]struct {
		life plan.Lifecycle
		want bool
	}{
		"it never began":                     {first(create(static), nothingSeen()), true},
		"it began":                           {lifeAfter(lifeOf(create(static)).Start(), kill(static)), false},
		"it is one of the API server":        {first(create(api), nothingSeen()), false},
		"it runs since before the agent did": {first(create(static), runningSeen()), false},
		"nobody has looked":                  {first(create(static), &observed.Pod{}), false},
		"it is to run":                       {lifeOf(create(static)), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.life.NeverStarted(); got != test.want {
				t.Fatalf("NeverBegan is %v", got)
			}
			if test.want && test.life.FinishUnstarted().Step() != plan.StepIdle {
				t.Fatal("something is left to do for it")
			}
		})
	}
}

func TestPW42ContentIsRemovedOfWhatNobodyWantsAnyMore(t *testing.T) { // PW-6
	web := mortal(podid.API)
	stopped := func(l plan.Lifecycle) plan.Lifecycle { return l.CompleteTerminating() }
	if stopped(lifeOf(create(web)).CompleteSync()).ShouldRemoveContent() {
		t.Error("a pod that completed loses its logs")
	}
	if lifeOf(create(web), kill(web)).ShouldRemoveContent() {
		t.Error("a pod loses its content before it has stopped")
	}
	if !stopped(lifeOf(create(web), evict(web))).ShouldRemoveContent() || !stopped(lifeOf(create(web), kill(web))).ShouldRemoveContent() {
		t.Error("an evicted or deleted pod keeps its content")
	}
	late := lifeAfter(stopped(lifeOf(create(web)).CompleteSync()).CompleteTerminated(false), kill(web))
	if late.Step() != plan.StepRemove || late.CompleteTerminated(true).Step() != plan.StepIdle {
		t.Error("a completed pod that is deleted later keeps its content")
	}
}

func TestPW30WhatOnlyTheRuntimeKnewIsFinishedWhenItHasStopped(t *testing.T) {
	life := lifeOf(plan.Update{Op: plan.OpKill, RunningPod: runningSeen()}).CompleteTerminating()
	if life.Stage != plan.Finished || life.Step() != plan.StepIdle {
		t.Fatalf("%s, step %v", life.Stage, life.Step())
	}
}
