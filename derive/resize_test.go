package derive_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
)

// newResizeCondition returns a resize condition that was last probed at later.
func newResizeCondition(conditionType v1.PodConditionType, reason, message string, generation int64, since time.Time) v1.PodCondition {
	return v1.PodCondition{
		Type: conditionType, Status: v1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(since), LastProbeTime: metav1.NewTime(later),
	}
}

func TestSM88_ResizePending(t *testing.T) {
	first, _ := derive.Resize{}.WithPending(derive.ResizeCondition{Reason: v1.PodReasonDeferred, Message: "no room", Generation: 2}, noon)
	tests := map[string]struct {
		before    derive.Resize
		condition derive.ResizeCondition
		changed   bool
		want      v1.PodCondition
	}{
		"first":                           {derive.Resize{}, derive.ResizeCondition{Reason: "Infeasible", Generation: 2}, true, newResizeCondition(v1.PodResizePending, "Infeasible", "", 2, later)},
		"unknown reason becomes Deferred": {derive.Resize{}, derive.ResizeCondition{Reason: "Whatever", Generation: 2}, true, newResizeCondition(v1.PodResizePending, "Deferred", "", 2, later)},
		"unchanged":                       {first, derive.ResizeCondition{Reason: "Deferred", Message: "no room", Generation: 2}, false, newResizeCondition(v1.PodResizePending, "Deferred", "no room", 2, noon)},
		"new message":                     {first, derive.ResizeCondition{Reason: "Deferred", Message: "less room", Generation: 2}, false, newResizeCondition(v1.PodResizePending, "Deferred", "less room", 2, noon)},
		"new generation":                  {first, derive.ResizeCondition{Reason: "Deferred", Message: "no room", Generation: 3}, true, newResizeCondition(v1.PodResizePending, "Deferred", "no room", 3, noon)},
		"new reason":                      {first, derive.ResizeCondition{Reason: "Infeasible", Message: "never", Generation: 2}, true, newResizeCondition(v1.PodResizePending, "Infeasible", "never", 2, later)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, changed := test.before.WithPending(test.condition, later)
			requireEqual(t, got.Conditions(), []v1.PodCondition{test.want})
			requireEqual(t, changed, test.changed)
		})
	}
	requireEqual(t, first.Conditions()[0].Message, "no room")
}

func TestSM89_ResizeInProgress(t *testing.T) {
	first, _ := derive.Resize{}.WithInProgress(derive.ResizeCondition{Reason: "Error", Message: "slow", Generation: 2}, noon)
	tests := map[string]struct {
		before    derive.Resize
		condition derive.ResizeCondition
		changed   bool
		want      v1.PodCondition
	}{
		"first":                    {derive.Resize{}, derive.ResizeCondition{Generation: 2}, true, newResizeCondition(v1.PodResizeInProgress, "", "", 2, later)},
		"newer spec":               {first, derive.ResizeCondition{Reason: "Error", Message: "slow", Generation: 3}, false, newResizeCondition(v1.PodResizeInProgress, "Error", "slow", 2, noon)},
		"no reason and no message": {first, derive.ResizeCondition{Generation: 3}, false, newResizeCondition(v1.PodResizeInProgress, "Error", "slow", 2, noon)},
		"new message":              {first, derive.ResizeCondition{Reason: "Error", Message: "slower"}, true, newResizeCondition(v1.PodResizeInProgress, "Error", "slower", 2, noon)},
		"message without a reason": {first, derive.ResizeCondition{Message: "on it"}, true, newResizeCondition(v1.PodResizeInProgress, "", "on it", 2, later)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, changed := test.before.WithInProgress(test.condition, later)
			requireEqual(t, got.Conditions(), []v1.PodCondition{test.want})
			requireEqual(t, changed, test.changed)
			generation, ok := got.InProgress()
			requireEqual(t, []any{generation, ok}, []any{int64(2), true})
		})
	}
}

func TestSM90_ResizeCompleted(t *testing.T) {
	both, _ := derive.Resize{}.WithPending(derive.ResizeCondition{Generation: 3}, noon)
	both, _ = both.WithInProgress(derive.ResizeCondition{Generation: 2}, noon)

	rest, generation, done := both.WithoutInProgress()
	requireEqual(t, []any{generation, done, len(rest.Conditions())}, []any{int64(2), true, 1})
	_, generation, done = rest.WithoutInProgress()
	requireEqual(t, []any{generation, done}, []any{int64(0), false})

	requireEqual(t, len(rest.WithoutPending().Conditions()), 0)
	requireEqual(t, len(rest.WithoutPending().WithoutPending().Conditions()), 0)
	if _, ok := both.WithoutPending().InProgress(); !ok {
		t.Fatal("got no resize in progress, want one")
	}
}

func TestSM91_ResizeReason(t *testing.T) {
	deferred, _ := derive.Resize{}.WithPending(derive.ResizeCondition{Reason: "Deferred"}, noon)
	infeasible, _ := deferred.WithPending(derive.ResizeCondition{Reason: "Infeasible"}, noon)
	reasons := func(r derive.Resize) []bool { return []bool{r.IsDeferred(), r.IsInfeasible()} }
	requireEqual(t, reasons(derive.Resize{}), []bool{false, false})
	requireEqual(t, reasons(deferred), []bool{true, false})
	requireEqual(t, reasons(infeasible), []bool{false, true})
	requireEqual(t, reasons(infeasible.WithoutPending()), []bool{false, false})
}

func TestSM92_ResizeFromConditions(t *testing.T) {
	before, _ := derive.Resize{}.WithPending(derive.ResizeCondition{Reason: "Infeasible", Message: "never", Generation: 3}, noon)
	before, _ = before.WithInProgress(derive.ResizeCondition{Generation: 2}, noon)
	published := append([]v1.PodCondition{{Type: v1.PodReady}}, before.Conditions()...)
	requireEqual(t, derive.ResizeFromConditions(published).Conditions(), before.Conditions())
	requireEqual(t, len(derive.ResizeFromConditions(nil).Conditions()), 0)
}

func TestSM93_ResizeConditionOrder(t *testing.T) {
	r, _ := derive.Resize{}.WithInProgress(derive.ResizeCondition{}, noon)
	r, _ = r.WithPending(derive.ResizeCondition{}, noon)
	list := r.Conditions()
	requireEqual(t, []v1.PodConditionType{list[0].Type, list[1].Type}, []v1.PodConditionType{v1.PodResizePending, v1.PodResizeInProgress})
	list[0].Reason = "spoiled"
	requireEqual(t, r.IsDeferred(), true)
}
