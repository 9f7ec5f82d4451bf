package restart_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/restart"
)

func TestSM43ARestartIsDecidedByTheFirstMatchingRuleThenTheContainerThenThePod(t *testing.T) {
	rule := func(action v1.ContainerRestartRuleAction, op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) v1.ContainerRestartRule {
		return v1.ContainerRestartRule{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
	}
	const in, notIn = v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	const again = v1.ContainerRestartRuleActionRestart
	own := func(policy v1.ContainerRestartPolicy, rules ...v1.ContainerRestartRule) v1.Container {
		return v1.Container{Name: "a", RestartPolicy: &policy, RestartPolicyRules: rules}
	}
	tests := map[string]struct {
		policy    v1.RestartPolicy
		container v1.Container
		code      int32
		want      bool
	}{
		"In, listed":                             {"Never", own("Never", rule(again, in, 1, 2)), 2, true},
		"In, not listed":                         {"Always", own("Never", rule(again, in, 1, 2)), 3, false},
		"NotIn, listed":                          {"Always", own("Never", rule(again, notIn, 1)), 1, false},
		"NotIn, not listed":                      {"Never", own("Never", rule(again, notIn, 1)), 0, true},
		"restart all":                            {"Never", own("Never", rule(v1.ContainerRestartRuleActionRestartAllContainers, in, 1)), 1, true},
		"an unknown action falls through":        {"Never", own("OnFailure", rule("Dance", in, 0)), 0, false},
		"a rule without codes matches nothing":   {"Never", own("Never", v1.ContainerRestartRule{Action: again}), 1, false},
		"an unknown operator matches nothing":    {"Never", own("Never", rule(again, "Near", 1)), 1, false},
		"the container's OnFailure, failed":      {"Never", own("OnFailure"), 1, true},
		"the container's OnFailure, well":        {"Always", own("OnFailure"), 0, false},
		"an unknown policy leaves it to the pod": {"Never", own("Sometimes"), 1, false},
		"rules without a policy are not read": {
			"Never", v1.Container{Name: "a", RestartPolicyRules: []v1.ContainerRestartRule{rule(again, in, 1)}}, 1, false,
		},
		"the pod's OnFailure": {"OnFailure", v1.Container{}, 1, true},
		"the pod's Always":    {"Always", v1.Container{}, 0, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := restart.ShouldRestart(&v1.PodSpec{RestartPolicy: test.policy}, &test.container, test.code); got != test.want {
				t.Fatalf("restart %v, want %v", got, test.want)
			}
		})
	}
}
