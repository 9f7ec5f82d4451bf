package rule_test

import (
	"testing"

	"github.com/heraldnode/herald/alert/rule"
)

func TestSmoke(t *testing.T) {
	f := rule.Default()
	r := f.Rules[0]
	t.Log(r.ID(), r.Triggers, r.MaxCost, r.Eval(rule.Input{}))
}
