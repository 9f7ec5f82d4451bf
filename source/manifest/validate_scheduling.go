package manifest

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkScheduling looks at what nobody acts upon here, because a static pod is on its node from the start, but what the
// API server would refuse the mirror for.
func (c *checker) checkScheduling(spec *field.Path) {
	if len(c.spec.SchedulingGates) > 0 {
		c.forbidden(spec.Child("schedulingGates"), "a static pod is not scheduled")
	}
	if name := c.spec.PriorityClassName; name != "" {
		c.invalid(spec.Child("priorityClassName"), name, apivalidation.NameIsDNSSubdomain(name, false)...)
	}
	oneOfIfSet(c, spec.Child("preemptionPolicy"), c.spec.PreemptionPolicy, v1.PreemptLowerPriority, v1.PreemptNever)
	if group := c.spec.SchedulingGroup; group != nil {
		at := spec.Child("schedulingGroup", "podGroupName")
		if group.PodGroupName == nil {
			c.required(at, "")
		} else {
			c.invalid(at, *group.PodGroupName, apivalidation.NameIsDNSSubdomain(*group.PodGroupName, false)...)
		}
	}
	c.checkLabels(spec.Child("nodeSelector"), c.spec.NodeSelector)
	c.checkTolerations(spec.Child("tolerations"), c.spec.Tolerations)
	c.checkSpread(spec.Child("topologySpreadConstraints"))
	if affinity := c.spec.Affinity; affinity != nil {
		c.checkAffinity(spec.Child("affinity"), affinity)
	}
}

func (c *checker) checkTolerations(at *field.Path, tolerations []v1.Toleration) {
	for i, toleration := range tolerations {
		at := at.Index(i)
		if toleration.Key != "" {
			c.invalid(at.Child("key"), toleration.Key, validation.IsQualifiedName(toleration.Key)...)
		} else if toleration.Operator != v1.TolerationOpExists {
			c.invalid(at.Child("operator"), toleration.Operator, "must be Exists when key is empty")
		}
		switch toleration.Operator {
		case v1.TolerationOpExists:
			if toleration.Value != "" {
				c.invalid(at.Child("value"), toleration.Value, "must be empty when operator is Exists")
			}
		case v1.TolerationOpEqual, "":
			c.invalid(at.Child("value"), toleration.Value, validation.IsValidLabelValue(toleration.Value)...)
		default:
			oneOf(c, at.Child("operator"), toleration.Operator, v1.TolerationOpEqual, v1.TolerationOpExists)
		}
		if toleration.Effect != "" {
			oneOf(c, at.Child("effect"), toleration.Effect,
				v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)
		}
		if toleration.TolerationSeconds != nil && toleration.Effect != v1.TaintEffectNoExecute {
			c.invalid(at.Child("effect"), toleration.Effect, "must be NoExecute when tolerationSeconds is set")
		}
	}
}

func (c *checker) checkSpread(at *field.Path) {
	seen := make(map[string]bool)
	for i, constraint := range c.spec.TopologySpreadConstraints {
		at := at.Index(i)
		c.atLeast(at.Child("maxSkew"), int64(constraint.MaxSkew), 1)
		c.present(at.Child("topologyKey"), constraint.TopologyKey)
		oneOf(c, at.Child("whenUnsatisfiable"), constraint.WhenUnsatisfiable, v1.DoNotSchedule, v1.ScheduleAnyway)
		unique(c, at.Child("topologyKey"), seen, constraint.TopologyKey+" "+string(constraint.WhenUnsatisfiable))
		if domains := constraint.MinDomains; domains != nil {
			c.atLeast(at.Child("minDomains"), int64(*domains), 1)
			if constraint.WhenUnsatisfiable != v1.DoNotSchedule {
				c.forbidden(at.Child("minDomains"), "needs whenUnsatisfiable: DoNotSchedule")
			}
		}
		for name, policy := range map[string]*v1.NodeInclusionPolicy{
			"nodeAffinityPolicy": constraint.NodeAffinityPolicy, "nodeTaintsPolicy": constraint.NodeTaintsPolicy,
		} {
			oneOfIfSet(c, at.Child(name), policy, v1.NodeInclusionPolicyIgnore, v1.NodeInclusionPolicyHonor)
		}
		c.checkLabelKeys(at, constraint.LabelSelector, constraint.MatchLabelKeys, nil)
		c.checkSelector(at.Child("labelSelector"), constraint.LabelSelector)
	}
}

func (c *checker) checkSelector(at *field.Path, selector *metav1.LabelSelector) {
	c.add(metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, at)...)
}

// checkLabelKeys looks at keys whose values are to be taken from the pod itself and added to the selector.
func (c *checker) checkLabelKeys(at *field.Path, selector *metav1.LabelSelector, match, mismatch []string) {
	for name, keys := range map[string][]string{"matchLabelKeys": match, "mismatchLabelKeys": mismatch} {
		if len(keys) > 0 && selector == nil {
			c.forbidden(at.Child(name), "needs a labelSelector")
		}
		for i, key := range keys {
			c.invalid(at.Child(name).Index(i), key, validation.IsQualifiedName(key)...)
		}
	}
	for i, key := range match {
		if slices.Contains(mismatch, key) {
			c.invalid(at.Child("matchLabelKeys").Index(i), key, "is in mismatchLabelKeys as well")
		}
		if selector != nil && isAmbiguous(selector, key) {
			c.invalid(at.Child("matchLabelKeys").Index(i), key, "is in labelSelector as well, more than once")
		}
	}
}

// isAmbiguous reports whether the selector asks for the key twice. Once is what an API server makes of matchLabelKeys.
func isAmbiguous(selector *metav1.LabelSelector, key string) bool {
	times := 0
	for _, requirement := range selector.MatchExpressions {
		if requirement.Key == key {
			times++
		}
	}
	_, matched := selector.MatchLabels[key]
	return times > 1 || times == 1 && matched
}
