package restart_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/restart"
)

const (
	opIn    = v1.ContainerRestartRuleOnExitCodesOpIn
	opNotIn = v1.ContainerRestartRuleOnExitCodesOpNotIn

	restartOne = v1.ContainerRestartRuleActionRestart
	restartAll = v1.ContainerRestartRuleActionRestartAllContainers
)

func newRule(
	action v1.ContainerRestartRuleAction, op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32,
) v1.ContainerRestartRule {
	return v1.ContainerRestartRule{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
}

func newContainer(policy v1.ContainerRestartPolicy, rules ...v1.ContainerRestartRule) v1.Container {
	return v1.Container{Name: "a", RestartPolicy: &policy, RestartPolicyRules: rules}
}

// The first matching rule decides, then the container's policy, then the pod's.
func TestSM43_ShouldRestart(t *testing.T) {
	tests := map[string]struct {
		policy    v1.RestartPolicy
		container v1.Container
		exitCode  int32
		want      bool
	}{
		"In, listed":                    {"Never", newContainer("Never", newRule(restartOne, opIn, 1, 2)), 2, true},
		"In, not listed":                {"Always", newContainer("Never", newRule(restartOne, opIn, 1, 2)), 3, false},
		"NotIn, listed":                 {"Always", newContainer("Never", newRule(restartOne, opNotIn, 1)), 1, false},
		"NotIn, not listed":             {"Never", newContainer("Never", newRule(restartOne, opNotIn, 1)), 0, true},
		"restart all":                   {"Never", newContainer("Never", newRule(restartAll, opIn, 1)), 1, true},
		"unknown action":                {"Never", newContainer("OnFailure", newRule("Dance", opIn, 0)), 0, false},
		"rule without exit codes":       {"Never", newContainer("Never", v1.ContainerRestartRule{Action: restartOne}), 1, false},
		"unknown operator":              {"Never", newContainer("Never", newRule(restartOne, "Near", 1)), 1, false},
		"container OnFailure, failed":   {"Never", newContainer("OnFailure"), 1, true},
		"container OnFailure, success":  {"Always", newContainer("OnFailure"), 0, false},
		"unknown container policy":      {"Never", newContainer("Sometimes"), 1, false},
		"rules without a policy":        {"Never", v1.Container{Name: "a", RestartPolicyRules: []v1.ContainerRestartRule{newRule(restartOne, opIn, 1)}}, 1, false},
		"pod OnFailure":                 {"OnFailure", v1.Container{}, 1, true},
		"pod Always, container success": {"Always", v1.Container{}, 0, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := restart.ShouldRestart(&v1.PodSpec{RestartPolicy: test.policy}, &test.container, test.exitCode)
			if got != test.want {
				t.Fatalf("got restart %v, want %v", got, test.want)
			}
		})
	}
}

// An init container that was killed for lack of memory has not succeeded, whatever its exit code.
func TestPH16_ShouldRestartInit(t *testing.T) {
	tests := map[string]struct {
		policy   v1.RestartPolicy
		exitCode int32
		reason   string
		want     bool
	}{
		"succeeded":                {"Always", 0, "Completed", false},
		"failed":                   {"OnFailure", 1, "Error", true},
		"failed, Never":            {"Never", 1, "Error", false},
		"OOM killed with 0":        {"OnFailure", 0, restart.ReasonOOMKilled, true},
		"OOM killed with 0, Never": {"Never", 0, restart.ReasonOOMKilled, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &v1.PodSpec{RestartPolicy: test.policy}
			if got := restart.ShouldRestartInit(spec, &v1.Container{}, test.exitCode, test.reason); got != test.want {
				t.Fatalf("got restart %v, want %v", got, test.want)
			}
		})
	}
}
