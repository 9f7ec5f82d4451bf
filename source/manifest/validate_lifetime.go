package manifest

import (
	"math"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkLifetime looks at how the pod runs and how it ends.
func (c *checker) checkLifetime(spec *field.Path) {
	oneOf(c, spec.Child("restartPolicy"), c.spec.RestartPolicy,
		v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	c.atLeast(spec.Child("terminationGracePeriodSeconds"), *c.spec.TerminationGracePeriodSeconds, 0)
	if deadline := c.spec.ActiveDeadlineSeconds; deadline != nil && (*deadline < 1 || *deadline > math.MaxInt32) {
		c.invalid(spec.Child("activeDeadlineSeconds"), *deadline, validation.InclusiveRangeError(1, math.MaxInt32))
	}
	if c.spec.OS != nil {
		oneOf(c, spec.Child("os", "name"), c.spec.OS.Name, v1.Linux)
	}
	if name := c.spec.RuntimeClassName; name != nil {
		c.invalid(spec.Child("runtimeClassName"), *name, apivalidation.NameIsDNSSubdomain(*name, false)...)
	}
	for i, gate := range c.spec.ReadinessGates {
		at := spec.Child("readinessGates").Index(i).Child("conditionType")
		c.invalid(at, gate.ConditionType, validation.IsQualifiedName(string(gate.ConditionType))...)
	}
}
