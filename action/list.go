package action

import (
	"context"
	"strconv"

	"github.com/heraldnode/herald/remedy"
	"github.com/heraldnode/herald/view"
)

// Actions returns the newest actions and refusals for the query API, newest first.
func (a *Actor) Actions(_ context.Context, limit int) (view.ActionList, error) {
	state := a.State()
	list := view.ActionList{Suspended: state.Suspended, SuspendedUntil: view.NewTime(state.Until)}
	for _, record := range a.List(limit) {
		list.Items = append(list.Items, newAction(&record))
	}
	return list, nil
}

func newAction(r *Record) view.Action {
	action := view.Action{
		At: view.NewTime(r.At), Type: string(r.Type), Rule: r.Rule, Alert: r.Alert, Object: r.Object.String(), Decision: string(r.Decision),
		Outcome: string(r.Outcome), Message: r.Message, TookMs: r.TookMs,
	}
	if r.ID != 0 {
		action.ID = strconv.FormatUint(r.ID, 10)
	}
	if r.Decision == remedy.Refuse {
		action.Reason, action.Message = string(r.Reason), r.Refusal
	}
	return action
}
