package derive_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
)

// resizing is a resize condition that was last looked at later.
func resizing(kind v1.PodConditionType, reason, message string, generation int64, since time.Time) v1.PodCondition {
	return v1.PodCondition{
		Type: kind, Status: v1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(since), LastProbeTime: metav1.NewTime(later),
	}
}

func TestSM88AWaitingResizeIsNewsWhenItsVerdictChanges(t *testing.T) {
	first, _ := derive.Resize{}.WithPending(derive.ResizeCondition{Reason: v1.PodReasonDeferred, Message: "no room", Generation: 2}, noon)
	tests := map[string]struct {
		before derive.Resize
		why    derive.ResizeCondition
		news   bool
		want   v1.PodCondition
	}{
		"the first":              {derive.Resize{}, derive.ResizeCondition{Reason: "Infeasible", Generation: 2}, true, resizing(v1.PodResizePending, "Infeasible", "", 2, later)},
		"any reason is Deferred": {derive.Resize{}, derive.ResizeCondition{Reason: "Whatever", Generation: 2}, true, resizing(v1.PodResizePending, "Deferred", "", 2, later)},
		"the same":               {first, derive.ResizeCondition{Reason: "Deferred", Message: "no room", Generation: 2}, false, resizing(v1.PodResizePending, "Deferred", "no room", 2, noon)},
		"another message":        {first, derive.ResizeCondition{Reason: "Deferred", Message: "less room", Generation: 2}, false, resizing(v1.PodResizePending, "Deferred", "less room", 2, noon)},
		"another generation":     {first, derive.ResizeCondition{Reason: "Deferred", Message: "no room", Generation: 3}, true, resizing(v1.PodResizePending, "Deferred", "no room", 3, noon)},
		"another reason":         {first, derive.ResizeCondition{Reason: "Infeasible", Message: "never", Generation: 2}, true, resizing(v1.PodResizePending, "Infeasible", "never", 2, later)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, news := test.before.WithPending(test.why, later)
			mustEqual(t, got.Conditions(), []v1.PodCondition{test.want})
			mustEqual(t, news, test.news)
		})
	}
	mustEqual(t, first.Conditions()[0].Message, "no room")
}

func TestSM89AResizeUnderWayKeepsItsGeneration(t *testing.T) {
	first, _ := derive.Resize{}.WithInProgress(derive.ResizeCondition{Reason: "Error", Message: "slow", Generation: 2}, noon)
	tests := map[string]struct {
		before derive.Resize
		why    derive.ResizeCondition
		news   bool
		want   v1.PodCondition
	}{
		"the first":                       {derive.Resize{}, derive.ResizeCondition{Generation: 2}, true, resizing(v1.PodResizeInProgress, "", "", 2, later)},
		"a newer spec":                    {first, derive.ResizeCondition{Reason: "Error", Message: "slow", Generation: 3}, false, resizing(v1.PodResizeInProgress, "Error", "slow", 2, noon)},
		"no reason and no message":        {first, derive.ResizeCondition{Generation: 3}, false, resizing(v1.PodResizeInProgress, "Error", "slow", 2, noon)},
		"another message":                 {first, derive.ResizeCondition{Reason: "Error", Message: "slower"}, true, resizing(v1.PodResizeInProgress, "Error", "slower", 2, noon)},
		"a message takes the reason away": {first, derive.ResizeCondition{Message: "on it"}, true, resizing(v1.PodResizeInProgress, "", "on it", 2, later)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, news := test.before.WithInProgress(test.why, later)
			mustEqual(t, got.Conditions(), []v1.PodCondition{test.want})
			mustEqual(t, news, test.news)
			generation, ok := got.InProgress()
			mustEqual(t, []any{generation, ok}, []any{int64(2), true})
		})
	}
}

func TestSM90AResizeEndsOnce(t *testing.T) {
	both, _ := derive.Resize{}.WithPending(derive.ResizeCondition{Generation: 3}, noon)
	both, _ = both.WithInProgress(derive.ResizeCondition{Generation: 2}, noon)

	rest, generation, done := both.WithoutInProgress()
	mustEqual(t, []any{generation, done, len(rest.Conditions())}, []any{int64(2), true, 1})
	_, generation, done = rest.WithoutInProgress()
	mustEqual(t, []any{generation, done}, []any{int64(0), false})

	mustEqual(t, len(rest.WithoutPending().Conditions()), 0)
	mustEqual(t, len(rest.WithoutPending().WithoutPending().Conditions()), 0)
	if _, ok := both.WithoutPending().InProgress(); !ok {
		t.Fatal("accepting one resize ended the one under way")
	}
}

func TestSM91TheVerdictCanBeAsked(t *testing.T) {
	deferred, _ := derive.Resize{}.WithPending(derive.ResizeCondition{Reason: "Deferred"}, noon)
	infeasible, _ := deferred.WithPending(derive.ResizeCondition{Reason: "Infeasible"}, noon)
	answers := func(r derive.Resize) []bool { return []bool{r.IsDeferred(), r.IsInfeasible()} }
	mustEqual(t, answers(derive.Resize{}), []bool{false, false})
	mustEqual(t, answers(deferred), []bool{true, false})
	mustEqual(t, answers(infeasible), []bool{false, true})
	mustEqual(t, answers(infeasible.WithoutPending()), []bool{false, false})
}

func TestSM92TheStateIsReadBackWithItsTimes(t *testing.T) {
	before, _ := derive.Resize{}.WithPending(derive.ResizeCondition{Reason: "Infeasible", Message: "never", Generation: 3}, noon)
	before, _ = before.WithInProgress(derive.ResizeCondition{Generation: 2}, noon)
	published := append([]v1.PodCondition{{Type: v1.PodReady}}, before.Conditions()...)
	mustEqual(t, derive.ResizeFromConditions(published).Conditions(), before.Conditions())
	mustEqual(t, len(derive.ResizeFromConditions(nil).Conditions()), 0)
}

func TestSM93PendingIsListedBeforeInProgress(t *testing.T) {
	r, _ := derive.Resize{}.WithInProgress(derive.ResizeCondition{}, noon)
	r, _ = r.WithPending(derive.ResizeCondition{}, noon)
	list := r.Conditions()
	mustEqual(t, []v1.PodConditionType{list[0].Type, list[1].Type}, []v1.PodConditionType{v1.PodResizePending, v1.PodResizeInProgress})
	list[0].Reason = "spoiled"
	mustEqual(t, r.IsDeferred(), true)
}
